"""What owners do: submit, stop, restart, delete, in every state."""

import copy
import json
import threading
from pathlib import Path

import pytest
from django.db import connection

from common.errors import Conflict, Invalid, NotFound
from machines.models import Cluster
from runs.models import Assignment, Run, RunEvent, Worker, WorkloadName
from runs.presentation import run_get, run_reason
from runs.reasons import word
from runs.scheduling.passes import cluster_place
from runs.services import (
    run_delete,
    run_remove,
    run_restart,
    run_stop,
    run_submit,
    runs_sweep_deleted,
)
from tenancy.models import AuditEvent, Membership, Workspace
from tests import factories
from tests.support.gangs import CRASH, SUCCESS, Gang, back_off_over, placed, replaced
from wire.agent_messages import Exit

pytestmark = pytest.mark.django_db
REFERENCE = Path(__file__).parents[2] / "worker_image" / "run.json"


def submit(house, document, *, by=None, **options) -> Run:
    text = document if isinstance(document, str | bytes) else json.dumps(document)
    actor = factories.actor_of(by or house.bea)
    return run_submit(workspace=house.workspace, actor=actor, text=text, **options)[0]


def stored() -> tuple[int, int, int, int]:
    return (
        Run.objects.count(),
        Worker.objects.count(),
        WorkloadName.objects.count(),
        AuditEvent.objects.count(),
    )


# --- Submit ------------------------------------------------------------------------------------------


def test_the_reference_s_document_is_queued_with_its_workers(house, bea):
    text = REFERENCE.read_bytes()
    run, created = run_submit(workspace=house.workspace, actor=bea, text=text)

    assert created
    assert (run.name, run.state, run.priority, run.cluster) == ("ddp-resnet50", "Pending", 0, house.cluster)
    assert run.submitted == text.decode()
    assert run.labels == {"project": "fabric-check"}
    assert run.created_by == house.bea
    assert list(run.workers.values_list("rank", "name", "state")) == [
        (0, "ddp-resnet50-0", "Pending"),
        (1, "ddp-resnet50-1", "Pending"),
    ]
    assert run_reason(run) == "This cluster has no machines.", "never possible is told at once"
    audit = AuditEvent.objects.get()
    assert (audit.actor, audit.action, audit.target) == ("bea", "run.submit", "ddp-resnet50")


def test_all_errors_come_at_once_and_nothing_is_stored(house):
    document = factories.document_make("Bad Name", machines=3)
    template = document["spec"]["task_template"]
    template["requested_resources"]["network"]["min_gbps"] = -1
    template["env"]["1x"] = "y"
    template["colour"] = "red"
    with pytest.raises(Invalid) as refused:
        submit(house, document)

    assert {error.path for error in refused.value.errors} >= {
        "metadata.name",
        'spec.task_template.env["1x"]',
        "spec.task_template.colour",
        "spec.task_template.requested_resources.network.min_gbps",
    }
    assert (
        refused.value.message
        == f"The run was not started: {len(refused.value.errors)} entries need a change."
    )
    assert stored() == (0, 0, 0, 0)


def test_what_this_console_refuses_comes_at_once_too(house):
    document = factories.document_make(cluster="elsewhere", priority=101)
    document["spec"]["task_template"]["registry_credential"] = "hub"
    with pytest.raises(Invalid) as refused:
        submit(house, document)

    assert [(error.path, error.code) for error in refused.value.errors] == [
        ("spec.cluster", "unknown_cluster"),
        ("spec.task_template.registry_credential", "unknown_credential"),
        ("spec.priority", "priority_too_high"),
    ]
    assert refused.value.errors[0].message == "There is no cluster `elsewhere` here; there is: main."
    assert stored() == (0, 0, 0, 0)


def test_another_organization_s_cluster_is_unknown(house):
    Cluster.objects.create(organization=house.cyd.organization_memberships.get().organization, slug="theirs")
    with pytest.raises(Invalid) as refused:
        submit(house, factories.document_make(cluster="theirs"))

    assert refused.value.errors[0].message == "There is no cluster `theirs` here; there is: main."


@pytest.mark.parametrize("text", ["", "{", "[]", "null", b"\xff\xfe", '{"metadata": {}}', "1e999"])
def test_what_is_no_document_is_refused_with_a_sentence(house, text):
    with pytest.raises(Invalid) as refused:
        submit(house, text)

    assert all(error.message for error in refused.value.errors)
    assert stored() == (0, 0, 0, 0)


@pytest.mark.parametrize("text", ["\\u0000", "\\ud800"])
def test_characters_that_no_database_keeps_are_refused(house, text):
    document = json.dumps(factories.document_make()).replace("INFO", text)
    with pytest.raises(Invalid):
        submit(house, document)


