"""What the database itself refuses, whoever asks."""

import pytest
from django.db import DatabaseError, IntegrityError, transaction
from django.utils import timezone

from machines.models import Gpu
from runs.models import Allocation, Assignment, Run, RunAttempt, Worker, WorkloadName
from tenancy.models import AuditEvent, Membership

pytestmark = pytest.mark.django_db


def refused(name: str):
    return pytest.raises(IntegrityError, match=name)


def allocate(assignment: Assignment, **values) -> Allocation:
    with transaction.atomic():
        return Allocation.objects.create(
            assignment=assignment, machine=assignment.machine, created_at=timezone.now(), **values
        )


def test_a_gpu_is_held_once(gang):
    member = gang.members[0]
    gpu = Allocation.objects.filter(assignment=member, gpu__isnull=False)[0].gpu
    with refused("gpu_held_once"):
        allocate(member, gpu=gpu)

    Allocation.objects.filter(gpu=gpu).update(released_at=timezone.now())
    allocate(member, gpu=gpu)


def test_a_rendezvous_port_is_held_once_a_machine(gang):
    leader, other = gang.members
    with refused("port_held_once"):
        allocate(leader, port=29500)
    allocate(other, port=29500)


def test_a_run_has_one_open_attempt(gang):
    attempt = RunAttempt.objects.get()
    values = {
        "run": gang.run,
        "network": "ib_fabric",
        "leader_address": "10.20.0.11",
        "master_port": 29500,
        "pass_no": 1,
        "placed_at": timezone.now(),
    }
    with refused("one_attempt_at_a_time"), transaction.atomic():
        RunAttempt.objects.create(number=2, **values)
    attempt.state = "ended"
    attempt.save()
    with refused("attempt_number_unique"), transaction.atomic():
        RunAttempt.objects.create(number=1, **values)
    RunAttempt.objects.create(number=2, **values)


@pytest.mark.parametrize(
    ("model", "field", "constraint"),
    [
        (Run, "state", "run_state_known"),
        (Run, "wanted", "run_wanted_known"),
        (RunAttempt, "state", "attempt_state_known"),
        (Worker, "state", "worker_state_known"),
        (Assignment, "state", "assignment_state_known"),
        (Assignment, "phase", "assignment_phase_known"),
        (Gpu, "health", "gpu_health_known"),
        (Membership, "role", "workspace_role_known"),
    ],
)
def test_an_unknown_state_is_refused(gang, model, field, constraint):
    with refused(constraint), transaction.atomic():
        model.objects.update(**{field: "odd"})


def test_an_assignment_is_never_pending(gang):
    with refused("assignment_state_known"), transaction.atomic():
        Assignment.objects.update(state="Pending")


def test_runs_and_workers_share_one_space_of_names(gang):
    with refused("workload_name_unique"), transaction.atomic():
        WorkloadName.objects.create(workspace=gang.run.workspace, name="ddp-resnet50-1", run=gang.run)


def test_two_active_workers_share_no_rank(gang):
    worker = gang.run.workers.get(rank=1)
    worker.rank = 0
    with refused("worker_rank_unique"), transaction.atomic():
        worker.save()


def test_a_line_of_the_audit_log_is_neither_changed_nor_removed(gang):
    for change in (
        lambda: AuditEvent.objects.update(actor="nobody"),
        lambda: AuditEvent.objects.all().delete(),
    ):
        with pytest.raises(DatabaseError, match="the audit log is append-only"), transaction.atomic():
            change()
    assert AuditEvent.objects.get().actor == "bea"
