"""Drives that runs name: who may use them, where that places workers, and what their machines mount."""

import json

import pytest

from common.errors import Conflict, Invalid
from machines.drives import drive_change, drive_data, drive_find, drive_remove
from machines.models import DataVolume, Machine, Pool
from machines.operations import machine_remove
from runs.desired import desired_load
from runs.editing import run_edit
from runs.explanations import explanation_of
from runs.models import Assignment
from runs.presentation import run_reason
from runs.scheduling import apply
from runs.scheduling.passes import cluster_pass
from runs.scheduling.ports import port_choose
from runs.scheduling.snapshot import cluster_load
from runs.services import run_submit
from runs.states import WaitKind
from tenancy.models import AuditEvent, Workspace
from tests import factories
from tests.runs.drives import document_with, drive, local, ref, submitted
from tests.support.gangs import replaced

pytestmark = pytest.mark.django_db


@pytest.fixture
def ana(house):
    return factories.actor_of(house.ana)


def errors_of(house, bea, document) -> list[tuple[str, str, str]]:
    with pytest.raises(Invalid) as refused:
        run_submit(workspace=house.workspace, actor=bea, text=json.dumps(document))
    return [(each.path, each.code, each.message) for each in refused.value.errors]


# --- Making drives -----------------------------------------------------------------------------------


def test_what_owners_do_is_audited(house, machines, ana):
    made = drive(house, "imagenet", read_only=True)
    drive_change(drive=made, actor=ana, path="/mnt/imagenet")
    drive_change(drive=made, actor=ana, access={})
    drive_remove(drive=made, actor=ana)
    drive_remove(drive=made, actor=ana)  # idempotent

    first = {
        "name": "imagenet",
        "kind": "shared",
        "path": "/srv/imagenet",
        "pool": None,
        "machine": None,
        "reach": None,
        "workspaces": {"vision": "read"},
    }
    then = {**first, "path": "/mnt/imagenet"}
    last = {**then, "workspaces": {}}
    events = AuditEvent.objects.filter(action__startswith="drive.").order_by("id")
    assert [(event.action, event.before, event.after) for event in events] == [
        ("drive.create", None, first),
        ("drive.change", first, then),
        ("drive.change", then, last),
        ("drive.remove", last, None),
    ]


@pytest.mark.parametrize(
    ("order", "errors"),
    [
        ({"name": "A B"}, [("name", "bad_name")]),
        ({"path": "srv"}, [("path", "bad_path")]),
        ({"path": "/"}, [("path", "bad_path")]),
        ({"path": "/srv/../etc"}, [("path", "bad_path")]),
        ({"path": "/proc/1"}, [("path", "bad_path")]),
        ({"kind": "nfs"}, [("kind", "not_a_choice")]),
        ({"kind": "machine"}, [("machine", "unknown_machine")]),
        ({"kind": "machine", "machine": "gpu-77"}, [("machine", "unknown_machine")]),
        ({"kind": "machine", "machine": "gpu-01", "pool": "h100"}, [("pool", "not_shared")]),
        ({"machine": "gpu-01"}, [("machine", "not_shared")]),
        ({"pool": "a100"}, [("pool", "unknown_pool")]),
        ({"reach": "network"}, [("reach", "not_shared")]),
        ({"kind": "machine", "machine": "gpu-01", "reach": "far"}, [("reach", "not_a_choice")]),
        ({"access": {"secret": True}}, [("workspaces", "unknown_workspace")]),  # of another organization
        ({"name": "", "path": ""}, [("name", "bad_name"), ("path", "bad_path")]),
    ],
)
def test_drives_that_can_t_be(house, machines, order, errors):
    with pytest.raises(Invalid) as refused:
        drive(house, order.pop("name", "imagenet"), **order)
    assert [(each.path, each.code) for each in refused.value.errors] == errors


def test_a_drive_s_name_is_taken_once_in_a_cluster(house, machines):
    drive(house, "imagenet")
    with pytest.raises(Conflict, match="main has a drive `imagenet` already"):
        local(house, "imagenet")


def test_a_machine_that_is_removed_takes_its_drives_along(house, machines, ana):
    local(house, "scratch")
    drive(house, "imagenet")
    machine_remove(machine=Machine.objects.get(name="gpu-02"), actor=ana)

    assert [each.name for each in DataVolume.objects.all()] == ["imagenet"]
    assert AuditEvent.objects.get(action="machine.remove").before == {"pool": "h100", "drives": ["scratch"]}


