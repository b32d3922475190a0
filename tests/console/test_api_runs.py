"""Runs over the API beside submitting and reading: edited, changed, only foreseen."""

import json

import pytest

from machines.models import WorkspacePool
from runs.models import Claim, Run, RunEvent
from tenancy.models import AuditEvent
from tests import factories
from tests.support.console import send

pytestmark = pytest.mark.django_db
API = "/api/v1/o/acme/w/vision"
RUN = f"{API}/runs/ddp-resnet50"


@pytest.fixture
def editor(house, api):
    return api(house.bea)


def errors_of(response):
    return [(error["path"], error["code"]) for error in response.json()["errors"]]


# --- Edited ------------------------------------------------------------------------------------------


@pytest.fixture
def waiting(house) -> Run:
    """The reference's run, queued an hour ago."""
    run = factories.run_pending(house)
    factories.queued_ago(run, hours=1)
    run.refresh_from_db()
    return run


def test_a_run_that_waits_is_edited_in_place(waiting, editor):
    document = factories.document_make(gpus=24, machines=3, priority=7)
    document["metadata"]["labels"] = {"team": "vision"}
    answer = send(editor, "PUT", RUN, document)

    assert answer.status_code == 200
    body = answer.json()
    assert (body["metadata"]["labels"], body["spec"]["priority"]) == ({"team": "vision"}, 7)
    assert [worker["name"] for worker in body["status"]["workers"]] == [
        "ddp-resnet50-0",
        "ddp-resnet50-1",
        "ddp-resnet50-2",
    ]
    now = Run.objects.get()
    assert (now.id, now.edition, now.labels, now.priority) == (waiting.id, 1, {"team": "vision"}, 7)
    assert json.loads(now.submitted) == document
    history = editor.get(f"{RUN}/events").json()["items"]
    assert [event["text"] for event in history] == [
        "Queued; the next pass is due within seconds",
        "Edited by bea; back in the queue",
    ]
    audit = AuditEvent.objects.get(action="run.edit")
    assert "spec.task_template.requested_resources.machines" in audit.after["changed"]


def test_a_request_that_is_only_relaxed_keeps_its_time_in_the_queue(waiting, editor):
    document = factories.document_make()
    document["spec"]["task_template"]["requested_resources"]["gpu_requests"]["healthy_only"] = False
    document["spec"]["task_template"]["env"] = {"STEPS": "10"}
    assert send(editor, "PUT", RUN, document).status_code == 200
    assert Run.objects.get().queued_at == waiting.queued_at


def test_a_stricter_one_queues_anew(waiting, editor):
    document = factories.document_make()
    document["spec"]["task_template"]["requested_resources"]["topology"] = {"keep_within": "rack"}
    assert send(editor, "PUT", RUN, document).status_code == 200
    assert Run.objects.get().queued_at > waiting.queued_at


def test_what_was_kept_for_the_old_request_is_given_up(house, waiting, editor):
    gpu = factories.machine_make(house, "gpu-01").gpus.get(index=0)
    Claim.objects.create(run=waiting, machine=gpu.machine, gpu=gpu)
    send(editor, "PUT", RUN, factories.document_make(gpus=8, machines=1))

    assert not Claim.objects.exists()


def test_an_edit_is_checked_like_a_submission(waiting, editor):
    document = factories.document_make(machines=3)
    document["spec"]["colour"] = "red"
    answer = send(editor, "PUT", RUN, document)

    assert answer.status_code == 422
    assert {path for path, _ in errors_of(answer)} >= {"spec.colour"}
    assert (Run.objects.get().edition, RunEvent.objects.count()) == (0, 1)


def test_an_edit_keeps_name_and_cluster(house, waiting, editor):
    from machines.models import Cluster

    Cluster.objects.create(organization=house.organization, slug="annex", name="Annex")
    answer = send(editor, "PUT", RUN, factories.document_make("other", cluster="annex"))

    assert answer.status_code == 422
    assert errors_of(answer) == [("metadata.name", "name_differs"), ("spec.cluster", "cluster_differs")]


def test_an_edit_that_needs_a_name_that_is_taken(house, waiting, editor):
    factories.run_pending(house, "ddp-resnet50-2")
    answer = send(editor, "PUT", RUN, factories.document_make(gpus=24, machines=3))

    assert (answer.status_code, answer.json()["code"]) == (409, "name_taken")
    assert "ddp-resnet50-2" in answer.json()["detail"]


def test_a_run_that_runs_can_t_be_edited(running, editor):
    answer = send(editor, "PUT", RUN, factories.document_make())

    assert (answer.status_code, answer.json()["code"]) == (409, "not_waiting")
    assert answer.json()["detail"] == (
        "ddp-resnet50 is Running. Only a run that waits in the queue can be edited; stop it, or submit another one."
    )


def test_a_run_that_is_being_stopped_can_t_be_edited(waiting, editor):
    editor.post(f"{RUN}/stop")
    answer = send(editor, "PUT", RUN, factories.document_make())

    assert (answer.status_code, answer.json()["code"]) == (409, "stopping")


# --- Changed -----------------------------------------------------------------------------------------


