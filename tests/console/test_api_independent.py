"""A run whose workers start on their own, over the API: one run with its workers."""

import json

import pytest

from runs.models import Run
from tests.support.families import independent, sweep

pytestmark = pytest.mark.django_db
API = "/api/v1/o/acme/w/vision"


@pytest.fixture
def editor(house, api):
    return api(house.bea)


@pytest.fixture
def family(house, machines):
    """Two of three workers run; the third waits for them."""
    return independent(house, workers=3).start(0, 1)


def test_lists_and_answers_show_one_run(family, editor):
    listed = editor.get(f"{API}/runs").json()["items"]
    assert [run["metadata"]["name"] for run in listed] == ["sweep"]
    status = editor.get(f"{API}/runs/sweep").json()["status"]
    assert (status["state"], status["reason"]) == ("Running", "2 of 3 workers running, 1 waits")
    assert listed[0]["status"] == status
    workers = editor.get(f"{API}/runs/sweep/workers").json()["items"]
    assert [(each["name"], each["rank"], each["state"], each["machine"]) for each in workers] == [
        ("sweep-0", 0, "Running", "gpu-01"),
        ("sweep-1", 1, "Running", "gpu-02"),
        ("sweep-2", 2, "Pending", None),
    ]
    assert workers[2]["reason"] == "Every machine of this cluster already has a worker of this run (2)."
    assert editor.get(f"{API}/runs?state=Pending").json()["items"] == []
    assert editor.get(f"{API}/runs/sweep-2").status_code == 404


def test_each_worker_has_its_own_history_and_explanation(family, editor):
    states = [event["state"] for event in editor.get(f"{API}/workers/sweep-0/events").json()["items"]]
    assert states == ["Placed", "Ready", "Running"]
    waiting = editor.get(f"{API}/workers/sweep-2/explanation").json()
    assert (waiting["run"], waiting["worker"], waiting["state"], waiting["kind"]) == (
        "sweep",
        "sweep-2",
        "Pending",
        "fit",
    )
    running = editor.get(f"{API}/workers/sweep-0/explanation").json()
    assert running["headline"].startswith("Placed on gpu-01")
    whole = editor.get(f"{API}/runs/sweep/explanation").json()
    assert (whole["state"], whole["headline"][:9]) == ("Running", "sweep-2: ")


def test_a_machine_names_the_run_and_its_worker(family, editor, house, api):
    gpu = api(house.ana).get("/api/v1/o/acme/clusters/main/machines/gpu-01").json()["status"]["gpus"][0]
    assert (gpu["run"], gpu["worker"]) == ("sweep", "sweep-0")


def test_one_that_waits_is_deleted_at_once(house, editor):
    independent(house, workers=2)
    assert editor.delete(f"{API}/runs/sweep").status_code == 204
    assert not Run.objects.exists()


def test_a_dry_run_tells_how_many_could_start(house, machines, editor):
    answer = editor.post(
        f"{API}/runs?dry_run=true", json.dumps(sweep(workers=3)), content_type="application/json"
    )
    assert answer.json()["placement"]["text"] == (
        "gpu-01 and gpu-02, each on its own; 1 of 3 workers would wait"
    )
