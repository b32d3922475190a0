"""Health that people set, failures that runs met, agents that are old: on the machine's page and in the list."""

import html
from datetime import timedelta

import pytest

from common.clock import database_now
from machines.models import HealthOverride, Machine
from runs.lemons import failures_note
from runs.models import MachineFailure, Run
from tenancy.models import OrganizationMembership
from tests import factories
from tests.pages.conftest import signed_in

MACHINES = "/o/acme/clusters/main/machines"
GPU1 = f"{MACHINES}/gpu-01"
SAID = {"subject": "gpu GPU-gpu-01-3", "health": "faulty", "lasts": "14400", "reason": "fails every night"}


def text(answer) -> str:
    return " ".join(html.unescape(answer.content.decode()).split())


def test_an_administrator_sets_the_health_of_a_gpu_for_a_while(busy, ana, vic):
    question = text(ana.get(f"{GPU1}/health"))
    assert "It counts instead of what the agent says until its time is over." in question
    assert '<option value="machine">the whole machine (healthy)</option>' in question
    assert '<option value="gpu GPU-gpu-01-3">GPU 3 (healthy)</option>' in question
    assert '<option value="port mlx5_0:1">port mlx5_0:1 (healthy)</option>' in question

    answer = ana.post(f"{GPU1}/health", SAID, follow=True)

    page = text(answer)
    assert "GPU 3 of gpu-01 counts as faulty until " in page
    assert "faulty: set by ana: fails every night," in page
    assert "GPU 3, by <bdi>ana</bdi>" in page
    assert "“<bdi>fails every night</bdi>”. Its agent says healthy." in page
    assert "<bdi>GPU 3</bdi>, said by <bdi>ana</bdi>: <bdi>fails every night (until 20" in page
    said = HealthOverride.objects.get()
    assert timedelta(0) <= database_now() + timedelta(hours=4) - said.until < timedelta(minutes=1)
    seen = text(vic.get(GPU1))
    assert "fails every night" in seen
    assert "Use what its agent says" not in seen
    assert "7 of 8 free, 1 faulty" in text(ana.get(MACHINES))

    back = text(ana.post(f"{GPU1}/health/end", {"subject": SAID["subject"]}, follow=True))
    assert "What the agent of gpu-01 says counts again." in back
    assert "Health set by people" not in back


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"reason": " "}, "Say why: others see it"),
        ({"lasts": "soon"}, "Choose for how long it counts."),
        ({"lasts": "0"}, "It can count for 90 days at most"),
        ({"subject": "gpu GPU-elsewhere"}, "Choose what of gpu-01 it is."),
        ({"health": "poorly"}, "is none of healthy, suspect and faulty"),
    ],
)
def test_what_can_not_be_said_is_asked_again_and_nothing_typed_is_lost(busy, ana, wrong, problem):
    answer = ana.post(f"{GPU1}/health", SAID | wrong)

    assert answer.status_code == 422
    assert problem in text(answer)
    typed = SAID | wrong
    assert f'value="{typed["reason"]}"' in text(answer)
    if "lasts" not in wrong:
        assert '<option value="14400" selected>' in text(answer)
    assert not HealthOverride.objects.exists()


@pytest.mark.parametrize("address", ["health", "health/end", "forget"])
def test_only_operators_do_these(busy, bea, address):
    assert bea.post(f"{GPU1}/{address}", SAID).status_code == 403


@pytest.fixture
def lemon(busy) -> Machine:
    """Runs were lost on gpu-01; one of them has been deleted since."""
    machine = Machine.objects.get(name="gpu-01")
    reason = {
        "code": "member_failed",
        "worker": "eval-3-0",
        "exit": {"kind": "lost", "message": "<b>never</b> heard again"},
    }
    for name in ("eval-3", "llm-7", "tune-9"):
        run = Run.objects.get(name=name)
        failures_note(run, [machine.id], reason, database_now())
    failures_note(Run.objects.get(name="eval-3"), [machine.id], reason, database_now())
    MachineFailure.objects.filter(run_name="tune-9").update(run=None)
    return machine


def test_a_lemon_is_told_with_the_runs_that_failed_there_until_its_failures_are_forgotten(busy, lemon, ana):
    row = text(ana.get(MACHINES))
    assert "Lemon 3.0<span" in row
    assert "Failures here: its worker was lost (4)" in row

    page = text(ana.get(GPU1))
    assert (
        "Lemon score 3.0. Runs use this machine last. Each failure counts half as much after 3 days." in page
    )
    assert (
        '<a href="/o/acme/w/vision/jobs/main/eval-3"><bdi>eval-3</bdi></a>: '
        '<bdi>eval-3-0: &lt;b&gt;never&lt;/b&gt; heard again</bdi>, 2 times <span class="muted">counts 1.00</span>'
    ) in " ".join(ana.get(GPU1).content.decode().split())
    assert "<bdi>tune-9</bdi>: <bdi>eval-3-0:" in page

    assert "its lemon score is 0 again" in text(ana.get(f"{GPU1}/forget"))
    gone = text(ana.post(f"{GPU1}/forget", follow=True))
    assert "The failures on gpu-01 are forgotten" in gone
    assert "Failures here" not in gone
    assert "Lemon" not in text(ana.get(MACHINES))


def test_who_may_not_see_a_run_learns_what_happened_and_not_to_whom(busy, lemon):
    mel = factories.user_make("mel")
    OrganizationMembership.objects.create(organization=busy.organization, user=mel, role="member")

    page = text(signed_in(mel).get(GPU1))

    assert "a run of another workspace</bdi>: <bdi>its worker was lost</bdi>" in page
    assert "eval-3" not in page


def test_a_disk_that_was_cloned_is_told_while_two_agents_use_one_credential(busy, ana):
    assert "Two agents" not in text(ana.get(GPU1))
    Machine.objects.filter(name="gpu-01").update(two_agents_at=database_now())

    assert "Two agents use the credential of this machine, so nothing is started on it." in text(
        ana.get(GPU1)
    )


def test_little_failures_are_told_and_make_no_lemon(busy, ana):
    run = Run.objects.get(name="eval-3")
    failed = {"code": "member_failed", "worker": "eval-3-0", "exit": {"kind": "exited", "code": 1}}
    failures_note(run, [Machine.objects.get(name="gpu-01").id], failed, database_now())

    assert "Lemon score 0.1. That is too little to matter." in text(ana.get(GPU1))
    assert "Lemon" not in text(ana.get(MACHINES))


@pytest.mark.parametrize(
    ("version", "old"),
    [
        ("0.0.9", True),
        ("0.1.0", False),
        ("0.2.0", False),
        ("0.1.0+local", False),
        ("nightly", False),
        ("", False),
    ],
)
def test_an_agent_that_is_older_than_the_console_s_own_is_marked(busy, ana, version, old):
    Machine.objects.filter(name="gpu-01").update(agent_version=version)

    assert (">Old agent<" in text(ana.get(MACHINES))) is old
    page = text(ana.get(GPU1))
    assert (">Old agent<" in page) is old
    assert ("agent <bdi>0.0.9</bdi>, this console comes with 0.1.0" in page) is old