# --- Placement ---------------------------------------------------------------------------------------


def test_placement_sees_which_machines_have_which_drive(house, machines):
    other = Pool.objects.create(cluster=house.cluster, slug="a100", name="A100")
    Machine.objects.filter(id=factories.machine_make(house, "gpu-03").id).update(pool=other)
    drive(house, "everywhere")
    drive(house, "pooled", pool="h100")
    local(house, "scratch", "gpu-03")
    local(house, "export", "gpu-01", reach="network")

    topology = cluster_load(house.cluster).snapshot.topology
    assert topology.names == ("gpu-01", "gpu-02", "gpu-03")
    has = {
        name: [bool(word >> bit & 1) for word in topology.drives[:, 0].tolist()]
        for bit, name in enumerate(topology.drive_names)
    }
    assert has == {
        "everywhere": [True, True, True],
        "export": [True, True, True],
        "pooled": [True, True, False],
        "scratch": [False, False, True],
    }


def test_a_drive_on_one_machine_places_the_worker_there(house, machines):
    local(house, "scratch", "gpu-02")
    gang = replaced(submitted(house, document_with(ref("scratch", read_only=False, sub_path="runs/7"))))

    [member] = gang.members
    assert member.machine.name == "gpu-02"
    [assignment] = desired_load(member.machine_id)[1].assignments
    assert [mount.model_dump() for mount in assignment.mounts] == [
        {
            "drive": "scratch",
            "source": "/srv/scratch",
            "mount_path": "/data/scratch",
            "read_only": False,
            "sub_path": "runs/7",
        }
    ]


def test_a_shared_drive_is_mounted_by_every_worker(house, machines):
    drive(house, "imagenet")
    gang = replaced(submitted(house, document_with(ref("imagenet"), machines=2)))

    assert [member.launch["mounts"][0]["source"] for member in gang.members] == ["/srv/imagenet"] * 2


def test_a_run_waits_for_the_machine_that_has_its_drive(house, machines):
    local(house, "scratch", "gpu-02")
    replaced(submitted(house, document_with(ref("scratch"), name="first")))
    second = submitted(house, document_with(ref("scratch"), name="second"))
    cluster_pass(house.cluster.id)

    assert (second.fresh.state, second.fresh.wait_kind) == ("Pending", WaitKind.FIT)
    rows = explanation_of(second.fresh)["machines"]
    told = {machine: row for row in rows for machine in row["machines"]}
    assert told["gpu-01"]["text"] == "Cannot mount drive scratch; 8 of 8 GPUs free"


def test_a_drive_on_no_machine_of_the_run_s_pools_can_never_start(house, machines):
    other = Pool.objects.create(cluster=house.cluster, slug="a100", name="A100")
    drive(house, "imagenet", pool=other.slug)
    gang = submitted(house, document_with(ref("imagenet")))
    cluster_pass(house.cluster.id)

    assert gang.fresh.wait_kind == WaitKind.NEVER


# --- Submission --------------------------------------------------------------------------------------


def test_a_drive_that_the_workspace_may_not_use_is_none(house, machines, bea, ana):
    drive(house, "imagenet", read_only=True)
    Workspace.objects.create(organization=house.organization, slug="audio", name="Audio")
    drive(house, "speech", access={"audio": False})

    assert errors_of(house, bea, document_with(ref("imagenett"), ref("speech"))) == [
        (
            "spec.task_template.datavolume_refs[0].name",
            "unknown_drive",
            (
                "vision may use no drive `imagenett` in main; did you mean `imagenet`? An owner of acme opens "
                "drives to workspaces."
            ),
        ),
        (
            "spec.task_template.datavolume_refs[1].name",
            "unknown_drive",
            "vision may use no drive `speech` in main. An owner of acme opens drives to workspaces.",
        ),
    ]


def test_a_drive_that_may_only_be_read_is_not_written(house, machines, bea):
    drive(house, "imagenet", read_only=True)

    assert errors_of(house, bea, document_with(ref("imagenet", read_only=False))) == [
        (
            "spec.task_template.datavolume_refs[0].read_only",
            "drive_read_only",
            (
                "vision may only read the drive `imagenet`. Leave `read_only` out, or ask an owner to let the "
                "workspace write to it."
            ),
        )
    ]