def test_an_editor_may_ask_for_100_an_admin_for_more(house):
    submit(house, factories.document_make("low", priority=100))
    Membership.objects.filter(user=house.vic, workspace=house.workspace).update(role="admin")

    run = submit(house, factories.document_make("high", priority=1000), by=house.vic)
    assert run.priority == 1000


# --- Names -------------------------------------------------------------------------------------------


def test_a_run_s_name_is_taken_once(house):
    submit(house, factories.document_make("a"))
    with pytest.raises(Conflict) as refused:
        submit(house, factories.document_make("a"))

    assert refused.value.message == (
        "vision has a run named `a`. Choose another name, or delete that run first."
    )
    assert [(e.path, e.code) for e in refused.value.errors] == [("metadata.name", "name_taken")]


def test_a_run_may_not_be_called_like_a_worker(house):
    submit(house, factories.document_make("a"))
    before = stored()
    with pytest.raises(Conflict) as refused:
        submit(house, factories.document_make("a-1"))

    assert refused.value.message.startswith("vision has a worker of the run `a` named `a-1`.")
    assert stored() == before


def test_nor_a_worker_like_a_run(house):
    submit(house, factories.document_make("a-1"))
    before = stored()
    with pytest.raises(Conflict) as refused:
        submit(house, factories.document_make("a"))

    assert refused.value.message.startswith("vision has a run named `a-1`.")
    assert stored() == before


def test_workspaces_share_no_names(house):
    submit(house, factories.document_make("a"))
    other = Workspace.objects.create(organization=house.organization, slug="audio", name="Audio")
    actor = factories.actor_of(house.ana)
    run, _ = run_submit(workspace=other, actor=actor, text=json.dumps(factories.document_make("a")))

    assert run.workspace == other


def test_the_same_key_submits_once(house):
    document = factories.document_make("a")
    first = submit(house, document, idempotency_key="k1")

    assert submit(house, document, idempotency_key="k1") == first
    assert stored()[0] == 1
    changed = copy.deepcopy(document)
    changed["metadata"]["name"] = "b"
    with pytest.raises(Conflict) as refused:
        submit(house, changed, idempotency_key="k1")
    assert refused.value.message == ("This Idempotency-Key was used with another document. Take a new key.")


def test_a_key_that_is_too_long_is_refused(house):
    with pytest.raises(Invalid, match="200 characters"):
        submit(house, factories.document_make("a"), idempotency_key="k" * 201)


@pytest.mark.django_db(transaction=True)
def test_the_same_key_sent_twice_at_once_submits_once(house):
    text = json.dumps(factories.document_make("a"))
    barrier, found = threading.Barrier(4), list[int | Exception]()

    def send():
        try:
            barrier.wait(timeout=10)
            found.append(submit(house, text, idempotency_key="k1").id)
        except Exception as error:  # noqa: BLE001 - compared below
            found.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert found == [Run.objects.get().id] * 4


def test_a_nudge_is_queued_when_the_run_is_stored(house, django_capture_on_commit_callbacks, empty_redis):
    with django_capture_on_commit_callbacks(execute=True):
        submit(house, factories.document_make("a"))
        assert empty_redis.llen("place") == 0, "not before"
    assert empty_redis.llen("place") == 1

    with django_capture_on_commit_callbacks(execute=True):
        submit(house, factories.document_make("b"))
    assert empty_redis.llen("place") == 1, "a pass is on its way already"


# --- Stop, restart, delete ---------------------------------------------------------------------------


def test_stopping_a_waiting_run_takes_it_from_the_queue(house, bea):
    run = submit(house, factories.document_make())
    run_stop(run=run, actor=bea)
    gang = Gang(run)

    assert gang.advance() == ("Stopped", "Stopped by bea")
    assert gang.worker_states() == ["Stopped", "Stopped"]
    assert run_get(workspace=house.workspace, name=run.name).ended_at is not None


def test_stopping_what_has_ended_changes_nothing(running, house, bea):
    running.all_end(SUCCESS)
    assert running.advance()[0] == "Succeeded"
    before = AuditEvent.objects.count()
    run_stop(run=running.run, actor=bea)

    assert running.advance() == ("Succeeded", "2 of 2 workers succeeded")
    assert AuditEvent.objects.count() == before


def test_stopping_twice_is_stopping_once(running, house, bea):
    run_stop(run=running.run, actor=bea)
    run_stop(run=running.run, actor=factories.actor_of(house.ana))

    assert running.fresh.stopped_by == "bea"
    assert AuditEvent.objects.filter(action="run.stop").count() == 1


