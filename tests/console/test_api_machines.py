"""Machines over the API: what there is, and what operators do with it."""

import json
from typing import Any

import pytest
from django.utils import timezone

from machines.models import JoinToken, Machine, MachineCredential, MachineLabel, Pool
from machines.services import credential_create
from runs.models import Run
from tenancy.models import AuditEvent, OrganizationMembership
from tests import factories
from tests.support.console import send

pytestmark = pytest.mark.django_db
CLUSTER = "/api/v1/o/acme/clusters/main"
MACHINES = f"{CLUSTER}/machines"
RACK = "topology.astraeus.io/rack"


@pytest.fixture
def owner(house, api):
    return api(house.ana)


def names(client, query="") -> list[str]:
    answer = client.get(f"{MACHINES}{query}")
    assert answer.status_code == 200, answer.json()
    return [item["metadata"]["name"] for item in answer.json()["items"]]


# --- Looking -----------------------------------------------------------------------------------------


def test_a_machine_in_full(house, running, owner):
    body = owner.get(f"{MACHINES}/gpu-01").json()
    status = body["status"]

    assert body["metadata"] == {"name": "gpu-01", "labels": {RACK: "r1"}}
    assert body["spec"] == {"pool": "h100"}
    facts = (
        "state",
        "reason",
        "gpus_total",
        "gpus_free",
        "gpu_model",
        "fabric",
        "rack",
        "nvlink_domain",
        "address",
    )
    assert [status[name] for name in facts] == ["Ready", "", 8, 0, "H100", "ib-a", "r1", None, "10.20.0.11"]
    assert (status["agent_version"], status["simulated"]) == ("0.1.0", True)
    gpu = {name: status["gpus"][3][name] for name in ("index", "health", "held", "run", "worker")}
    assert gpu == {
        "index": 3,
        "health": "healthy",
        "held": True,
        "run": "ddp-resnet50",
        "worker": "ddp-resnet50-0",
    }
    assert status["rdma_ports"][0] == {
        "device": "mlx5_0",
        "port": 1,
        "link_layer": "InfiniBand",
        "state": "ACTIVE",
        "rate_gbps": 400.0,
        "fabric": "ib-a",
        "netdev": "",
        "health": "healthy",
        "evidence": "",
    }


def test_who_may_not_read_a_run_does_not_learn_who_holds_a_gpu(house, running, api):
    member = factories.user_make("mel")
    OrganizationMembership.objects.create(organization=house.organization, user=member, role="member")
    answer = api(member).get(f"{MACHINES}/gpu-01")

    assert answer.status_code == 200
    gpu = answer.json()["status"]["gpus"][0]
    assert (gpu["held"], gpu["run"], gpu["worker"]) == (True, None, None)
    assert b"ddp-resnet50" not in answer.content


@pytest.fixture
def fleet(house):
    """One machine in each state, by name."""
    now = timezone.now()
    fields: dict[str, dict[str, Any]] = {
        "cordoned": {"cordoned_at": now, "cordoned_by": "ana", "cordon_reason": "changing a cable"},
        "draining": {"cordoned_at": now, "cordoned_by": "ana", "draining_at": now, "drain_until": now},
        "never-heard": {"last_seen_at": None},
        "quarantined": {"quarantined_at": now, "cordoned_at": now, "draining_at": now},
        "ready": {},
        "unreachable": {"unreachable_at": now, "cordoned_at": now},
    }
    for name, values in fields.items():
        machine = factories.machine_make(house, name, gpus=1, rack="r1" if name == "ready" else None)
        Machine.objects.filter(id=machine.id).update(**values)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["cordoned", "draining", "never-heard", "quarantined", "ready", "unreachable"]),
        ("?state=Ready", ["ready"]),
        ("?state=Cordoned,Draining", ["cordoned", "draining"]),
        ("?state=Unreachable&state=Quarantined", ["never-heard", "quarantined", "unreachable"]),
        ("?q=UN", ["unreachable"]),
        ("?pool=h100&state=Ready", ["ready"]),
        ("?pool=other", []),
        (f"?label={RACK}=r1", ["ready"]),
        (f"?label={RACK}=r2", []),
    ],
)
def test_filters(fleet, owner, query, found):
    assert names(owner, query) == found


