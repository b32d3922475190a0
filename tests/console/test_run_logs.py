"""`…/runs/<run>/logs`: all workers' logs as one text, whole lines with names, whatever arrived in which pieces."""

import pytest

from console.streams import who
from runs import merged_log
from runs.models import LogChunk
from tenancy.models import Membership
from tenancy.services import token_create
from tests import factories as make
from tests.support.console import in_console

pytestmark = pytest.mark.django_db(transaction=True)
RUNS = "/api/v1/o/acme/w/vision/runs"


@pytest.fixture
def ask(house):
    """Status and text of the answer to a request of the workspace's viewer."""
    made = {"user": house.vic, "organization": house.organization, "workspace": house.workspace}
    secret = token_create(**made, role="viewer", name="ci").value

    def ask(path: str, method: str = "GET"):
        headers = {"Authorization": f"Bearer {secret}"}
        answer = in_console(lambda client: client.request(method, f"{RUNS}/{path}", headers=headers))
        is_text = answer.headers["content-type"].startswith("text/plain")
        return answer.status_code, answer.text if is_text else answer.json()["detail"]

    return ask


@pytest.fixture
def pair(running):
    """The assignments of a run of two workers."""
    return running.members


@pytest.mark.parametrize("pieces", [1, 8])
def test_whole_lines_in_the_order_in_which_they_arrived(pair, ask, monkeypatch, pieces):
    monkeypatch.setattr(merged_log, "PIECES", pieces)
    for rank, data in ((0, b"a0\na1 be"), (1, b"b0\n\n"), (0, b"gun"), (0, b" and done\nleft"), (1, b"half")):
        make.log_write(pair[rank], data)

    status, text = ask("ddp-resnet50/logs")
    assert status == 200
    assert text.splitlines(keepends=True) == [
        "ddp-resnet50-0 | a0\n",
        "ddp-resnet50-1 | b0\n",
        "ddp-resnet50-1 | \n",
        "ddp-resnet50-0 | a1 begun and done\n",
        "ddp-resnet50-0 | left\n",
        "ddp-resnet50-1 | half\n",
    ]


def test_what_is_no_longer_kept_is_told_and_nothing_before_it_is_lost(pair, ask):
    for data in (b"begin\ncut o", b"ff\n" * 2048, b"tail\n"):
        make.log_write(pair[0], data)
    LogChunk.objects.order_by("id")[1].delete()

    assert ask("ddp-resnet50/logs")[1].splitlines() == [
        "ddp-resnet50-0 | begin",
        "ddp-resnet50-0 | cut o",
        "ddp-resnet50-0 | [6 KiB left out here: the log passed its limit. Its beginning and end are kept.]",
        "ddp-resnet50-0 | tail",
    ]


def test_a_line_without_an_end_fills_no_memory(pair, ask, monkeypatch):
    monkeypatch.setattr(merged_log, "HEAD_BYTES", 10)
    for data in (b"0123456", b"789abc", b"def\n"):
        make.log_write(pair[0], data)

    assert ask("ddp-resnet50/logs")[1] == "ddp-resnet50-0 | 0123456789abc\nddp-resnet50-0 | def\n"


def test_of_one_attempt(pair, house, ask):
    make.log_write(pair[0], b"first words\n")
    make.run_fail(pair[0].attempt)
    second = make.run_place(house, pair[0].attempt.run, [each.machine for each in pair])
    make.log_write(second.assignments.get(worker__rank=1), b"second words\n")

    assert ask("ddp-resnet50/logs") == (200, "ddp-resnet50-1 | second words\n")
    assert ask("ddp-resnet50/logs?attempt=1") == (200, "ddp-resnet50-0 | first words\n")
    assert ask("ddp-resnet50/logs?attempt=9") == (200, "")


def test_what_is_not_there_and_what_may_not_be_asked(pair, ask):
    assert ask("nothing/logs") == (404, "There is no run `nothing` in vision.")
    assert ask("a%00b/logs")[0] == 404
    assert ask("ddp-resnet50/logs", "DELETE") == (405, "Logs are read with GET.")
    assert ask("ddp-resnet50/logs?tail=5") == (400, "`tail` is not a parameter here; it takes attempt.")
    assert ask("ddp-resnet50/logs?attempt=0")[0] == 400


def test_a_stranger_reads_nothing(pair, house):
    made = {"user": house.cyd, "organization": house.organization, "workspace": house.workspace}
    secret = token_create(**made, role="viewer", name="ci").value
    address, headers = f"{RUNS}/ddp-resnet50/logs", {"Authorization": f"Bearer {secret}"}

    assert in_console(lambda client: client.get(address, headers=headers)).status_code == 404
    assert in_console(lambda client: client.get(address)).status_code == 401


def test_a_head_reads_nothing(pair, ask, monkeypatch):
    make.log_write(pair[0], b"words\n")
    monkeypatch.setattr(merged_log.MergedLog, "read", None)
    assert ask("ddp-resnet50/logs", "HEAD") == (200, "")


def test_who_may_no_longer_read_is_told_so_in_the_middle(pair, house, ask, monkeypatch):
    for _ in range(3):
        make.log_write(pair[0], b"words\n")
    monkeypatch.setattr(merged_log, "PIECES", 1)
    monkeypatch.setattr(who, "RIGHTS_SECONDS", -1)
    read = merged_log.MergedLog.read

    def read_and_leave(log):
        Membership.objects.filter(user=house.vic).delete()
        return read(log)

    monkeypatch.setattr(merged_log.MergedLog, "read", read_and_leave)
    words = "[The log goes on, but you may not read it any more.]\n"
    assert ask("ddp-resnet50/logs") == (200, f"ddp-resnet50-0 | words\n{words}")
