"""What operators do with a machine: each asks first, works without JavaScript and lands in the audit log."""

import html
from datetime import timedelta

import pytest

from machines.channel import credential_machine
from machines.models import Machine, Pool
from machines.services import credential_create
from tenancy.models import AuditEvent

GPU4 = "/o/acme/clusters/main/machines/gpu-04"
MACHINES = "/o/acme/clusters/main/machines"


def text(answer):
    return " ".join(html.unescape(answer.content.decode()).split())


def test_cordon_and_uncordon_ask_first(busy, ana):
    assert "It takes no new work. What runs there goes on." in text(ana.get(f"{GPU4}/cordon"))
    ana.post(f"{GPU4}/cordon", {"reason": "changing a cable"})
    page = text(ana.get(GPU4))
    assert "Cordoned" in page
    assert "by ana" in page
    assert ": “changing a cable”" in page
    question = text(ana.get(f"{GPU4}/uncordon"))
    assert "“changing a cable”. New work may land on it at once." in question
    ana.post(f"{GPU4}/uncordon")
    assert Machine.objects.get(name="gpu-04").cordoned_at is None


def test_a_drain_lists_the_runs_that_stop(busy, ana):
    question = text(ana.get(f"{MACHINES}/gpu-02/drain"))
    assert "These runs stop then, all of their workers:" in question
    assert (
        '<a href="/o/acme/w/vision/jobs/main/llm-7"><bdi>llm-7</bdi></a>, 8 GPUs here, also on 1 other machine'
    ) in question
    assert "Nothing runs there now." in text(ana.get(f"{MACHINES}/gpu-01/drain"))


def test_a_drain_has_a_deadline_and_a_reason(busy, ana):
    ana.post(f"{GPU4}/drain", {"within": "3600", "reason": "new cable"})
    machine = Machine.objects.get(name="gpu-04")
    assert machine.draining_at is not None
    assert machine.drain_until == machine.draining_at + timedelta(hours=1)
    page = text(ana.get(GPU4))
    assert "gpu-04 drains: it takes no new work, and what still runs there at" in page
    assert "Draining" in page
    assert ": “new cable”. What still runs here at" in page
    assert "Change drain…" in page
    assert "machine.drain" in {event.action for event in AuditEvent.objects.all()}


@pytest.mark.parametrize("within", ["", "soon", "-1", "99999999"])
def test_a_drain_without_a_time_is_asked_again(busy, ana, within):
    answer = ana.post(f"{GPU4}/drain", {"within": within, "reason": "kept"})
    assert answer.status_code == 422
    assert "Choose how long what runs there may go on." in text(answer)
    assert 'value="kept"' in text(answer)
    assert Machine.objects.get(name="gpu-04").draining_at is None


def test_a_machine_moves_to_another_pool(busy, ana):
    Pool.objects.create(cluster=busy.cluster, slug="spare", name="Spare")
    assert "<option>spare</option>" in text(ana.get(f"{GPU4}/move"))
    ana.post(f"{GPU4}/move", {"pool": "spare"})
    assert "gpu-04 is in pool spare." in text(ana.get(GPU4))
    refused = ana.post(f"{GPU4}/move", {"pool": "nothing"})
    assert refused.status_code == 422
    assert "There is no pool `nothing` in main" in text(refused)


def test_a_machine_is_renamed_while_nothing_runs_there(busy, ana):
    answer = ana.post(f"{MACHINES}/gpu-01/rename", {"name": "gpu-11"})
    assert answer["Location"] == f"{MACHINES}/gpu-11"
    assert "gpu-01 is named gpu-11 now." in text(ana.get(f"{MACHINES}/gpu-11"))


@pytest.mark.parametrize(
    ("machine", "name", "status", "words"),
    [
        ("gpu-01", "gpu-02", 409, "main has a machine named gpu-02."),
        ("gpu-01", "no good", 422, "`no good` is not a machine"),
        ("gpu-04", "gpu-44", 409, "gpu-04 can't be renamed while something may run there: tune-9-0."),
    ],
)
def test_a_name_that_can_not_be_given(busy, ana, machine, name, status, words):
    answer = ana.post(f"{MACHINES}/{machine}/rename", {"name": name})
    assert answer.status_code == status
    assert words in text(answer)
    assert f'value="{name}"' in text(answer)


def test_a_credential_is_revoked(busy, ana):
    credential = credential_create(machine=Machine.objects.get(name="gpu-04")).value
    assert "Its agent is refused from its next message on" in text(ana.get(f"{GPU4}/revoke"))
    ana.post(f"{GPU4}/revoke")
    assert credential_machine(credential) is None
    assert "The credential of gpu-04 is revoked" in text(ana.get(GPU4))
    ana.post(f"{GPU4}/revoke")
    assert "gpu-04 had no credential that could be revoked." in text(ana.get(GPU4))


def test_a_machine_is_removed_by_its_name(busy, ana):
    wrong = ana.post(f"{MACHINES}/gpu-01/remove", {"name": "gpu"})
    assert wrong.status_code == 422
    assert "That is not the name. Type gpu-01." in text(wrong)
    answer = ana.post(f"{MACHINES}/gpu-01/remove", {"name": "gpu-01"})
    assert answer["Location"] == MACHINES
    assert "gpu-01 is removed." in text(ana.get(MACHINES))
    assert not Machine.objects.filter(name="gpu-01").exists()
    assert AuditEvent.objects.latest("id").action == "machine.remove"


def test_a_machine_in_use_is_not_removed(busy, ana):
    answer = ana.post(f"{GPU4}/remove", {"name": "gpu-04"})
    assert answer.status_code == 409
    assert "can't be removed while something may run there: tune-9-0. Drain it first." in text(answer)


@pytest.mark.parametrize("action", ["cordon", "drain", "move", "rename", "revoke", "remove", "label"])
def test_who_may_only_look_changes_nothing(busy, bea, vic, action):
    for person in (bea, vic):
        assert (
            person.post(f"{GPU4}/{action}", {"name": "gpu-04", "within": "0", "pool": "h100"}).status_code
            == 403
        )
    assert "data-dialog" not in text(bea.get(GPU4))
    assert not AuditEvent.objects.filter(action__startswith="machine").exists()