def test_restarting_an_ended_run_queues_it_anew(running, bea):
    running.end(0, CRASH)
    run_stop(run=running.run, actor=bea)
    running.advance()
    running.end(1, Exit(kind="stopped", signal=15))
    assert running.advance()[0] == "Stopped"

    run_restart(run=running.run, actor=bea)
    run = running.fresh
    assert (run.state, run.wanted, run.restarts, run.ended_at) == ("Pending", "run", 0, None)
    assert word(run.reason) == "Restarted by bea"
    assert running.worker_states() == ["Pending", "Pending"]
    replaced(running).start()
    assert running.fresh.attempt_no == 2


def test_a_run_restarted_from_the_queue_is_explained_again(house, bea):
    """No machine there: the same refusal before and after must not leave "Restarted by" standing."""
    run = submit(house, factories.document_make())
    cluster_place(house.cluster.id)
    refused = run_reason(run_get(workspace=house.workspace, name=run.name))
    run_stop(run=run, actor=bea)
    Gang(run).advance()
    run_restart(run=run, actor=bea)
    cluster_place(house.cluster.id)

    assert run_reason(run_get(workspace=house.workspace, name=run.name)) == refused


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        ("wait", "a is waiting in the queue already."),
        ("stop", "a is being stopped. Restart it once it has ended."),
        ("delete", "a is being deleted."),
    ],
)
def test_what_can_t_be_restarted_says_why(house, machines, bea, prepare, sentence):
    gang = placed(house, "a").start()
    if prepare == "wait":
        Run.objects.filter(id=gang.run.id).update(state="Pending")
    if prepare == "stop":
        run_stop(run=gang.run, actor=bea)
    if prepare == "delete":
        run_delete(run=gang.run, actor=bea)
        Run.objects.filter(id=gang.run.id).update(state="Stopped")
    with pytest.raises(Conflict) as refused:
        run_restart(run=gang.run, actor=bea)

    assert refused.value.message == sentence


def test_deleting_waits_until_everything_is_gone_then_the_names_are_free(running, house, bea):
    run_delete(run=running.run, actor=bea)
    assert run_remove(running.run.id) is False
    running.advance()
    running.end(0, Exit(kind="stopped", signal=15))
    running.end(1, Exit(kind="stopped", signal=15), gone=False)
    running.advance()
    runs_sweep_deleted()
    assert running.fresh.state == "Stopping"

    running.end(1, Exit(kind="stopped", signal=15))
    running.advance()
    runs_sweep_deleted()
    assert not Run.objects.exists()
    assert not WorkloadName.objects.exists()
    submit(house, factories.document_make())


def test_a_lost_worker_keeps_the_run_of_a_delete(running, house, bea, machines):
    """Its GPUs must stay held: the run's rows say so."""
    Assignment.objects.filter(id=running.members[1].id).update(state="Lost")
    run_delete(run=running.run, actor=bea)
    running.advance()
    machines[1].unreachable_at = running.fresh.created_at
    machines[1].save()
    running.end(0, Exit(kind="stopped", signal=15))
    assert running.advance() == ("Stopped", "Stopped by bea")

    assert run_remove(running.run.id) is False
    assert running.held() == 9
    running.end(1, Exit(kind="stopped", signal=15))
    runs_sweep_deleted()
    assert not Run.objects.exists()


def test_an_ended_run_is_removed_at_once(running, bea):
    running.all_end(SUCCESS)
    running.advance()
    run_delete(run=running.run, actor=bea)

    assert run_remove(running.run.id) is True
    assert not RunEvent.objects.exists()


def test_what_is_not_to_be_deleted_is_not_removed(running):
    running.all_end(SUCCESS)
    running.advance()

    assert run_remove(running.run.id) is False


def test_a_stop_after_a_delete_takes_nothing_back(running, bea):
    run_delete(run=running.run, actor=bea)
    run_stop(run=running.run, actor=bea)

    assert running.fresh.wanted == "delete"


@pytest.mark.parametrize("act", [run_stop, run_delete, run_restart])
def test_a_run_that_was_removed_a_moment_ago_is_not_found(house, bea, act):
    run = submit(house, factories.document_make())
    Run.objects.all().delete()
    with pytest.raises(NotFound, match="any more"):
        act(run=run, actor=bea)


def test_a_run_that_restarted_by_itself_waits_for_its_back_off(running):
    running.end(0, CRASH)
    running.advance()
    running.end(1, Exit(kind="stopped"))
    running.advance()
    cluster_place(running.run.cluster_id)
    assert running.fresh.state == "Pending", "not before its back-off is over"
    back_off_over(running)
    cluster_place(running.run.cluster_id)
    assert running.fresh.state == "Starting"
