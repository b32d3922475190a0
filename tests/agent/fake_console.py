"""A console that fits in a test: sync, logs and join as wire/agent_messages.py says, in a thread.

`desired` is set by the test; everything the agent says is kept. A log byte that comes at a wrong offset is an
error of the test, and the console may be switched off, slow, or answering 503.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from wire.agent_messages import (
    JOIN_PATH,
    LOGS_PATH,
    SYNC_PATH,
    AssignmentReport,
    JoinAnswer,
    JoinRequest,
    LogsAnswer,
    LogsHeader,
    Observed,
    SyncAnswer,
    SyncRequest,
)
from wire.assignments import Assignment, Desired

CREDENTIAL = "machine-credential"


@dataclass
class Refusal:
    """What the console answers instead, as long as it is set."""

    status: int
    detail: str = ""
    retry_after: str | None = None


@dataclass
class FakeConsole:
    revision: int = 0
    desired: Desired = field(default_factory=Desired)
    observed: Observed | None = None
    digest: str | None = None
    requests: list[SyncRequest] = field(default_factory=list)
    history: dict[str, list[AssignmentReport]] = field(default_factory=dict)
    logs: dict[str, bytearray] = field(default_factory=dict)
    log_requests: int = 0
    unknown_logs: set[str] = field(default_factory=set)
    repeated_bytes: int = 0
    refusal: Refusal | None = None
    join_refusal: Refusal | None = None
    answer_late: float = 0.0
    changed: threading.Condition = field(default_factory=threading.Condition)
    newest_sequence: dict[str, int] = field(default_factory=dict)
    ended: bool = False

    # --- what tests do

    server: ThreadingHTTPServer = field(init=False, repr=False)

    def start(self, port: int = 0) -> "FakeConsole":
        handler = type("Handler", (_Handler,), {"console": self})
        self.server = _Server(("127.0.0.1", port), handler)
        self.server.daemon_threads = True
        self.ended = False
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def stop(self) -> int:
        """End; returns the port, for a restart on the same one."""
        port = self.server.server_port
        with self.changed:
            self.ended = True
            self.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()
        return port

    def want(self, *assignments: Assignment) -> None:
        with self.changed:
            self.revision += 1
            self.desired = Desired(assignments=assignments)
            self.changed.notify_all()

    def report(self, name: str) -> AssignmentReport | None:
        reports = self.observed.assignments if self.observed else ()
        return next((report for report in reports if report.id == name), None)

    def wait(self, condition: Callable[[], Any], what: str, seconds: float = 15) -> Any:
        """The condition's first true value. It is looked at whenever something arrives."""
        deadline = time.monotonic() + seconds
        with self.changed:
            while True:
                value = condition()
                if value:
                    return value
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(
                        f"{what}: not within {seconds} s; the agent last said {self.observed}"
                    )
                self.changed.wait(min(left, 0.2))

    def wait_state(self, name: str, *states: str, seconds: float = 15) -> AssignmentReport:
        def reached() -> AssignmentReport | None:
            report = self.report(name)
            return report if report and report.state in states else None

        report: AssignmentReport = self.wait(reached, f"{name} {states}", seconds)
        return report

    def wait_gone(self, name: str, seconds: float = 15) -> AssignmentReport:
        def gone() -> AssignmentReport | None:
            report = self.report(name)
            return report if report and report.gone else None

        report: AssignmentReport = self.wait(gone, f"{name} gone", seconds)
        return report

    def wait_log(self, name: str, text: str, seconds: float = 15) -> str:
        self.wait(lambda: text in self.log(name), f"{text!r} in the log of {name}", seconds)
        return self.log(name)

    def wait_whole_log(self, name: str) -> str:
        size = self.wait_gone(name).log_size
        self.wait(lambda: len(self.logs.get(name, b"")) >= size, f"the whole log of {name}")
        return self.log(name)

    def log(self, name: str) -> str:
        return bytes(self.logs.get(name, b"")).decode()

    # --- what agents say

    def sync(self, request: SyncRequest) -> SyncAnswer:
        with self.changed:
            self._take(request)
            deadline = time.monotonic() + request.wait_seconds
            while self.revision <= request.applied_revision and not self.ended:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self.changed.wait(left)
            newer = self.revision > request.applied_revision
            return SyncAnswer(
                revision=self.revision, desired=self.desired if newer else None, stored_digest=self.digest
            )

    def _take(self, request: SyncRequest) -> None:
        self.requests.append(request)
        if request.sequence < self.newest_sequence.get(request.instance, -1):
            return
        self.newest_sequence[request.instance] = request.sequence
        if request.observed is not None:
            self.observed, self.digest = request.observed, request.digest
            for report in request.observed.assignments:
                self.history.setdefault(report.id, []).append(report)
        self.changed.notify_all()

    def take_logs(self, body: bytes) -> LogsAnswer:
        line, _, data = body.partition(b"\n")
        header = LogsHeader.model_validate_json(line)
        assert len(data) == sum(chunk.size for chunk in header.chunks)
        following: dict[str, int] = {}
        unknown = []
        with self.changed:
            self.log_requests += 1
            for chunk in header.chunks:
                piece, data = data[: chunk.size], data[chunk.size :]
                if chunk.assignment in self.unknown_logs:
                    unknown.append(chunk.assignment)
                    continue
                stored = self.logs.setdefault(chunk.assignment, bytearray())
                overlap = len(stored) - chunk.offset
                if overlap >= 0:
                    self.repeated_bytes += min(overlap, chunk.size)
                    assert stored[chunk.offset : chunk.offset + chunk.size] == piece[:overlap]
                    stored += piece[overlap:]
                following[chunk.assignment] = len(stored)
            self.changed.notify_all()
        return LogsAnswer(next=following, unknown=tuple(unknown))


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """An agent that is killed drops its connections: nothing to say about that."""


class _Handler(BaseHTTPRequestHandler):
    console: FakeConsole
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet an answer: else the agent's delayed acknowledgement costs 40 ms

    def do_GET(self) -> None:
        self._answer(200, b"ok")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        console = self.console
        time.sleep(console.answer_late)
        refusal = console.join_refusal if self.path == JOIN_PATH else console.refusal
        if refusal:
            self._refuse(refusal)
        elif self.path == JOIN_PATH:
            asked = JoinRequest.model_validate_json(body)
            answer = JoinAnswer(machine=asked.name, cluster="main", credential=CREDENTIAL)
            self._answer(200, answer.model_dump_json().encode())
        elif self.headers["Authorization"] != f"Bearer {CREDENTIAL}":
            self._refuse(Refusal(401, "This credential is not valid."))
        elif self.path == SYNC_PATH:
            self._answer(200, console.sync(SyncRequest.model_validate_json(body)).model_dump_json().encode())
        elif self.path == LOGS_PATH:
            self._answer(200, console.take_logs(body).model_dump_json().encode())

    def _refuse(self, refusal: Refusal) -> None:
        headers = {"Retry-After": refusal.retry_after} if refusal.retry_after else {}
        self._answer(refusal.status, json.dumps({"detail": refusal.detail}).encode(), headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        if self.console.ended:  # a console that is away answers on no connection, old ones included
            self.close_connection = True
            return
        try:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:  # the agent was killed while it waited
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        return
