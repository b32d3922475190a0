"""The log by line numbers: merged, of one worker, of an attempt, searched; and its page without JavaScript."""

import html
import re
from datetime import UTC, datetime

import pytest
from django.utils.dateparse import parse_datetime

from machines.models import Machine
from runs.models import Assignment, LogChunk
from tests import factories as make

RUN = "/o/acme/w/vision/jobs/main/ddp-resnet50"
WORKER = "/o/acme/w/vision/workers/ddp-resnet50-1"


@pytest.fixture
def pair(house):
    machines = [make.machine_make(house, name) for name in ("gpu-01", "gpu-02")]
    attempt = make.run_place(house, make.run_pending(house), machines)
    make.run_start(attempt)
    return list(attempt.assignments.order_by("worker__rank"))


def _millis(at):
    """As JSON tells it."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def lines(client, query=""):
    return client.get(f"{RUN}/log/lines{query}").json()


def test_lines_are_told_as_they_are_drawn(pair, bea):
    make.log_write(pair[0], b"\x1b[31mred\x1b[0m\n10%\r50%\r100% done\r\nValueError: no\nhalf")
    got = lines(bea, "?worker=ddp-resnet50-0")
    times = [line.pop("at") for line in [*got["lines"], *got["pending"]]]
    plain = {"rank": 0, "error": False, "folded": 0, "left_out": ""}
    assert got == {
        "lines": [
            {**plain, "n": 0, "text": "\x1b[31mred\x1b[0m"},
            {**plain, "n": 1, "text": "100% done", "folded": 2},
            {**plain, "n": 2, "text": "ValueError: no", "error": True},
        ],
        "pending": [{**plain, "n": 3, "text": "half"}],
        "total": 3,
        "attempt": 1,
        "over": False,
        "ends": [],
    }
    arrived = LogChunk.objects.get().at
    assert [time and parse_datetime(time) for time in times] == [_millis(arrived)] * 3 + [None]


def test_the_merged_log_tells_ranks(pair, bea):
    make.log_write(pair[1], b"from one\n")
    make.log_write(pair[0], b"from zero\n")
    assert [(line["rank"], line["text"]) for line in lines(bea)["lines"]] == [
        (1, "from one"),
        (0, "from zero"),
    ]
    page = html.unescape(bea.get(f"{RUN}/log").content.decode())
    assert page.index("from one") < page.index("from zero")
    assert "All, merged" in page
    assert 'href="/api/v1/o/acme/w/vision/runs/ddp-resnet50/logs?attempt=1"' in page
    assert ">Download<" in bea.get(f"{RUN}/log?worker=ddp-resnet50-1").content.decode()


def test_each_attempt_has_its_lines(pair, house, bea):
    make.log_write(pair[0], b"first words\n")
    make.run_fail(pair[0].attempt)
    machines = [each.machine for each in pair]
    second = make.run_place(house, pair[0].attempt.run, machines)
    make.log_write(second.assignments.get(worker__rank=0), b"second words\n")
    assert [line["text"] for line in lines(bea)["lines"]] == ["second words"]
    assert [line["text"] for line in lines(bea, "?attempt=1")["lines"]] == ["first words"]


def test_a_search_finds_text_and_errors(pair, bea):
    make.log_write(pair[0], b"NET/IB : using mlx5_0\nfine\nnet/ib again\nRuntimeError: CUDA\n.*\n")
    for query, numbers in (
        ("text=net/ib", [0, 2]),
        ("", [3]),
        ("text=.*", [4]),
        ("text=net/ib&first=1", [2]),
    ):
        assert bea.get(f"{RUN}/log/search?{query}").json() == {"numbers": numbers, "next": None, "total": 5}


def test_folds_are_told_with_the_line_that_stands_for_them(pair, bea):
    make.log_write(pair[1], b"begin\nstep 1\nstep 2\nstep 3\nError: 1\nError: 2\nError: 3\n")
    got = bea.get(f"{RUN}/log/folds?worker=ddp-resnet50-1").json()
    [fold] = got.pop("folds")
    assert got == {"read": 7, "more": False}
    assert (fold["first"], fold["count"]) == (1, 3)
    assert (fold["line"]["n"], fold["line"]["rank"], fold["line"]["text"]) == (3, 1, "step 3")


def test_below_the_last_line_stands_how_it_ended_and_what_may_still_arrive(pair, bea):
    make.run_fail(pair[0].attempt, code=137)
    Assignment.objects.filter(id=pair[0].id).update(exit={"kind": "exited", "code": 0})
    away = pair[1].machine
    Machine.objects.filter(id=away.id).update(unreachable_at=datetime(2026, 3, 1, 14, 2, tzinfo=UTC))
    Assignment.objects.filter(id=pair[1].id).update(log_final=None)
    told = [(each["who"], each["text"]) for each in lines(bea)["ends"]]
    later = "gpu-02 is unreachable since 14:02 UTC; what it prints arrives later."
    assert told == [("ddp-resnet50-1 ended", "code 137: killed"), ("", later)]
    page = html.unescape(bea.get(f"{RUN}/log?worker=ddp-resnet50-1").content.decode())
    assert re.search(r"<li>Ended <time [^>]*>\d\d:\d\d:\d\d UTC</time>, code 137: killed</li>", page)
    assert later in page
    [only] = lines(bea, "?worker=ddp-resnet50-0")["ends"]
    assert (only["who"], only["text"]) == ("Ended", "code 0")


@pytest.mark.parametrize("query", ["first=x", "first=--1", "first=99999999999", "count=-1", "attempt=x"])
def test_what_is_no_number_is_told(pair, bea, query):
    assert bea.get(f"{RUN}/log/lines?{query}").status_code == 400


def test_a_log_without_a_line_says_why(pair, bea):
    assert "No output yet." in bea.get(WORKER).content.decode()
    make.run_fail(pair[0].attempt)
    assert "This worker printed nothing." in bea.get(WORKER).content.decode()


def test_an_unknown_worker_has_no_lines(pair, bea):
    assert lines(bea, "?worker=nobody-0")["total"] == 0
