"""Health that administrators set, failures they forget, and fabrics they rename, over the API."""

import pytest

from common.clock import database_now
from machines.models import Fabric, HealthOverride, Machine
from runs.lemons import failures_note
from runs.models import MachineFailure
from tests import factories
from tests.support.console import send

pytestmark = pytest.mark.django_db
CLUSTER = "/api/v1/o/acme/clusters/main"
GPU1 = f"{CLUSTER}/machines/gpu-01"
GPU_3 = "gpu GPU-gpu-01-3"
ORDER = {"subject": GPU_3, "health": "faulty", "reason": "fails every night", "lasts_seconds": 3600}


@pytest.fixture
def owner(house, machines, api):
    return api(house.ana)


def test_health_is_set_and_taken_back(house, owner):
    told = send(owner, "PUT", f"{GPU1}/health", ORDER).json()["status"]

    gpu = told["gpus"][3]
    assert (gpu["health"], gpu["evidence"]) == ("faulty", "set by ana: fails every night")
    [said] = told["health_overrides"]
    assert {name: said[name] for name in ("subject", "health", "reason", "set_by")} == {
        "subject": GPU_3,
        "health": "faulty",
        "reason": "fails every night",
        "set_by": "ana",
    }
    assert told["gpus_free"] == 7
    for _ in range(2):  # idempotent
        told = owner.delete(f"{GPU1}/health?subject={GPU_3.replace(' ', '%20')}").json()["status"]
        assert (told["gpus"][3]["health"], told["health_overrides"], told["gpus_free"]) == ("healthy", [], 8)


@pytest.mark.parametrize(
    ("change", "status", "path"),
    [
        ({"health": "poorly"}, 422, "health"),
        ({"reason": ""}, 422, "reason"),
        ({"reason": "two\nlines"}, 422, "reason"),
        ({"lasts_seconds": 0}, 422, "lasts_seconds"),
        ({"lasts_seconds": 10**9}, 422, "lasts_seconds"),
        ({"subject": "gpu GPU-elsewhere"}, 404, None),
    ],
)
def test_what_can_not_be_said_is_refused_at_its_place(owner, change, status, path):
    answer = send(owner, "PUT", f"{GPU1}/health", ORDER | change)

    assert answer.status_code == status
    assert [error["path"] for error in answer.json().get("errors", [])] == ([path] if path else [])
    assert not HealthOverride.objects.exists()


def test_failures_are_told_to_who_may_see_the_run_and_forgotten(house, owner, machines, api):
    run = factories.run_pending(house, "eval-3")
    lost = {
        "code": "member_failed",
        "worker": "eval-3-0",
        "exit": {"kind": "lost", "message": "never heard again"},
    }
    failures_note(run, [machines[0].id], lost, database_now())

    told = owner.get(GPU1).json()["status"]
    assert told["lemon_score"] == 1.0
    [failure] = told["failures"]
    assert (failure["run"], failure["kind"], failure["times"], failure["counts"]) == (
        "eval-3",
        "lost",
        1,
        1.0,
    )
    assert failure["text"] == "eval-3-0: never heard again"
    told = owner.delete(f"{GPU1}/failures").json()["status"]
    assert (told["lemon_score"], told["failures"]) == (0.0, [])
    assert not MachineFailure.objects.exists()


def test_an_agent_that_is_old_is_told(owner):
    Machine.objects.filter(name="gpu-01").update(agent_version="0.0.1")

    assert owner.get(GPU1).json()["status"]["agent_old"] is True
    assert owner.get(f"{CLUSTER}/machines/gpu-02").json()["status"]["agent_old"] is False


def test_a_fabric_is_renamed_and_kept_for_storage(house, owner):
    path = f"{CLUSTER}/fabrics/ib-a"
    assert owner.get(path).json() == {
        "metadata": {"name": "ib-a"},
        "spec": {"storage": False},
        "status": {"key": "0xfe800000000000c1", "guessed": False, "machines": 2, "ports": 16},
    }

    foreseen = send(
        owner, "PATCH", f"{path}?dry_run=true", {"metadata": {"name": "east"}, "spec": {"storage": True}}
    )
    assert foreseen.json() == {
        "text": "ib-a would be named east and kept for storage. "
        "No run that waits would start, or wait longer, for it.",
        "would_start": [],
        "would_wait": [],
    }
    assert owner.get(path).status_code == 200

    changed = send(owner, "PATCH", path, {"metadata": {"name": "east"}, "spec": {"storage": True}}).json()
    assert (changed["metadata"], changed["spec"]) == ({"name": "east"}, {"storage": True})
    assert owner.get(path).status_code == 404
    assert send(owner, "PATCH", f"{CLUSTER}/fabrics/east", {}).json() == changed, "what is left out stays"


def test_keeping_a_fabric_for_storage_tells_which_runs_then_wait(house, owner):
    factories.run_pending(house)

    told = send(owner, "PATCH", f"{CLUSTER}/fabrics/ib-a?dry_run=true", {"spec": {"storage": True}}).json()

    assert told["would_wait"] == ["ddp-resnet50"]
    assert told["text"] == "ib-a would be kept for storage. ddp-resnet50 could no longer start."


def test_a_name_of_a_fabric_that_can_not_be_is_refused(house, owner):
    Fabric.objects.create(cluster=house.cluster, key="0x2", name="ib-b")

    taken = send(owner, "PATCH", f"{CLUSTER}/fabrics/ib-a", {"metadata": {"name": "ib-b"}})
    assert (taken.status_code, taken.json()["errors"][0]["message"]) == (409, "main has a fabric named ib-b.")
    for name in ("", "ib b", "x" * 64, 7):
        refused = send(owner, "PATCH", f"{CLUSTER}/fabrics/ib-a", {"metadata": {"name": name}})
        assert (refused.status_code, refused.json()["errors"][0]["path"]) == (422, "metadata.name"), name
