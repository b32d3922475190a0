"""`astra astraeus why`: an explanation as the server gives it, laid out; of now, or of a time that is past."""

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from astra.errors import UsageError
from astra.typed import read_time

HERE = timezone(timedelta(hours=2))
NOW = datetime(2026, 3, 1, 14, 10, tzinfo=HERE)

WAITING = {
    "run": "ddp",
    "state": "Pending",
    "kind": "fit",
    "cause": "no_fabric_room",
    "headline": "2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-01).",
    "pass": 18204,
    "at": None,
    "causes": [
        {"kind": "order", "met": True, "text": "Nothing goes first: number 1 in the queue."},
        {"kind": "fit", "met": False, "text": "No set of machines can hold it now."},
        {
            "kind": "policy",
            "met": True,
            "text": "Within quota: 36 of 64 GPUs of pool h100 in use; 16 asked.",
        },
    ],
    "queue": {"position": 1, "text": "…", "ahead": [], "reservation": None},
    "changes": [
        {
            "code": "healthy_only_off",
            "kind": "request",
            "text": "Only healthy GPUs: off",
            "result": "gpu-01 and gpu-03, one InfiniBand fabric",
            "patch": {"spec": {}},
            "action": None,
            "placement": {"text": "gpu-01 and gpu-03, one InfiniBand fabric"},
        }
    ],
    "changes_tried": 22,
    "when": {
        "at": "2026-03-01T14:05:00Z",
        "text": "At the latest 14:05 UTC, when eval-3 reaches its time limit.",
    },
    "domains": [
        {
            "kind": "fabric",
            "name": "ib-a",
            "on_fabric": None,
            "found": 1,
            "needed": 2,
            "machines": ["gpu-01"],
        }
    ],
    "domains_left_out": 0,
    "machines": [
        {
            "group": "Ready for this run",
            "codes": [],
            "numbers": {},
            "machines": ["gpu-01"],
            "text": "8 of 8 GPUs free",
        }
    ],
    "placement": None,
    "policy": None,
    "history": [
        {
            "kind": "order",
            "cause": "reserved",
            "text": "big goes first.",
            "since": None,
            "until": None,
            "seconds": 540,
        },
        {
            "kind": "fit",
            "cause": "no_fabric_room",
            "text": "Too few.",
            "since": None,
            "until": None,
            "seconds": 180,
        },
    ],
}

SHOWN = """\
2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-01).
As of pass 18204

ok  Order    Nothing goes first: number 1 in the queue.
no  Fit      No set of machines can hold it now.
ok  Policy   Within quota: 36 of 64 GPUs of pool h100 in use; 16 asked.

What would start it now
  Only healthy GPUs: off  -> gpu-01 and gpu-03, one InfiniBand fabric

When
  At the latest 14:05 UTC, when eval-3 reaches its time limit.

Domains
  ib-a  1 of 2 found

Machines
  Ready for this run (1)
    gpu-01  8 of 8 GPUs free

History
    9 min  order  big goes first.
    3 min  fit    Too few.
"""


def test_everything_that_the_server_tells_is_laid_out(astra, console):
    console.add_run("ddp", "Pending", workers=1)
    console.explanations["ddp"] = WAITING
    shown = astra("astraeus", "why", "ddp").stdout
    assert [line.split() for line in shown.splitlines()] == [line.split() for line in SHOWN.splitlines()]


def test_programs_get_the_server_s_answer(astra, console):
    console.add_run("ddp", "Pending", workers=1)
    console.explanations["ddp"] = WAITING
    assert json.loads(astra("astraeus", "why", "ddp", "-o", "json").stdout) == WAITING
    assert astra("astraeus", "why", "ddp", "-o", "name").stdout == "ddp\n"


@pytest.mark.parametrize("worker", ["ddp-1", "1"])
def test_one_worker_of_a_run(astra, console, worker):
    console.add_run("ddp", "Pending", workers=2)
    console.explanations["ddp-1"] = {"headline": "No fabric has room."}
    assert astra("astraeus", "why", "ddp", worker).stdout == "No fabric has room.\n"
    assert console.seen[-1].path.endswith("/workers/ddp-1/explanation")
    assert astra("astraeus", "why", "ddp", "7").exit_code == 3


def test_a_time_that_is_past_goes_to_the_server_with_its_zone(astra, console):
    console.add_run("ddp", "Running", workers=1)
    console.explanations["ddp"] = {"headline": "Placed on gpu-01, one machine."}
    asked = astra("astraeus", "why", "ddp", "--at", "2026-03-01T14:03:07Z")
    assert asked.stdout == "Placed on gpu-01, one machine.\n"
    sent = datetime.fromisoformat(console.seen[-1].query["at"])
    assert sent == datetime(2026, 3, 1, 14, 3, 7, tzinfo=UTC)


def test_without_a_time_none_is_sent(astra, console):
    console.add_run("ddp", "Pending", workers=1)
    console.explanations["ddp"] = WAITING
    astra("astraeus", "why", "ddp")
    assert console.seen[-1].query == {}


def test_what_is_no_time_is_told(astra, console):
    asked = astra("astraeus", "why", "ddp", "--at", "yesterday")
    assert asked.exit_code == 2
    assert (
        "“yesterday” is not a time. Write 14:03, 2026-03-01 14:03, or 2026-03-01T14:03:07Z." in asked.stderr
    )
    assert console.seen == []


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("14:03", datetime(2026, 3, 1, 14, 3, tzinfo=HERE)),
        ("09:30:15", datetime(2026, 3, 1, 9, 30, 15, tzinfo=HERE)),
        ("12:03Z", datetime(2026, 3, 1, 12, 3, tzinfo=UTC)),
        ("07:03-05:00", datetime(2026, 3, 1, 12, 3, tzinfo=UTC)),
        ("2026-03-01T14:03:07Z", datetime(2026, 3, 1, 14, 3, 7, tzinfo=UTC)),
        ("2026-03-01T14:03:07+05:00", datetime(2026, 3, 1, 9, 3, 7, tzinfo=UTC)),
    ],
)
def test_times_as_people_type_them(typed, meant):
    assert read_time(typed, NOW) == meant


def test_a_date_without_a_zone_is_in_the_reader_s(monkeypatch):
    assert read_time("2026-02-27 09:00") == datetime(2026, 2, 27, 9).astimezone()


@pytest.mark.parametrize("typed", ["", "25:00", "2026-02-30 10:00", "14:03\x1b[31m", "--", "9999-99-99"])
def test_what_is_none(typed):
    with pytest.raises(UsageError, match="is not a time"):
        read_time(typed, NOW)