def test_labels_and_priority_change_while_it_runs(running, editor):
    change = {"metadata": {"labels": {"team": "vision", "project": None}}, "spec": {"priority": 50}}
    answer = send(editor, "PATCH", RUN, change)

    assert answer.status_code == 200
    assert (answer.json()["metadata"]["labels"], answer.json()["spec"]["priority"]) == (
        {"team": "vision"},
        50,
    )
    assert answer.json()["status"]["state"] == "Running"
    run = Run.objects.get()
    assert (run.priority, run.document["metadata"]["labels"]) == (50, {"team": "vision"})
    audit = AuditEvent.objects.get(action="run.change")
    assert audit.before == {"labels": {"project": "fabric-check"}, "priority": 0}
    assert audit.after == {"labels": {"team": "vision"}, "priority": 50}


def test_a_change_of_nothing_changes_nothing(waiting, editor):
    for change in ({}, {"metadata": {"labels": {"project": "fabric-check"}}, "spec": {"priority": 0}}):
        assert send(editor, "PATCH", RUN, change).status_code == 200
    assert (Run.objects.get().edition, AuditEvent.objects.filter(action="run.change").count()) == (0, 0)


def test_an_editor_s_priority_has_a_limit(house, waiting, editor, api):
    answer = send(editor, "PATCH", RUN, {"spec": {"priority": 101}})

    assert (answer.status_code, errors_of(answer)) == (422, [("spec.priority", "priority_too_high")])
    assert send(api(house.ana), "PATCH", RUN, {"spec": {"priority": 101}}).status_code == 200


def test_a_run_has_at_most_64_labels(waiting, editor):
    answer = send(editor, "PATCH", RUN, {"metadata": {"labels": {f"l{number}": "" for number in range(64)}}})

    assert (answer.status_code, errors_of(answer)) == (422, [("metadata.labels", "too_long")])


# --- Foreseen ----------------------------------------------------------------------------------------


def test_a_dry_run_says_where_it_could_start_and_stores_nothing(house, machines, editor):
    answer = send(editor, "POST", f"{API}/runs?dry_run=true", factories.document_make())

    assert answer.status_code == 200
    placement = answer.json()["placement"]
    assert placement["text"] == "gpu-01 and gpu-02, one rack on one InfiniBand fabric"
    assert placement["shape"] == [{"machines": 2, "gpus": 8}]
    assert [(worker["name"], worker["machine"]) for worker in placement["workers"]] == [
        ("ddp-resnet50-0", "gpu-01"),
        ("ddp-resnet50-1", "gpu-02"),
    ]
    assert not Run.objects.exists()
    assert not AuditEvent.objects.exists()


def test_a_dry_run_says_why_not(house, editor):
    factories.machine_make(house, "gpu-01")
    answer = send(editor, "POST", f"{API}/runs?dry_run=true", factories.document_make()).json()

    assert answer["explanation"]["headline"] == (
        "2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-01)."
    )
    assert [row["machines"] for row in answer["explanation"]["machines"]] == [["gpu-01"]]
    assert answer["explanation"]["kind"] == "never"
    assert not Run.objects.exists()


def test_a_dry_run_keeps_the_workspace_s_quota(house, machines, editor):
    WorkspacePool.objects.update(gpu_cap=8)
    answer = send(editor, "POST", f"{API}/runs?dry_run=true", factories.document_make()).json()

    assert answer["explanation"]["kind"] == "policy"
    fits = factories.document_make(gpus=8, machines=1)
    fits["spec"]["task_template"]["requested_resources"]["network"] = {}
    fits["spec"]["task_template"]["requested_resources"]["topology"] = {}
    assert "placement" in send(editor, "POST", f"{API}/runs?dry_run=true", fits).json()


def test_a_dry_run_refuses_what_a_submission_would_refuse(house, editor):
    path = f"{API}/runs?dry_run=true"
    assert send(editor, "POST", path, factories.document_make(cluster="nowhere")).status_code == 422
    factories.run_pending(house)
    taken = send(editor, "POST", path, factories.document_make())
    assert (taken.status_code, taken.json()["code"]) == (409, "name_taken")


# --- Read --------------------------------------------------------------------------------------------


def test_histories_come_in_pages_oldest_first(running, editor):
    texts: list[str] = []
    cursor, path = None, f"{RUN}/events?limit=3"
    while texts == [] or cursor:
        page = editor.get(path + (f"&cursor={cursor}" if cursor else "")).json()
        texts += [event["text"] for event in page["items"]]
        cursor = page["next"]

    assert texts == [event["text"] for event in editor.get(f"{RUN}/events").json()["items"]]
    assert len(texts) > 3


def test_a_worker_s_history(running, editor):
    items = editor.get(f"{API}/workers/ddp-resnet50-1/events").json()["items"]

    assert (items[0]["state"], items[-1]["state"]) == ("Placed", "Running")


@pytest.mark.parametrize("part", ["", "/events", "/explanation"])
def test_a_run_is_no_worker_and_its_workers_are_named(waiting, editor, part):
    answer = editor.get(f"{API}/workers/ddp-resnet50{part}")

    assert answer.status_code == 404
    assert answer.json()["detail"] == (
        "There is no worker `ddp-resnet50` in vision. That is a run; its first worker is `ddp-resnet50-0`."
    )


@pytest.mark.parametrize("name", ["DDP-Resnet50", "ddp-resnet50 ", "ddp-resnet50%0A", "%F0%9F%92%A9"])
def test_names_are_what_they_are_letter_by_letter(waiting, editor, name):
    assert editor.get(f"{API}/runs/{name}").status_code == 404


def test_deleting_a_run_that_waits_removes_it_at_once(waiting, editor):
    assert editor.delete(RUN).status_code == 204
    assert editor.get(RUN).status_code == 404
    assert not Run.objects.exists()