def test_the_state_filters_are_the_states(fleet, owner):
    """Each machine is found by the state that it shows, and by no other."""
    for name in ("Quarantined", "Unreachable", "Draining", "Cordoned", "Ready"):
        items = owner.get(f"{MACHINES}?state={name}").json()["items"]
        assert items
        assert {item["status"]["state"] for item in items} == {name}


def test_a_label_that_a_person_set_hides_the_one_that_was_found(house, owner):
    machine = factories.machine_make(house, "gpu-01")
    MachineLabel.objects.create(machine=machine, key=RACK, value="r7")

    assert names(owner, f"?label={RACK}=r1") == []
    assert names(owner, f"?label={RACK}=r7") == ["gpu-01"]


def test_machines_come_in_pages_by_name(fleet, owner):
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = owner.get(f"{MACHINES}?limit=4&cursor={cursor}").json()
        found += [item["metadata"]["name"] for item in page["items"]]
        cursor = page["next"]

    assert found == ["cordoned", "draining", "never-heard", "quarantined", "ready", "unreachable"]


def test_a_page_takes_the_same_queries_however_many_machines(fleet, owner, django_assert_max_num_queries):
    with django_assert_max_num_queries(18):
        assert len(names(owner)) == 6


def test_pools_and_fabrics(house, running, owner):
    factories.machine_make(house, "gpu-03", faulty=(0,))
    [pool] = owner.get(f"{CLUSTER}/pools").json()["items"]
    assert pool == {
        "metadata": {"name": "h100"},
        "spec": {"title": "H100", "workspaces": {"vision": {"gpu_cap": None, "guaranteed_gpus": 0}}},
        "status": {"machines": 3, "gpus_total": 24, "gpus_free": 7},
    }
    [fabric] = owner.get(f"{CLUSTER}/fabrics").json()["items"]
    assert (fabric["metadata"]["name"], fabric["status"]["machines"], fabric["status"]["ports"]) == (
        "ib-a",
        3,
        24,
    )
    [cluster] = owner.get("/api/v1/o/acme/clusters").json()["items"]
    assert (cluster["metadata"]["name"], cluster["status"]["machines"]) == ("main", 3)


@pytest.mark.parametrize(
    "path", [f"{MACHINES}/gpu-99", "/api/v1/o/acme/clusters/x/machines", f"{MACHINES}/GPU-01"]
)
def test_what_is_not_there(machines, owner, path):
    assert owner.get(path).status_code == 404


# --- Doing -------------------------------------------------------------------------------------------


def test_cordon_and_uncordon(machines, owner):
    answer = send(owner, "POST", f"{MACHINES}/gpu-01/cordon", {"reason": "changing a cable"})
    assert (answer.status_code, answer.json()["status"]["state"]) == (200, "Cordoned")
    assert answer.json()["status"]["reason"] == "Cordoned by ana: “changing a cable”"

    assert send(owner, "POST", f"{MACHINES}/gpu-01/uncordon").json()["status"]["state"] == "Ready"
    assert [event.action for event in AuditEvent.objects.order_by("id")] == [
        "machine.cordon",
        "machine.uncordon",
    ]


def test_drain_with_a_deadline(machines, owner):
    before = timezone.now()
    answer = send(
        owner, "POST", f"{MACHINES}/gpu-01/drain", {"within_seconds": 1800, "reason": "new firmware"}
    )

    assert (answer.status_code, answer.json()["status"]["state"]) == (200, "Draining")
    machine = Machine.objects.get(name="gpu-01")
    assert machine.drain_until
    assert 1790 <= (machine.drain_until - before).total_seconds() <= 1830
    assert answer.json()["status"]["reason"] == (
        f"Drained by ana: “new firmware”; what runs here has until {machine.drain_until:%Y-%m-%d %H:%M} UTC"
    )
    send(owner, "POST", f"{MACHINES}/gpu-01/uncordon")
    assert Machine.objects.filter(
        drain_until=None, draining_at=None, cordoned_at=None, name="gpu-01"
    ).exists()


