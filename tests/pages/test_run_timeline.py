"""How attempts spent their time, as the run's page draws and tells it."""

import html
from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from console.pages.run_timeline import MOST_ATTEMPTS, run_timeline, stretches_of
from runs.events import run_note
from runs.models import Assignment, Run, RunAttempt, WorkerEvent
from tests import factories as make

DDP = "/o/acme/w/vision/jobs/main/ddp-resnet50"
START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def at(seconds):
    return START + timedelta(seconds=seconds)


def told(line):
    return [(each.name, each.seconds) for each in line.stretches]


@pytest.fixture
def gang(house):
    """A run of two workers that was placed."""
    machines = [make.machine_make(house, f"gpu-0{number}") for number in (1, 2)]
    return make.run_place(house, make.run_pending(house), machines)


def moments_set(attempt, *, ready, **moments):
    """`ready`: of each member, checkable and ready."""
    Run.objects.filter(id=attempt.run_id).update(created_at=START)
    RunAttempt.objects.filter(id=attempt.id).update(**{name: at(value) for name, value in moments.items()})
    members = attempt.assignments.order_by("worker__rank")
    for member, (checkable, done) in zip(members, ready, strict=True):
        Assignment.objects.filter(id=member.id).update(
            checkable_at=None if checkable is None else at(checkable), ready_at=at(done)
        )


def test_every_stretch_of_an_attempt(gang, house):
    make.run_fail(gang)
    moments_set(
        gang,
        ready=[(160, 170), (165, 182)],
        placed_at=100,
        opened_at=182,
        running_at=185,
        ending_at=985,
        ended_at=990,
    )
    member = gang.assignments.select_related("worker")[0]
    note = {"code": "note", "text": "Image pulled, 8.1 GiB in 41 s"}
    WorkerEvent.objects.create(
        worker=member.worker, assignment=member, at=at(141), attempt_no=1, state="Preparing", reason=note
    )

    [line] = run_timeline(Run.objects.get(id=gang.run_id)).lines
    assert (line.title, line.outcome) == ("Attempt 1", "failed")
    assert told(line) == [
        ("queued", 100),
        ("pulling the image", 41),
        ("preparing", 24),
        ("check", 5),
        ("waiting for all", 12),
        ("starting", 3),
        ("running", 800),
        ("stopping", 5),
    ]
    assert line.stretches[4].note == "last ddp-resnet50-1 on gpu-02"
    ends = [each.x + each.width for each in line.stretches]
    assert [each.x for each in line.stretches[1:]] == pytest.approx([end + 2 for end in ends[:-1]], abs=0.2)
    assert ends[-1] == pytest.approx(998, abs=1)


def test_restarts_are_lines_of_their_own_with_their_own_wait(gang, house, bea):
    run = make.run_fail(gang)
    run.state = "Pending"
    run.save()
    run_note(run, {"code": "restarted", "by": "bea"}, at=timezone.now() - timedelta(minutes=7))
    page = html.unescape(bea.get(DDP).content.decode())
    first, second = bea.get(DDP).context["timeline"].lines
    assert (first.title, first.outcome, second.title) == ("Attempt 1", "failed", "Attempt 2")
    assert [(each.name, each.going_on, int(each.seconds) // 60) for each in second.stretches] == [
        ("queued", True, 7)
    ]
    assert "<b>queued</b> for <time" in page
    live = bea.get(DDP, headers={"HX-Request": "true"}).content.decode()
    assert "Attempt 2" in live, "it comes with the live update"


def test_clocks_that_disagree_make_no_stretch_shorter_than_nothing():
    points = [("queued", at(0), ""), ("preparing", at(10), ""), ("check", None, ""), ("starting", at(7), "")]
    assert [(each.name, each.seconds, each.going_on) for each in stretches_of(points, None, at(15))] == [
        ("queued", 10, False),
        ("preparing", 0, False),
        ("starting", 5, True),
    ]


def test_a_clock_that_was_set_makes_no_stretch_longer_than_its_attempt():
    points = [
        ("queued", at(0), ""),
        ("preparing", at(10), ""),
        ("starting", at(70), ""),
        ("running", at(80), ""),
    ]
    assert [(each.name, each.seconds, each.going_on) for each in stretches_of(points, at(30), at(90))] == [
        ("queued", 10, False),
        ("preparing", 20, False),
        ("starting", 0, False),
        ("running", 0, False),
    ]
    assert [(each.name, each.seconds) for each in stretches_of(points, None, at(15))][1:] == [
        ("preparing", 5),
        ("starting", 0),
        ("running", 0),
    ]


def test_of_many_attempts_the_newest_are_shown(house, bea):
    machine = make.machine_make(house, "gpu-01")
    run = make.run_pending(house, document=make.document_make(gpus=8, machines=1))
    for _ in range(MOST_ATTEMPTS + 2):
        make.run_fail(make.run_place(house, run, [machine]))
    timeline = bea.get(DDP).context["timeline"]
    assert [line.title for line in timeline.lines] == [f"Attempt {number}" for number in range(3, 15)]
    assert "2 earlier attempts not shown." in bea.get(DDP).content.decode()
