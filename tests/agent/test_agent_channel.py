"""The channel against a console that answers as each test says: late, twice, out of order, or not at all."""

import json
import random
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from agent.backoff import LONGEST, SHORTEST, Backoff
from agent.channel import Channel, Heard, Identity, digest_of
from agent.client import Console, ConsoleError, is_loopback
from agent.desired_state import Applied, DesiredState
from tests.agent.agents import eventually, worker
from wire.agent_messages import Observed, SyncAnswer, SyncRequest
from wire.assignments import Desired
from wire.inventory import Inventory

OBSERVED = Observed(inventory=Inventory(cpu_cores=8, memory_bytes=1 << 34))


class Script:
    """Answers by `answer`, which sees every request; what the channel applies is in `applied`."""

    def __init__(self, tmp_path: Path, answer: Callable[[SyncRequest], SyncAnswer | httpx.Response]) -> None:
        self.requests: list[SyncRequest] = []
        self.applied: list[Desired] = []
        self.observed = OBSERVED
        self.heard = tmp_path / "heard"
        self._answer = answer
        self._ended = threading.Event()
        self.channel = Channel(
            console=Console("http://127.0.0.1", "c", transport=httpx.MockTransport(self._handle)),
            identity=Identity("boot", "instance", "bubblewrap", False, lambda: "10.0.0.1"),
            state=DesiredState(tmp_path / "desired.json"),
            heard=Heard(self.heard),
            observe=lambda: self.observed,
            apply=self.applied.append,
            confirm=lambda: None,
            preparing=lambda: False,
        )

    def _handle(self, request: httpx.Request) -> httpx.Response:
        asked = SyncRequest.model_validate_json(request.content)
        self.requests.append(asked)
        answer = self._answer(asked)
        if isinstance(answer, httpx.Response):
            return answer
        if answer.desired is None and asked.wait_seconds:
            self._ended.wait(0.3)  # a poll is held
        return httpx.Response(200, json=json.loads(answer.model_dump_json()))

    def close(self) -> None:
        self._ended.set()
        self.channel.close()


@pytest.fixture
def script(tmp_path: Path, request: pytest.FixtureRequest):
    scripts: list[Script] = []

    def make(answer: Callable[[SyncRequest], SyncAnswer | httpx.Response]) -> Script:
        scripts.append(Script(tmp_path, answer))
        scripts[-1].channel.start()
        return scripts[-1]

    yield make
    for one in scripts:
        one.close()


def stored(request: SyncRequest) -> str:
    return request.digest


def test_desired_states_are_applied_once_and_never_backwards(script) -> None:
    answers = iter([3, 2, 3, 1, 5, 4])

    def answer(request: SyncRequest) -> SyncAnswer:
        revision = next(answers, 5)
        desired = Desired(assignments=(worker(f"r{revision}"),))
        return SyncAnswer(revision=revision, desired=desired, stored_digest=stored(request))

    run = script(answer)
    eventually(lambda: len(run.requests) > 6, "six answers")
    assert [desired.assignments[0].id for desired in run.applied] == ["r3", "r5"]


def test_what_the_console_warns_of_is_logged_once_each_time_it_begins(script, caplog) -> None:
    warnings = ["", "Two agents.", "Two agents.", "", "Two agents."]

    def answer(request: SyncRequest) -> SyncAnswer:
        warning = warnings[min(len(run_requests), len(warnings) - 1)]
        run_requests.append(request)
        return SyncAnswer(revision=0, stored_digest=stored(request), warning=warning)

    run_requests: list[SyncRequest] = []
    run = script(answer)
    eventually(lambda: len(run_requests) > len(warnings), "all answers")
    run.close()
    told = [record.getMessage() for record in caplog.records if "console says" in record.getMessage()]
    assert told == ["the console says: Two agents."] * 2


def test_sequence_numbers_rise_over_both_connections(script) -> None:
    run = script(lambda request: SyncAnswer(revision=0, stored_digest=stored(request)))
    for cores in range(9, 14):
        run.observed = Observed(inventory=Inventory(cpu_cores=cores, memory_bytes=1))
        run.channel.changed()
        eventually(
            lambda: run.requests and run.requests[-1].digest == digest_of(run.observed), "the change reported"
        )
    numbers = [request.sequence for request in run.requests]
    assert sorted(set(numbers)) == sorted(numbers)
    assert {request.instance for request in run.requests} == {"instance"}