def test_labels_are_set_and_taken_back(machines, owner):
    labels = {RACK: "r7", "owner": "ops"}
    answer = send(owner, "PATCH", f"{MACHINES}/gpu-01", {"metadata": {"labels": labels}})
    assert answer.json()["metadata"]["labels"] == labels
    assert answer.json()["status"]["rack"] == "r7"

    answer = send(owner, "PATCH", f"{MACHINES}/gpu-01", {"metadata": {"labels": {RACK: None}}})
    assert answer.json()["metadata"]["labels"] == {RACK: "r1", "owner": "ops"}  # what was found counts again


def test_another_pool(house, machines, owner):
    Pool.objects.create(cluster=house.cluster, slug="spare", name="Spare")
    assert send(owner, "PATCH", f"{MACHINES}/gpu-01", {"spec": {"pool": "spare"}}).json()["spec"] == {
        "pool": "spare"
    }

    answer = send(owner, "PATCH", f"{MACHINES}/gpu-01", {"spec": {"pool": "spar"}})
    assert answer.status_code == 422
    assert answer.json()["errors"] == [
        {
            "path": "spec.pool",
            "code": "unknown_pool",
            "message": "There is no pool `spar` in main; there is: h100, spare.",
        }
    ]


def test_a_change_is_carried_out_whole_or_not_at_all(machines, owner):
    change = {"metadata": {"labels": {"owner": "ops"}, "name": "gpu-02"}}
    answer = send(owner, "PATCH", f"{MACHINES}/gpu-01", change)

    assert (answer.status_code, answer.json()["code"]) == (409, "name_taken")
    assert not MachineLabel.objects.filter(key="owner").exists()
    assert not AuditEvent.objects.exists()


def test_another_name(machines, owner):
    answer = send(owner, "PATCH", f"{MACHINES}/gpu-01", {"metadata": {"name": "gpu-01.rack-7"}})

    assert (answer.status_code, answer.json()["metadata"]["name"]) == (200, "gpu-01.rack-7")
    assert names(owner) == ["gpu-01.rack-7", "gpu-02"]


def test_a_name_that_is_none(machines, owner):
    answer = send(owner, "PATCH", f"{MACHINES}/gpu-01", {"metadata": {"name": "GPU-01"}})
    assert [error["code"] for error in answer.json()["errors"]] == ["bad_name"]


@pytest.mark.parametrize(("method", "body"), [("PATCH", {"metadata": {"name": "new"}}), ("DELETE", None)])
def test_neither_renamed_nor_removed_while_something_runs_there(running, owner, method, body):
    answer = send(owner, method, f"{MACHINES}/gpu-01", body)

    assert (answer.status_code, answer.json()["code"]) == (409, "in_use")
    assert "while something may run there: ddp-resnet50-0. Drain it first." in answer.json()["detail"]


def test_a_machine_is_removed_and_its_name_is_free(house, machines, owner):
    credential_create(machine=machines[0])
    assert send(owner, "DELETE", f"{MACHINES}/gpu-01").status_code == 204

    assert names(owner) == ["gpu-02"]
    assert owner.get(f"{MACHINES}/gpu-01").status_code == 404
    assert not MachineCredential.objects.filter(revoked_at=None).exists()
    factories.machine_make(house, "gpu-01")
    assert names(owner) == ["gpu-01", "gpu-02"]


def test_what_ran_on_a_machine_that_is_removed_stays_told(running, owner):
    factories.run_fail(Run.objects.get().attempts.get())
    assert send(owner, "DELETE", f"{MACHINES}/gpu-01").status_code == 204

    workers = owner.get("/api/v1/o/acme/w/vision/runs/ddp-resnet50/workers").json()["items"]
    assert [worker["machine"] for worker in workers] == ["gpu-01", "gpu-02"]


