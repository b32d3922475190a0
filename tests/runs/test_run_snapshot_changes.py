"""Whatever placement sees differently is seen by the kept snapshot, whoever wrote it and however."""

from collections.abc import Callable
from operator import methodcaller
from random import Random
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from machines.models import Cluster, DataVolume, Fabric, Gpu, Machine, MachineLabel, Pool, RdmaPort
from machines.services import machine_cordon, machine_label_set, machine_uncordon, machines_revise
from machines.states import FABRIC_LABEL, RACK_LABEL
from runs.models import Allocation, Assignment
from runs.scheduling.snapshot import cluster_snapshot
from tests import factories
from tests.factories import House
from tests.runs.kept import World, elsewhere, keep_nothing, now, only_patch, world_make

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    keep_nothing(monkeypatch)
    only_patch(monkeypatch)


@pytest.fixture
def world(house, machines) -> World:
    return world_make(house, machines)


def _release(world: World) -> None:
    Allocation.objects.filter(machine=world.fleet[0]).update(released_at=timezone.now())


def _release_and_revise(world: World) -> None:
    with transaction.atomic():
        _release(world)
        machines_revise([world.fleet[0].id], placement_changed=True)


def _delete_machine(world: World) -> None:
    world.fleet[3].delete()


def _delete_by_sql(world: World) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM machines_gpu WHERE machine_id = %s", [world.fleet[3].id])
        cursor.execute("DELETE FROM machines_machine WHERE id = %s", [world.fleet[3].id])


def _move_cluster(world: World) -> None:
    other = Cluster.objects.create(organization=world.house.organization, slug="other", name="Other")
    Machine.objects.filter(id=world.fleet[3].id).update(cluster=other)


def _move_gpu(world: World) -> None:
    Gpu.objects.filter(machine=world.fleet[3], index=7).update(machine=world.fleet[2], index=8)


def _swap_names(world: World) -> None:
    for machine, name in ((world.fleet[0], "x"), (world.fleet[3], "gpu-01"), (world.fleet[0], "gpu-04")):
        Machine.objects.filter(id=machine.id).update(name=name)


def _label_on_storage(world: World) -> None:
    """The marked fabric has no port of its own: a label puts a machine's ports on it."""
    MachineLabel.objects.create(machine=world.fleet[0], key=FABRIC_LABEL, value="vault")
    cluster_snapshot(world.house.cluster)
    Fabric.objects.create(cluster=world.house.cluster, key="0x1", name="vault", storage=True)


def _drive(world: World, **fields: Any) -> None:
    values = {"name": "data", "kind": "shared", "path": "/srv", "changed_at": timezone.now(), **fields}
    DataVolume.objects.create(cluster=world.house.cluster, **values)


def _drive_then(world: World, change: Callable[[Any], Any]) -> None:
    _drive(world)
    cluster_snapshot(world.house.cluster)
    change(DataVolume.objects.all())


def _drive_moves(world: World) -> None:
    _drive(world, pool=world.house.pool)
    cluster_snapshot(world.house.cluster)
    DataVolume.objects.update(pool=Pool.objects.create(cluster=world.house.cluster, slug="a100", name="A100"))


