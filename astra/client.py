"""The public client: the only place of `astra` that speaks HTTP.

Every method raises an AstraError; none prints. Several threads may use one client at once, as with httpx.
"""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Self
from urllib.parse import quote

import httpx

from astra.config import Target
from astra.errors import (
    AstraError,
    BusyError,
    DroppedError,
    FailedError,
    FieldError,
    InvalidDocumentError,
    NotFoundError,
    RefusedError,
    UnreachableError,
    UsageError,
)
from astra.terminal import clean

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 60.0
"""Also how long a followed log may be silent before it is asked for again: that finds dead connections."""
PAGE = 500
"""Items a page: the most that the server gives."""
TRIES = 3
LONGEST_PAUSE = 10.0
_COME_BACK = frozenset({429, 502, 503, 504})
_INVALID = frozenset({400, 422})
_KINDS: dict[int, tuple[type[AstraError], str]] = {
    401: (RefusedError, "The token is not accepted. Run `astra login`, or check ASTRAEUS_TOKEN."),
    403: (RefusedError, "Your role does not allow this."),
    404: (NotFoundError, "There is nothing of that name that you may see."),
}
"""Kinds of refusal, with the sentence for an answer that brings none."""
_LONGEST_NAME = 253

Filters = Mapping[str, str | list[str]]


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which part of a worker's log. `offset` counts bytes of the attempt's log, instead of tail and since."""

    follow: bool = False
    tail: int | None = None
    since: str | None = None
    attempt: int | None = None
    offset: int | None = None

    def params(self) -> dict[str, str]:
        values = {"tail": self.tail, "since": self.since, "attempt": self.attempt, "offset": self.offset}
        follow = {"follow": "true"} if self.follow else {}
        return {name: str(value) for name, value in values.items() if value is not None} | follow


@dataclass(frozen=True, slots=True)
class LogBody:
    """An open log: `offset` is the absolute place of the first byte of `chunks`; None: no attempt has one yet."""

    attempt: int | None
    offset: int
    chunks: Iterator[bytes]


class Client:
    def __init__(
        self,
        target: Target,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.target = target
        self._sleep = sleep
        organization, workspace = target.organization, target.workspace_slug
        self._organization_url = f"{target.server}/api/v1/o/{organization}"
        self._workspace_url = f"{self._organization_url}/w/{workspace}"
        self._http = httpx.Client(
            headers={
                "authorization": f"Bearer {target.token}",
                "accept": "application/json",
                "user-agent": "astra",
            },
            timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            # Following a run holds a connection for each worker.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=8),
            transport=transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    # --- Runs --------------------------------------------------------------------------------------

    def run_create(self, document: Mapping[str, Any], *, dry_run: bool = False) -> Any:
        """The new run; with `dry_run` the placement or explanation it would get. Safe to repeat."""
        headers = {"idempotency-key": str(uuid.uuid4())}
        params = {"dry_run": "true"} if dry_run else {}
        return self._call("POST", self._runs(), json=document, headers=headers, params=params)

    def runs(self, limit: int | None = None, filters: Filters | None = None) -> Iterator[Any]:
        """Runs, newest first, page after page, at most `limit`. Filters: state, label (several), q, cluster."""
        return islice(self._pages(self._runs(), filters, min(limit or PAGE, PAGE)), limit)

    def run_get(self, run: str) -> Any:
        return self._call("GET", self._runs(run))

    def run_delete(self, run: str) -> None:
        """Asks for it; the run is gone when `run_get` no longer finds it."""
        self._call("DELETE", self._runs(run))

    def run_stop(self, run: str) -> Any:
        return self._call("POST", self._runs(run, "stop"))

    def run_restart(self, run: str) -> Any:
        return self._call("POST", self._runs(run, "restart"))

    def run_explanation(self, run: str, at: str | None = None) -> Any:
        """`at`: an RFC 3339 time; the judgement that was in force then."""
        return self._call("GET", self._runs(run, "explanation"), params={"at": at} if at else {})

    def run_events(self, run: str) -> Iterator[Any]:
        return self._pages(self._runs(run, "events"))

    def run_metrics(self, run: str, filters: Filters | None = None) -> Iterator[Any]:
        """A series for each metric and worker. Filters: name and worker (several), from_step, points."""
        return self._pages(self._runs(run, "metrics"), filters)

    # --- Workers -----------------------------------------------------------------------------------

    def worker_get(self, worker: str) -> Any:
        return self._call("GET", self._workers(worker))

    def worker_explanation(self, worker: str, at: str | None = None) -> Any:
        return self._call("GET", self._workers(worker, "explanation"), params={"at": at} if at else {})

    def worker_attempt(self, worker: str) -> int | None:
        """The newest attempt that has a log of this worker."""
        with self.worker_log(worker, LogQuery(tail=0)) as body:
            return body.attempt

    @contextmanager
    def worker_log(self, worker: str, query: LogQuery) -> Iterator[LogBody]:
        """DroppedError while reading means that the connection broke, not that the log ended."""
        url = self._workers(worker, "logs")
        headers = {"accept": "text/plain", "accept-encoding": "identity"}
        with (
            self._connection(),
            self._http.stream("GET", url, params=query.params(), headers=headers) as response,
        ):
            if not response.is_success:
                response.read()
                raise self._error(response)
            yield LogBody(
                attempt=_number_of(response, "x-log-attempt"),
                offset=_number_of(response, "x-log-offset") or 0,
                chunks=response.iter_bytes(),
            )

    # --- Machines ----------------------------------------------------------------------------------

    def machines(self, cluster: str, filters: Filters | None = None) -> Iterator[Any]:
        """Machines by name, page after page. Filters: state, label (several), pool, q."""
        return self._pages(self._machines(cluster), filters, PAGE)

    def machine_get(self, cluster: str, machine: str) -> Any:
        return self._call("GET", self._machines(cluster, machine))

    def machine_act(self, cluster: str, machine: str, action: str, body: Mapping[str, Any]) -> Any:
        """`action` is cordon, uncordon or drain."""
        return self._call("POST", self._machines(cluster, machine, action), json=body)

    def machine_change(
        self, cluster: str, machine: str, change: Mapping[str, Any], *, dry_run: bool = False
    ) -> Any:
        params = {"dry_run": "true"} if dry_run else {}
        return self._call("PATCH", self._machines(cluster, machine), json=change, params=params)

    # --- Tokens ------------------------------------------------------------------------------------

    def tokens(self) -> Iterator[Any]:
        return self._pages(self._tokens(), page_size=PAGE)

    def token_create(self, order: Mapping[str, Any]) -> Any:
        """The new token with its `secret`, which no later answer has."""
        return self._call("POST", self._tokens(), json=order)

    def token_revoke(self, token: int) -> Any:
        return self._call("DELETE", self._tokens(str(token)))

    # --- How ---------------------------------------------------------------------------------------

    def _runs(self, *names: str) -> str:
        return _join(self._workspace_url, "runs", *names)

    def _workers(self, *names: str) -> str:
        return _join(self._workspace_url, "workers", *names)

    def _tokens(self, *names: str) -> str:
        return _join(self._workspace_url, "tokens", *names)

    def _machines(self, cluster: str, *names: str) -> str:
        return _join(self._organization_url, "clusters", cluster, "machines", *names)

    def _pages(self, url: str, filters: Filters | None = None, page_size: int | None = None) -> Iterator[Any]:
        params = dict(filters or {}) | ({"limit": str(page_size)} if page_size else {})
        while True:
            page = self._call("GET", url, params=params)
            items = page.get("items") if isinstance(page, dict) else None
            if not isinstance(items, list):
                raise self._foreign()
            yield from items
            cursor = page.get("next")
            if not cursor or not items or cursor == params.get("cursor"):
                return
            params["cursor"] = str(cursor)

    def _call(self, method: str, url: str, **request: Any) -> Any:
        """The JSON of the answer (None when it is empty).

        A request that can't do harm twice is sent again when the server is busy or the connection breaks.
        """
        repeatable = method in {"GET", "DELETE"} or "idempotency-key" in request.get("headers", {})
        for attempt in range(1, TRIES + 1):
            try:
                return self._once(method, url, **request)
            except (BusyError, DroppedError) as error:
                if not repeatable or attempt == TRIES:
                    raise
                asked = error.retry_after if isinstance(error, BusyError) else None
                self._sleep(min(asked or 0.5 * 2**attempt, LONGEST_PAUSE))
        raise AssertionError  # the loop returns or raises

    def _once(self, method: str, url: str, **request: Any) -> Any:
        with self._connection():
            response = self._http.request(method, url, **request)
        if not response.is_success:
            raise self._error(response)
        if not response.content:
            return None
        try:
            return response.json()
        except ValueError:
            raise self._foreign() from None

    @contextmanager
    def _connection(self) -> Iterator[None]:
        server = self.target.server
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            reason = clean(error) or "no answer"
            raise UnreachableError(f"{server} can't be reached: {reason}.") from error
        except httpx.ReadTimeout as error:
            raise DroppedError(f"{server} did not answer within {ANSWER_SECONDS:.0f} s.") from error
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise UsageError(f"{server} is no address that can be used: {clean(error)}.") from error
        except httpx.HTTPError as error:
            raise DroppedError(f"The connection to {server} broke: {clean(error)}.") from error

    def _foreign(self) -> AstraError:
        return FailedError(
            f"{self.target.server} does not answer as an Astraeus console does. Is the address right?"
        )

    def _error(self, response: httpx.Response) -> AstraError:
        status, server = response.status_code, self.target.server
        problem = _problem(response)
        text = clean(problem.get("detail") or problem.get("title") or "")
        if response.is_redirect:
            where = clean(response.headers.get("location", "another address"))
            return FailedError(f"{server} points to {where}. Run `astra login` with that address.")
        if status in _COME_BACK:
            return BusyError(text or f"{server} is not ready (it answers {status}).", _retry_after(response))
        if status in _INVALID:
            errors = _field_errors(problem)
            fallback = UsageError(text or f"{server} did not understand the request ({status}).")
            return InvalidDocumentError(errors) if errors else fallback
        kind, otherwise = _KINDS.get(status, (FailedError, f"{server} answered {status}."))
        return kind(text or otherwise)


def _join(base: str, *names: str) -> str:
    """Names come from the command line: one that would change the address's meaning is no name."""
    for name in names:
        if not name.strip(".") or len(name) > _LONGEST_NAME or clean(name) != name:
            raise UsageError(f"“{clean(name)[:60]}” is not a name.")
    return "/".join((base, *(quote(name, safe="") for name in names)))


def _number_of(response: httpx.Response, header: str) -> int | None:
    value = response.headers.get(header, "")
    return int(value) if value.isascii() and value.isdigit() else None


def _problem(response: httpx.Response) -> dict[str, Any]:
    try:
        data = response.json()
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def _field_errors(problem: Mapping[str, Any]) -> list[FieldError]:
    errors = problem.get("errors")
    if not isinstance(errors, list):
        return []
    return [
        FieldError(clean(error.get("path", "")), clean(error.get("message", "")))
        for error in errors
        if isinstance(error, dict)
    ]


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds; the form with a date is not worth its code."""
    return _number_of(response, "retry-after")
