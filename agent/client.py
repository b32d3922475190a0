"""The agent's HTTP: JSON and log bytes to the console, its refusals as exceptions."""

import ipaddress
from email.utils import parsedate_to_datetime
from time import time
from typing import TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, ValidationError

from agent import VERSION

Answer = TypeVar("Answer", bound=BaseModel)
_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
_IDLE_SECONDS = 120.0


class ConsoleError(Exception):
    """The console wasn't reached, or refused. `status` is None without an answer."""

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class Console:
    """Safe to use from several threads; each request in flight has a connection of its own, kept alive."""

    def __init__(
        self, server: str, credential: str | None = None, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.server = server.rstrip("/")
        headers = {"User-Agent": f"astraeus-agent/{VERSION}"}
        if credential:
            headers["Authorization"] = f"Bearer {credential}"
        self._http = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
            limits=httpx.Limits(keepalive_expiry=_IDLE_SECONDS),
            trust_env=not is_loopback(server),  # a proxy of the environment doesn't lead to this machine
            transport=transport,
        )

    def send(self, path: str, message: BaseModel, answer: type[Answer], *, wait_seconds: float = 0) -> Answer:
        """Raises ConsoleError. `wait_seconds`: how long the console may hold its answer."""
        return self._post(path, message.model_dump_json().encode(), "application/json", answer, wait_seconds)

    def send_bytes(self, path: str, body: bytes, answer: type[Answer]) -> Answer:
        return self._post(path, body, "application/octet-stream", answer, 0)

    def _post(self, path: str, body: bytes, kind: str, answer: type[Answer], wait_seconds: float) -> Answer:
        timeout = httpx.Timeout(_ANSWER_SECONDS + wait_seconds, connect=_CONNECT_SECONDS)
        try:
            response = self._http.post(
                self.server + path, content=body, headers={"Content-Type": kind}, timeout=timeout
            )
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ConsoleError(f"{self.server} is out of reach: {_cause(error)}") from error
        if not response.is_success:
            raise _refusal(response)
        try:
            return answer.model_validate_json(response.content)
        except ValidationError as error:
            raise ConsoleError(f"{self.server} answered something else than a console does") from error

    def clock(self) -> float:
        """The console's clock, to the second. Raises ConsoleError."""
        try:
            response = self._http.get(self.server + "/healthz")
            return parsedate_to_datetime(response.headers["date"]).timestamp()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ConsoleError(f"{self.server} is out of reach: {_cause(error)}") from error
        except (KeyError, ValueError) as error:
            raise ConsoleError(f"{self.server} doesn't say what time it is") from error

    def close(self) -> None:
        self._http.close()


def is_loopback(server: str) -> bool:
    host = urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _cause(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text.removeprefix("[Errno 111] ")


def _refusal(response: httpx.Response) -> ConsoleError:
    """problem+json carries a sentence in `detail`."""
    try:
        document = response.json()
        detail = str(document["detail"]) if isinstance(document, dict) and document.get("detail") else ""
    except ValueError:
        detail = ""
    status = response.status_code
    message = detail or f"the console answered {status} {response.reason_phrase}"
    return ConsoleError(message[:500], status=status, retry_after=_retry_after(response))


def _retry_after(response: httpx.Response) -> float | None:
    value = response.headers.get("retry-after")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time())
    except ValueError:
        return None