def test_a_revoked_credential_is_refused_and_the_machine_joins_again_as_what_it_was(house, machines, owner):
    from machines.channel import credential_machine
    from machines.services import join_token_create, machine_join

    old = credential_create(machine=machines[0]).value
    MachineLabel.objects.create(machine=machines[0], key="owner", value="ops")
    assert send(owner, "DELETE", f"{MACHINES}/gpu-01/credentials").status_code == 204
    assert credential_machine(old) is None

    token = join_token_create(pool=house.pool, by="ana").value
    joined = machine_join(token=token, name="gpu-01", runtime="bubblewrap", agent_version="0.1.0")
    assert joined.machine.id == machines[0].id
    assert credential_machine(joined.credential.value) == machines[0].id


# --- Foreseen ----------------------------------------------------------------------------------------


def test_a_dry_run_tells_what_a_label_would_do_and_changes_nothing(house, owner):
    factories.machine_make(house, "gpu-01", rack="r1")
    factories.machine_make(house, "gpu-02", rack="r2")
    document = factories.document_make()
    document["spec"]["task_template"]["requested_resources"]["topology"] = {"keep_within": "rack"}
    factories.run_pending(house, document=document)

    answer = send(owner, "PATCH", f"{MACHINES}/gpu-02?dry_run=true", {"metadata": {"labels": {RACK: "r1"}}})
    assert answer.status_code == 200
    assert answer.json() == {
        "text": "gpu-02 would be in rack r1 instead of r2. ddp-resnet50 could start then.",
        "would_start": ["ddp-resnet50"],
        "would_wait": [],
    }
    assert not MachineLabel.objects.filter(found=False).exists()
    assert [event.action for event in AuditEvent.objects.all()] == ["run.submit"]


def test_a_dry_run_of_nothing(machines, owner):
    answer = send(owner, "PATCH", f"{MACHINES}/gpu-01?dry_run=true", {}).json()
    assert answer["text"] == (
        "gpu-01 would stay where it is. No run that waits would start, or wait longer, for it."
    )


# --- Join tokens -------------------------------------------------------------------------------------


def test_join_tokens(house, owner):
    made = send(owner, "POST", f"{CLUSTER}/join-tokens", {"pool": "h100"})
    assert made.status_code == 201
    body = made.json()
    assert (
        body["command"]
        == f"astraeus-agent join --server http://127.0.0.1:8000 --token {body['secret']} --run"
    )
    listed = owner.get(f"{CLUSTER}/join-tokens").json()["items"]
    assert [(item["id"], item["pool"], item["created_by"], item["machine"]) for item in listed] == [
        (body["id"], "h100", "ana", None)
    ]
    assert body["secret"] not in json.dumps(listed)

    assert owner.delete(f"{CLUSTER}/join-tokens/{body['id']}").status_code == 200
    assert JoinToken.objects.get().expires_at <= timezone.now()
    assert owner.delete(f"{CLUSTER}/join-tokens/{body['id']}").status_code == 200
    assert [event.action for event in AuditEvent.objects.order_by("id")] == [
        "join_token.create",
        "join_token.revoke",
    ]


def test_a_join_token_for_a_pool_that_is_not_there(house, owner):
    answer = send(owner, "POST", f"{CLUSTER}/join-tokens", {"pool": "x"})
    assert [error["path"] for error in answer.json()["errors"]] == ["pool"]


# --- The mesh ----------------------------------------------------------------------------------------


def test_the_range_of_the_mesh(house, machines, owner):
    cluster = owner.get(CLUSTER).json()
    assert (cluster["metadata"], cluster["spec"]) == ({"name": "main"}, {"mesh_range": "100.64.0.0/10"})
    assert owner.get(f"{MACHINES}/gpu-01").json()["status"]["mesh"] == {
        "subnet": None,
        "public_key": None,
        "endpoint": None,
        "flaw": "",
    }
    changed = send(owner, "PATCH", CLUSTER, {"spec": {"mesh_range": "10.192.0.0/10"}})
    assert (changed.status_code, changed.json()["spec"]) == (200, {"mesh_range": "10.192.0.0/10"})
    refused = send(owner, "PATCH", CLUSTER, {"spec": {"mesh_range": "8.0.0.0/10"}})
    assert refused.status_code == 422
    assert [(each["path"], each["code"]) for each in refused.json()["errors"]] == [
        ("spec.mesh_range", "mesh_range")
    ]
