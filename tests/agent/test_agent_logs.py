"""Log shipping against a console that answers as each test says."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import httpx
import pytest

from agent.client import Console
from agent.journal import Entry, Journal
from agent.logs import LogShipper
from agent.workers import Tail
from tests.agent.agents import eventually, worker
from wire.agent_messages import LOG_CHUNK_BYTES, LOG_REQUEST_BYTES, LogChunkHeader, LogsAnswer, LogsHeader


class Logs:
    """The part of Workers that the shipper uses."""

    def __init__(self) -> None:
        self.all: dict[str, Tail] = {}
        self.shipped: list[str] = []

    def tails(self) -> list[Tail]:
        return [tail for name, tail in self.all.items() if name not in self.shipped]

    def logs_shipped(self, names: Iterable[str]) -> None:
        self.shipped += names


class Shipping:
    def __init__(self, tmp_path: Path) -> None:
        self.journal = Journal(tmp_path)
        self.logs = Logs()
        self.stored: dict[str, bytes] = {}
        self.requests: list[list[LogChunkHeader]] = []
        self.body_sizes: list[int] = []
        self.answer: Callable[[dict[str, int]], LogsAnswer | httpx.Response] = lambda n: LogsAnswer(next=n)
        console = Console("http://127.0.0.1", "c", transport=httpx.MockTransport(self._handle))
        self.shipper = LogShipper(console, self.logs, clock=lambda: 1.0)

    def add(self, name: str, data: bytes, *, final: bool = False) -> Entry:
        entry = self.journal.create(worker(name))
        (entry.path / "log").write_bytes(data)
        self.logs.all[name] = Tail(entry, final=final)
        return entry

    def _handle(self, request: httpx.Request) -> httpx.Response:
        line, _, data = request.content.partition(b"\n")
        chunks = LogsHeader.model_validate_json(line).chunks
        self.body_sizes.append(len(request.content))
        self.requests.append(list(chunks))
        following = {}
        for chunk in chunks:
            piece, data = data[: chunk.size], data[chunk.size :]
            have = self.stored.get(chunk.assignment, b"")
            if chunk.offset <= len(have) < chunk.offset + chunk.size:
                have = have[: chunk.offset] + piece
            self.stored[chunk.assignment] = have
            following[chunk.assignment] = len(have)
        assert data == b""
        answer = self.answer(following)
        if isinstance(answer, httpx.Response):
            return answer
        return httpx.Response(200, content=answer.model_dump_json())


@pytest.fixture
def shipping(tmp_path: Path) -> Iterator[Shipping]:
    shipping = Shipping(tmp_path)
    yield shipping
    shipping.shipper.close()


def test_a_long_log_goes_out_in_chunks_and_requests_of_bounded_size(shipping: Shipping) -> None:
    data = bytes(range(256)) * (3 * LOG_REQUEST_BYTES // 256) + b"end"
    shipping.add("a1", data, final=True)
    shipping.shipper.start()
    eventually(lambda: shipping.logs.shipped == ["a1"], "the whole log")
    assert shipping.stored["a1"] == data
    assert max(shipping.body_sizes) <= LOG_REQUEST_BYTES
    assert {chunk.size for request in shipping.requests for chunk in request} == {
        LOG_CHUNK_BYTES,
        len(data) % LOG_CHUNK_BYTES,
    }


def test_one_request_for_all_workers_and_a_loud_one_leaves_room(shipping: Shipping) -> None:
    shipping.add("loud", b"x" * (2 * LOG_REQUEST_BYTES))
    shipping.add("soft", b"soft\n")
    shipping.shipper.start()
    eventually(lambda: shipping.requests, "a request")
    first = shipping.requests[0]
    assert [chunk.assignment for chunk in first[:2]] == ["loud", "soft"]
    assert {chunk.assignment for chunk in first[2:]} == {"loud"}


def test_the_console_may_send_the_agent_back(shipping: Shipping) -> None:
    """A database that was restored knows less than it did."""
    entry = shipping.add("a1", b"0123456789")
    shipping.shipper.start()
    eventually(lambda: shipping.stored.get("a1") == b"0123456789", "the log")
    shipping.stored["a1"] = b"0123"
    with (entry.path / "log").open("ab") as file:
        file.write(b"abc")
    shipping.shipper.wake()
    eventually(lambda: shipping.stored["a1"] == b"0123456789abc", "the log again from where the console is")


def test_a_restarted_agent_begins_where_the_last_one_was(shipping: Shipping) -> None:
    shipping.stored["a1"] = b"01234"
    shipping.add("a1", b"0123456789").shipped_write(5)
    shipping.shipper.start()
    eventually(lambda: shipping.stored["a1"] == b"0123456789", "the rest")
    assert (shipping.requests[0][0].offset, shipping.requests[0][0].size) == (5, 5)


def test_a_log_shipped_by_an_earlier_agent_is_confirmed_before_it_is_dropped(shipping: Shipping) -> None:
    shipping.stored["a1"] = b"0123"
    shipping.add("a1", b"0123456789", final=True).shipped_write(10)
    shipping.shipper.start()
    eventually(lambda: shipping.logs.shipped == ["a1"], "the whole log")
    assert shipping.stored["a1"] == b"0123456789"


def test_an_empty_log_of_an_ended_worker_needs_no_request(shipping: Shipping) -> None:
    shipping.add("a1", b"", final=True)
    shipping.shipper.start()
    eventually(lambda: shipping.logs.shipped == ["a1"], "done")
    assert shipping.requests == []


def test_unknown_assignments_are_dropped(shipping: Shipping) -> None:
    shipping.answer = lambda following: LogsAnswer(next={}, unknown=tuple(following))
    shipping.add("a1", b"0123456789")
    shipping.shipper.start()
    eventually(lambda: shipping.logs.shipped == ["a1"], "dropped")
    assert len(shipping.requests) == 1


def test_refused_logs_come_again(shipping: Shipping) -> None:
    answers = [httpx.Response(503, headers={"Retry-After": "0"}), httpx.Response(500)]
    shipping.answer = lambda following: answers.pop() if answers else LogsAnswer(next=following)
    shipping.add("a1", b"0123456789", final=True)
    shipping.shipper.start()
    eventually(lambda: shipping.logs.shipped == ["a1"], "the whole log")
    assert len(shipping.requests) == 3