def test_the_observation_is_sent_when_the_console_lacks_it_and_only_then(script) -> None:
    run = script(lambda request: SyncAnswer(revision=0, stored_digest=stored(request)))
    eventually(lambda: len(run.requests) >= 3, "three polls")
    assert run.requests[0].observed == OBSERVED
    assert [request.observed for request in run.requests[1:]] == [None] * (len(run.requests) - 1)


def test_a_console_that_lost_the_observation_gets_it_again(script) -> None:
    def answer(request: SyncRequest) -> SyncAnswer:
        lost = len(run_requests()) < 4
        return SyncAnswer(revision=0, stored_digest=None if lost else stored(request))

    def run_requests() -> list[SyncRequest]:
        return holder[0].requests if holder else []

    holder: list[Script] = []
    holder.append(script(answer))
    run = holder[0]
    eventually(lambda: sum(request.observed is not None for request in run.requests) >= 2, "sent again")


def test_a_change_is_reported_while_the_poll_is_held(script) -> None:
    run = script(lambda request: SyncAnswer(revision=0, stored_digest=stored(request)))
    eventually(lambda: run.requests and run.requests[-1].observed is None, "an unchanged poll")
    run.observed = Observed(inventory=Inventory(cpu_cores=9, memory_bytes=1))
    run.channel.changed()
    report = eventually(lambda: [r for r in run.requests if r.observed == run.observed], "the report")[0]
    assert report.wait_seconds == 0 or report.sequence > 1


def test_a_restarted_agent_goes_on_from_the_revision_on_disk(script, tmp_path: Path) -> None:
    DesiredState(tmp_path / "desired.json").write(Applied(revision=7, desired=Desired()))
    run = script(lambda request: SyncAnswer(revision=7, stored_digest=stored(request)))
    eventually(lambda: run.requests, "a request")
    assert run.requests[0].applied_revision == 7


def test_a_console_from_the_past_changes_nothing(
    script, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    DesiredState(tmp_path / "desired.json").write(Applied(revision=7, desired=Desired()))
    run = script(
        lambda request: SyncAnswer(revision=5, desired=Desired(), stored_digest=stored(request)),
    )
    eventually(lambda: "gone back in time" in caplog.text, "the error in the log")
    assert run.applied == []


def test_a_console_that_holds_no_poll_is_not_asked_in_a_loop(script) -> None:
    def answer(request: SyncRequest) -> SyncAnswer:
        return SyncAnswer(revision=0, desired=Desired(), stored_digest=stored(request))

    run = script(answer)
    eventually(lambda: len(run.requests) >= 5, "five requests")
    assert not threading.Event().wait(1)
    assert len(run.requests) < 12


def test_heard_is_when_the_answered_request_was_sent(script) -> None:
    run = script(lambda request: SyncAnswer(revision=0, stored_digest=stored(request)))
    first = run.heard.read_text()
    eventually(lambda: run.heard.read_text() != first, "the time of a later answer")
    assert float(run.heard.read_text()) > float(first)


def test_an_unreachable_console_leaves_heard_alone(script) -> None:
    run = script(lambda _: httpx.Response(503, headers={"Retry-After": "0"}))
    first = run.heard.read_text()
    eventually(lambda: len(run.requests) > 2, "requests")
    assert run.heard.read_text() == first


# --- waiting


def test_backoff_doubles_and_ends_at_its_ceiling() -> None:
    backoff = Backoff(random.Random(1))
    waits = [backoff.next() for _ in range(12)]
    assert all(SHORTEST <= wait <= LONGEST for wait in waits)
    assert waits[0] == SHORTEST
    assert min(waits[-4:]) >= LONGEST / 2
    backoff.reset()
    assert backoff.next() == SHORTEST


def test_backoff_waits_as_long_as_it_is_asked_to() -> None:
    assert 7 <= Backoff(random.Random(1)).next(7) <= 8
    assert Backoff(random.Random(1)).next(1e9) <= 301


@pytest.mark.parametrize(
    ("headers", "retry_after"),
    [
        ({"Retry-After": "12"}, 12.0),
        ({"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], retry_after: float | None) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(429, headers=headers, json={"detail": "Slow."}))
    console = Console("http://127.0.0.1", transport=transport)
    with pytest.raises(ConsoleError, match=r"^Slow\.$") as caught:
        console.send_bytes("/x", b"", SyncAnswer)
    assert (caught.value.status, caught.value.retry_after) == (429, retry_after)


@pytest.mark.parametrize(
    ("server", "loopback"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://[::1]:8000", True),
        ("http://localhost", True),
        ("http://console.example.com", False),
        ("http://10.0.0.1", False),
    ],
)
def test_is_loopback(server: str, loopback: bool) -> None:
    assert is_loopback(server) is loopback
