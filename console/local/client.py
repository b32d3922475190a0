"""The little of the public API that the demo uses, with the token a person would use."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from console.local.errors import LocalError
from console.local.report import Report
from console.local.stack import Stack

ENDED = ("Succeeded", "Failed", "Stopped")
_NOT_ENDED = "Pending,Starting,Running,Stopping"


@dataclass(frozen=True)
class Access:
    """What `manage.py bootstrap_demo --json` prints: how a person and a machine get in."""

    url: str
    organization: str
    workspace: str
    cluster: str
    user: str
    password: str
    token: str
    join_tokens: list[str]
    login_url: str

    @classmethod
    def make(cls, stack: Stack, *, machines: int) -> "Access":
        return cls(**json.loads(stack.manage("bootstrap_demo", "--json", "--machines", str(machines))))

    @property
    def api(self) -> str:
        """What the user guide calls $API."""
        return f"{self.url}/api/v1/o/{self.organization}/w/{self.workspace}"

    def tell(self, report: Report) -> None:
        """Prints how to get in, by page, curl and command line."""
        report.fact("address", self.url)
        report.fact("sign in", self.login_url)
        report.fact("or as", f"{self.user} with the password {self.password}")
        report.fact("curl", f"export API={self.api} ASTRAEUS_TOKEN={self.token}")
        workspace = f"{self.organization}/{self.workspace}"
        astra = f"ASTRAEUS_SERVER={self.url} ASTRAEUS_WORKSPACE={workspace} ASTRAEUS_TOKEN={self.token}"
        report.fact("astra", f"export {astra}")


@dataclass(frozen=True)
class LogLine:
    """A line of a worker's log, and what a reader needs to go on after it."""

    text: str
    attempt: int
    next_offset: int


class Client:
    """Calls below $API."""

    def __init__(self, access: Access) -> None:
        self._http = httpx.Client(
            base_url=access.api,
            headers={"authorization": f"Bearer {access.token}"},
            timeout=30,
            trust_env=False,  # the console is on this machine: a proxy could only be in the way
        )

    def close(self) -> None:
        self._http.close()

    def submit(self, document: dict[str, Any]) -> dict[str, Any]:
        """Submits the run under its name or, when that is taken, with -2, -3 … behind it."""
        name, number = document["metadata"]["name"], 1
        while True:
            response = self._http.post("/runs", json=document)
            if response.status_code != httpx.codes.CONFLICT:
                return _json(response)
            number += 1
            document = {**document, "metadata": {**document["metadata"], "name": f"{name}-{number}"}}

    def run(self, name: str) -> dict[str, Any]:
        return _json(self._http.get(f"/runs/{name}"))

    def stop(self, name: str) -> None:
        _json(self._http.post(f"/runs/{name}/stop"))

    def unended(self) -> list[str]:
        """Names of the runs that have not ended, a page of them."""
        return [
            run["metadata"]["name"]
            for run in _json(self._http.get("/runs", params={"state": _NOT_ENDED}))["items"]
        ]

    def stop_all(self) -> None:
        for name in self.unended():
            self.stop(name)

    def wait_all_ended(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.unended():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def follow(self, worker: str, *, attempt: int, offset: int) -> Iterator[LogLine]:
        """The worker's log from `offset` (bytes) of that attempt until it ends."""
        params = {"follow": "true", "attempt": str(attempt), "offset": str(offset)}
        with self._http.stream("GET", f"/workers/{worker}/logs", params=params, timeout=None) as response:
            if not response.is_success:
                response.read()
            _require_success(response)
            rest = b""
            for data in response.iter_raw():
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    offset += len(line) + 1
                    yield LogLine(line.decode(errors="replace"), attempt, offset)
            if rest:
                yield LogLine(rest.decode(errors="replace"), attempt, offset + len(rest))


def _json(response: httpx.Response) -> dict[str, Any]:
    _require_success(response)
    found: dict[str, Any] = response.json()
    return found


def _require_success(response: httpx.Response) -> None:
    """Raises LocalError with the console's own sentences."""
    if response.is_success:
        return
    try:
        problem = response.json()
        sentences = [f"{error['path']}: {error['message']}" for error in problem.get("errors", [])]
        text = "\n".join(sentences or [problem["detail"]])
    except (ValueError, KeyError):
        text = response.text[:2000]
    raise LocalError(f"The console answered {response.status_code} to {response.request.url}:\n{text}")