CHANGES: dict[str, Callable[[World], Any]] = {
    "a machine is added": lambda world: factories.machine_make(world.house, "gpu-00"),
    "a machine is removed": lambda world: Machine.objects.filter(id=world.fleet[0].id).update(
        removed_at=timezone.now()
    ),
    "a machine is deleted": _delete_machine,
    "a machine is deleted by SQL": _delete_by_sql,
    "a machine moves to another cluster": _move_cluster,
    "a machine is renamed": lambda world: Machine.objects.filter(id=world.fleet[0].id).update(name="a"),
    "two machines swap their names": _swap_names,
    "the version alone": lambda world: Machine.objects.filter(id=world.fleet[0].id).update(version=9),
    "cores": lambda world: Machine.objects.filter(id=world.fleet[0].id).update(cpu_cores=4),
    "memory": lambda world: Machine.objects.filter(id=world.fleet[0].id).update(memory_bytes=4),
    "first heard of": lambda _: Machine.objects.update(last_seen_at=None),
    "unreachable": lambda _: Machine.objects.update(unreachable_at=timezone.now()),
    "quarantined": lambda _: Machine.objects.update(quarantined_at=timezone.now()),
    "two agents": lambda _: Machine.objects.update(two_agents_at=timezone.now()),
    "cordoned": lambda world: machine_cordon(
        machine=world.fleet[0], actor=factories.actor_of(world.house.ana)
    ),
    "draining": lambda _: Machine.objects.update(draining_at=timezone.now()),
    "another pool": lambda world: Machine.objects.filter(id=world.fleet[0].id).update(
        pool=Pool.objects.create(cluster=world.house.cluster, slug="a100", name="A100")
    ),
    "a pool's name": lambda _: Pool.objects.update(slug="renamed"),
    "a GPU's health": lambda world: Gpu.objects.filter(machine=world.fleet[2], index=1).update(
        health="faulty"
    ),
    "a GPU's model": lambda world: Gpu.objects.filter(machine=world.fleet[2]).update(model="H200"),
    "a GPU is gone": lambda world: Gpu.objects.filter(machine=world.fleet[2], index=0).update(present=False),
    "a GPU is new": lambda world: Gpu.objects.create(
        machine=world.fleet[2], uuid="new", index=8, product="", model="H100", memory_bytes=1
    ),
    "a GPU's node": lambda world: Gpu.objects.filter(machine=world.fleet[2], index__gt=3).update(numa_node=1),
    "a GPU moves": _move_gpu,
    "GPUs of one domain": lambda world: Gpu.objects.filter(machine=world.fleet[2]).update(
        nvlink_domain="d/1"
    ),
    "a port is down": lambda world: RdmaPort.objects.filter(machine=world.fleet[2]).update(state="DOWN"),
    "a port's speed": lambda _: RdmaPort.objects.filter(device="mlx5_1").update(rate_gbps=200),
    "a port's fabric": lambda world: RdmaPort.objects.filter(machine=world.fleet[2]).update(
        fabric=world.house.fabrics["ib-a"]
    ),
    "a port is gone": lambda world: RdmaPort.objects.filter(machine=world.fleet[2], device="mlx5_0").delete(),
    "a label is set": lambda world: machine_label_set(
        machine=world.fleet[2], key=RACK_LABEL, value="r1", actor=factories.actor_of(world.house.ana)
    ),
    "labels by bulk": lambda _: MachineLabel.objects.update(value="r7"),
    "labels are gone": lambda _: MachineLabel.objects.all().delete(),
    "a fabric is storage": lambda _: Fabric.objects.filter(name="ib-a").update(storage=True),
    "a fabric's name": lambda _: Fabric.objects.filter(name="ib-a").update(name="ib-z"),
    "a fabric that a label names is storage": _label_on_storage,
    "a run leaves": _release,
    "a run leaves, as services write it": _release_and_revise,
    "what a run held is deleted": lambda _: Allocation.objects.all().delete(),
    "a run takes": lambda world: Allocation.objects.create(
        assignment=Assignment.objects.all()[0],
        machine=world.fleet[2],
        gpu=world.fleet[2].gpus.all()[0],
        created_at=timezone.now(),
    ),
    "a shared drive": _drive,
    "a drive on one machine": lambda world: _drive(world, kind="machine", machine=world.fleet[2]),
    "a drive of a pool is another's": _drive_moves,
    "a drive's name": lambda world: _drive_then(world, lambda drives: drives.update(name="renamed")),
    "a drive is gone": lambda world: _drive_then(world, methodcaller("delete")),
    "what a run holds is corrected": lambda _: Allocation.objects.filter(gpu=None).update(cpu_cores=1),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_every_change_is_seen(world, change):
    before = now(world.house)
    change(world)
    after = now(world.house)

    assert (after.snapshot is not before.snapshot) or (after.versions != before.versions)


@pytest.mark.parametrize("seed", range(4))
def test_any_sequence_of_changes(world, seed):
    """Forty changes and more drawn at random, some by a transaction that commits only after later ones."""
    random = Random(seed)
    drawn = Changes(world.house, random)
    now(world.house)
    for _ in range(8):
        late = random.choice(world.fleet)
        with elsewhere() as execute:
            execute("UPDATE machines_gpu SET health = 'suspect' WHERE machine_id = %s", [late.id])
            for _ in range(5):
                drawn.one(but=late)
                now(world.house)
        now(world.house)


class Changes:
    """Draws changes of a cluster."""

    def __init__(self, house: House, random: Random) -> None:
        self.house, self.random = house, random
        self.ana = factories.actor_of(house.ana)
        self.made = 0

    def one(self, *, but: Machine) -> None:
        """A change that touches no row of the machine `but`."""
        machines = list(Machine.objects.exclude(id=but.id).order_by("id"))
        change = self.random.choice((self.cordon, self.label, self.take, self.leave, self.flap))
        change(self.random.choice(machines))
        if self.random.random() < 0.2:
            self.add()
        if self.random.random() < 0.2 and len(machines) > 2:
            self.gone(self.random.choice(machines))
        if self.random.random() < 0.2:
            fabric = self.random.choice(list(Fabric.objects.order_by("id")))
            Fabric.objects.filter(id=fabric.id).update(storage=not fabric.storage)

    def cordon(self, machine: Machine) -> None:
        (machine_uncordon if machine.cordoned_at else machine_cordon)(machine=machine, actor=self.ana)

    def label(self, machine: Machine) -> None:
        key, value = self.random.choice(
            ((RACK_LABEL, "r1"), (RACK_LABEL, "r8"), (FABRIC_LABEL, "ib-b"), ("zone", "a"))
        )
        machine_label_set(machine=machine, key=key, value=value, actor=self.ana)

    def take(self, machine: Machine) -> None:
        held = Allocation.objects.filter(released_at=None, gpu__isnull=False).values("gpu")
        assignment = Assignment.objects.all()[0]
        for gpu in machine.gpus.exclude(id__in=held)[:3]:
            Allocation.objects.create(
                assignment=assignment, machine=machine, gpu=gpu, cpu_cores=0.1, created_at=timezone.now()
            )

    def leave(self, machine: Machine) -> None:
        Allocation.objects.filter(machine=machine).update(released_at=timezone.now())

    def flap(self, machine: Machine) -> None:
        state = self.random.choice(("ACTIVE", "DOWN"))
        RdmaPort.objects.filter(machine=machine, device=f"mlx5_{self.random.randrange(8)}").update(
            state=state
        )

    def add(self) -> None:
        self.made += 1
        names = self.random.choice(("gpu-", "a-", "z-"))
        fabric = self.random.choice(("ib-a", "ib-c", None))
        factories.machine_make(
            self.house, f"{names}1{self.made}", gpus=self.random.choice((0, 4, 8)), fabric=fabric
        )

    def gone(self, machine: Machine) -> None:
        Machine.objects.filter(id=machine.id).update(removed_at=timezone.now())
