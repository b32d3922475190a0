"""A small console that speaks the API's borders over real HTTP on loopback.

It knows nothing of placement: a test says what runs there are and what their workers have logged, and may cut
connections in the middle of a log.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

ROOT = Path(__file__).parents[2]
TOKEN = "ast_test"
BASE = "/api/v1/o/acme/w/vision"
ORGANIZATION = "/api/v1/o/acme"
PAGE = "https://console.example.com/o/acme/w/vision/jobs/main"


@dataclass
class Log:
    """One attempt's log of a worker; grows until it is closed."""

    data: bytes = b""
    closed: bool = True
    changed: threading.Condition = field(default_factory=threading.Condition)

    def write(self, data: bytes) -> None:
        with self.changed:
            self.data += data
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()


@dataclass(frozen=True)
class Seen:
    """A request as it came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class FakeConsole:
    """Use as a context manager; every attribute may be changed while it serves."""

    def __init__(self) -> None:
        self.runs: dict[str, dict[str, Any]] = {}
        self.workers: dict[str, dict[str, Any]] = {}
        self.newest: dict[str, int] = {}
        """Of each worker the newest attempt."""
        self.logs: dict[tuple[str, int], Log] = {}
        self.events: dict[str, list[Any]] = {}
        self.metrics: dict[str, list[Any]] = {}
        self.explanations: dict[str, Any] = {}
        self.machines: dict[str, dict[str, Any]] = {}
        self.seen: list[Seen] = []
        self.cuts: list[int] = []
        """Each makes one log answer break off after so many bytes, in order."""
        self.rewind = 0
        """Log answers begin so many bytes before the offset asked for."""
        self.answers: list[tuple[int, Any, dict[str, str]]] = []
        """(status, body, headers) given to the next requests instead of the real answer."""
        self.answers_after_cut: list[tuple[int, Any, dict[str, str]]] = []
        """The same, from the moment a log breaks off."""
        self.polls_until_gone = 2
        self.page_size = 100
        self._going: dict[str, int] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"console": self}))
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for log in self.logs.values():
            log.close()
        self._server.shutdown()
        self._server.server_close()

    # --- What tests set up -------------------------------------------------------------------------

    def add_run(
        self, name: str, state: str = "Running", reason: str = "", workers: int = 0, **status: Any
    ) -> None:
        listed: list[dict[str, Any]] = [
            {
                "name": f"{name}-{rank}",
                "rank": rank,
                "state": state,
                "machine": f"gpu-0{rank + 1}",
                "gpus": [f"GPU-{n}" for n in range(8)],
            }
            for rank in range(workers)
        ]
        self.runs[name] = {
            "metadata": {"name": name, "labels": {}},
            "spec": {},
            "status": {
                "state": state,
                "reason": reason,
                "cluster": "main",
                "attempt": 1,
                "workers": listed,
                "url": f"{PAGE}/{name}",
                **status,
            },
        }
        for worker in listed:
            self.add_worker(worker["name"], name, state)

    def add_worker(self, name: str, run: str, state: str = "Running", attempt: int = 1) -> None:
        self.workers[name] = {"name": name, "run": run, "state": state}
        self.newest[name] = attempt

    def set_state(self, run: str, state: str, reason: str = "") -> None:
        self.runs[run]["status"] |= {"state": state, "reason": reason}
        for worker in self.workers.values():
            if worker["run"] == run:
                worker["state"] = state

    # --- Answers -----------------------------------------------------------------------------------

    def answer(self, seen: Seen) -> tuple[int, Any, dict[str, str]]:
        if self.answers:
            return self.answers.pop(0)
        if seen.headers.get("authorization") != f"Bearer {TOKEN}":
            return problem(401, "This token is not valid.")
        if seen.path.startswith(f"{BASE}/runs"):
            return self._runs(seen, seen.path.removeprefix(f"{BASE}/runs").strip("/").split("/"))
        if seen.path.startswith(f"{BASE}/workers/"):
            return self._workers(seen.path.removeprefix(f"{BASE}/workers/").split("/"))
        if seen.path.startswith(f"{ORGANIZATION}/clusters/main/machines"):
            rest = seen.path.removeprefix(f"{ORGANIZATION}/clusters/main/machines").strip("/")
            return self._machines(rest.split("/"))
        return problem(404, "There is nothing at this address.")

    def _runs(self, seen: Seen, names: list[str]) -> tuple[int, Any, dict[str, str]]:
        if names == [""]:
            return self._create(seen) if seen.method == "POST" else self._list(seen.query)
        name = unquote(names[0])
        if name in self._going:
            self._going[name] -= 1
            if self._going[name] <= 0:
                del self._going[name]
                self.runs.pop(name, None)
        if name not in self.runs:
            return problem(404, f"There is no run {name} here.")
        return self._run(seen, name, names[1:])

    def _create(self, seen: Seen) -> tuple[int, Any, dict[str, str]]:
        if "dry_run" in seen.query:
            return 200, {"placement": {"text": "gpu-01 and gpu-02, one InfiniBand fabric"}}, {}
        name = seen.body["metadata"]["name"]
        if name in self.runs:
            return problem(409, f"There is already a run {name}.")
        self.add_run(name, "Pending")
        return 201, self.runs[name], {}

    def _list(self, query: dict[str, str]) -> tuple[int, Any, dict[str, str]]:
        states = query["state"].split(",") if "state" in query else None
        found = [run for run in self.runs.values() if states is None or run["status"]["state"] in states]
        start = int(query.get("cursor", "0"))
        end = start + min(int(query.get("limit", "1000")), self.page_size)
        return 200, {"items": found[start:end], "next": str(end) if end < len(found) else None}, {}

    def _run(self, seen: Seen, name: str, rest: list[str]) -> tuple[int, Any, dict[str, str]]:
        if seen.method == "DELETE":
            self._going[name] = self.polls_until_gone
            return 202, None, {}
        if rest == ["stop"]:
            self.runs[name]["status"]["state"] = "Stopping"
        if rest == ["events"]:
            return 200, {"items": self.events.get(name, []), "next": None}, {}
        if rest == ["metrics"]:
            return 200, {"items": self.metrics.get(name, []), "next": None}, {}
        if rest == ["explanation"]:
            return 200, self.explanations[name], {}
        return 200, self.runs[name], {}

    def _workers(self, names: list[str]) -> tuple[int, Any, dict[str, str]]:
        if names[0] not in self.workers:
            return problem(404, f"There is no worker {names[0]} here.")
        if names[1:] == ["explanation"]:
            return 200, self.explanations[names[0]], {}
        return 200, self.workers[names[0]], {}

    def _machines(self, names: list[str]) -> tuple[int, Any, dict[str, str]]:
        if names == [""]:
            return 200, {"items": list(self.machines.values()), "next": None}, {}
        if names[0] not in self.machines:
            return problem(404, f"There is no machine {names[0]} in main.")
        return 200, self.machines[names[0]], {}


def problem(
    status: int, detail: str, errors: list[dict[str, str]] | None = None
) -> tuple[int, Any, dict[str, str]]:
    body = {"type": "about:blank", "title": "", "status": status, "detail": detail, "errors": errors or []}
    return status, body, {"content-type": "application/problem+json"}


class _Handler(BaseHTTPRequestHandler):
    console: FakeConsole
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        length = int(self.headers.get("content-length", "0"))
        text = self.rfile.read(length)
        seen = Seen(
            self.command,
            parts.path,
            {name: values[0] for name, values in parse_qs(parts.query).items()},
            {name.lower(): value for name, value in self.headers.items()},
            json.loads(text) if text else None,
        )
        self.console.seen.append(seen)
        status, body, headers = self.console.answer(seen)
        if status == 200 and seen.path.endswith("/logs"):
            self._stream(seen)
        else:
            self._send(status, body, headers)

    do_GET = do_POST = do_DELETE = do_PATCH = _handle  # noqa: N815 - the names http.server looks for

    def _send(self, status: int, body: Any, headers: dict[str, str]) -> None:
        text = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in ({"content-type": "application/json"} | headers).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _stream(self, seen: Seen) -> None:
        worker = seen.path.split("/")[-2]
        attempt = int(seen.query.get("attempt", self.console.newest[worker]))
        log = self.console.logs.get((worker, attempt), Log())
        start = self._start(log, seen.query)
        self.send_response(200)
        self.send_header("content-type", "text/plain; charset=utf-8")
        self.send_header("x-log-offset", str(start))
        self.send_header("x-log-attempt", str(attempt))
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        # A question for the newest attempt alone is not what a test wants to cut.
        cut = self.console.cuts.pop(0) if self.console.cuts and seen.query.get("tail") != "0" else None
        if self._pump(log, start, follow="follow" in seen.query, cut=cut):
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.close_connection = True

    def _start(self, log: Log, query: dict[str, str]) -> int:
        if "offset" in query:
            return max(int(query["offset"]) - self.console.rewind, 0)
        if "tail" in query:
            lines = log.data.splitlines(keepends=True)
            kept = lines[len(lines) - int(query["tail"]) :] if int(query["tail"]) else []
            return len(log.data) - sum(map(len, kept))
        return 0

    def _pump(self, log: Log, position: int, *, follow: bool, cut: int | None) -> bool:
        """False when the connection is to break off."""
        while True:
            with log.changed:
                piece = log.data[position:]
                if not piece:
                    if log.closed or not follow:
                        return True
                    log.changed.wait(10)
                    continue
            broken = cut is not None and len(piece) >= cut
            piece = piece[:cut] if broken else piece
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if piece else b"")
            self.wfile.flush()
            if broken:
                self.console.answers += self.console.answers_after_cut
                self.console.answers_after_cut.clear()
                return False
            position += len(piece)
            cut = cut - len(piece) if cut is not None else None


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)