def test_several_machines_can_t_use_a_drive_on_one(house, machines, bea):
    local(house, "scratch", "gpu-02")

    assert errors_of(house, bea, document_with(ref("scratch"), machines=2)) == [
        (
            "spec.task_template.datavolume_refs[0].name",
            "drive_on_one_machine",
            (
                "The drive `scratch` lies on gpu-02 and only workers there reach it, so 2 workers on as many machines "
                "can't use it. Ask for one machine, or use a shared drive."
            ),
        )
    ]


def test_two_groups_that_name_a_drive_on_one_machine_are_on_two_machines(house, machines, bea):
    local(house, "scratch", "gpu-02")
    document = document_with(ref("scratch"))
    template = document["spec"].pop("task_template")
    document["spec"]["worker_groups"] = [
        {"name": "a", "task_template": template},
        {"name": "b", "task_template": template},
    ]

    assert [(path, code) for path, code, _ in errors_of(house, bea, document)] == [
        (f"spec.worker_groups[{number}].task_template.datavolume_refs[0].name", "drive_on_one_machine")
        for number in (0, 1)
    ]


def test_a_shape_that_is_open_settles_on_one_machine(house, machines):
    local(house, "scratch", "gpu-02")
    document = document_with(ref("scratch"), ref("scratch", "/again"))
    del document["spec"]["task_template"]["requested_resources"]["machines"]
    [member] = replaced(submitted(house, document)).members

    assert member.machine.name == "gpu-02"
    assert [mount["mount_path"] for mount in member.launch["mounts"]] == ["/data/scratch", "/again"]


def test_drives_on_different_machines_are_never_together(house, machines, bea):
    local(house, "scratch", "gpu-02")
    local(house, "models", "gpu-01")

    assert errors_of(house, bea, document_with(ref("scratch"), ref("models"))) == [
        (
            "spec.task_template.datavolume_refs[1].name",
            "drives_apart",
            "The drive `models` lies on gpu-01, and `scratch` on gpu-02: no worker can mount both. Leave one out.",
        )
    ]


# --- Afterwards --------------------------------------------------------------------------------------


def test_a_drive_that_is_closed_keeps_its_runs_waiting(house, machines, ana):
    made = drive(house, "imagenet")
    reads = submitted(house, document_with(ref("imagenet"), name="reads"))
    writes = submitted(house, document_with(ref("imagenet", read_only=False), name="writes"))

    drive_change(drive=made, actor=ana, access={"vision": True})
    cluster_pass(house.cluster.id)
    assert reads.fresh.state == "Starting"
    assert (writes.fresh.wait_kind, run_reason(writes.fresh)) == (
        "policy",
        "The workspace may only read the drive imagenet now, and this run writes to it. Edit the run.",
    )

    drive_remove(drive=made, actor=ana)
    cluster_pass(house.cluster.id)
    assert run_reason(writes.fresh) == (
        "The workspace may no longer use the drive imagenet. An owner can open it again; or edit the run."
    )
    assert reads.members[0].launch["mounts"][0]["source"] == "/srv/imagenet", "what runs keeps it"


def test_a_placement_that_a_drive_has_left_meanwhile_is_not_made(house, machines, ana, monkeypatch):
    """The pass saw the drive; when its placement is written, it is gone."""
    made = drive(house, "imagenet")
    gang = submitted(house, document_with(ref("imagenet")))

    def meanwhile(*arguments):
        drive_remove(drive=made, actor=ana)
        return port_choose(*arguments)

    monkeypatch.setattr(apply, "port_choose", meanwhile)
    cluster_pass(house.cluster.id)

    assert gang.fresh.state == "Pending"
    assert Assignment.objects.count() == 0


def test_a_run_that_needs_fewer_drives_keeps_its_place_in_the_queue(house, machines, bea):
    drive(house, "imagenet")
    drive(house, "models")
    gang = submitted(house, document_with(ref("imagenet")))
    queued_at = gang.fresh.queued_at

    run_edit(run=gang.fresh, actor=bea, text=json.dumps(document_with()))
    assert gang.fresh.queued_at == queued_at
    run_edit(run=gang.fresh, actor=bea, text=json.dumps(document_with(ref("models"))))
    assert gang.fresh.queued_at > queued_at


def test_a_path_that_changes_counts_for_the_next_attempt(house, machines, ana):
    made = drive(house, "imagenet")
    gang = submitted(house, document_with(ref("imagenet")))
    drive_change(drive=made, actor=ana, path="/mnt/elsewhere")

    assert replaced(gang).members[0].launch["mounts"][0]["source"] == "/mnt/elsewhere"
    assert drive_data(drive_find(house.cluster, "imagenet"))["path"] == "/mnt/elsewhere"
