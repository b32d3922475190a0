"""A fleet as rows of a real database: its machines with all they have, and its tenants as runs that hold their GPUs.

The large tables are filled by COPY: 10,000 machines with 80,000 GPUs, as many ports and 72,000 allocations in seconds.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, models, transaction
from psycopg.types.json import Jsonb

from benchmarks._fleet import CORES_PER_GPU, MEMORY_PER_GPU, STORAGE_FABRIC, Fleet, Tenant
from common.clock import database_now
from machines.models import Cluster, Fabric, Gpu, Machine, MachineLabel, Pool, RdmaPort, WorkspacePool
from machines.states import NVLINK_DOMAIN_LABEL, RACK_LABEL, Health, LinkLayer
from placement import GpuFacts, MachineFacts, MachineState, PortFacts
from runs.models import Allocation, Assignment, Run, RunAttempt, Worker
from runs.states import AttemptState, Phase, RunState, WorkerState
from tenancy.models import Organization, Workspace
from wire.spec import parse_document

RAN_FOR = timedelta(hours=1)
"""All tenants started this long ago."""


@dataclass
class _Home:
    """What there is few of, and the time that everything is written with."""

    workspace: Workspace
    cluster: Cluster
    pools: dict[str, int]
    fabrics: dict[str, int]
    now: datetime
    machines: dict[str, int] = field(default_factory=dict)
    """Name → id."""
    gpus: dict[tuple[str, int], int] = field(default_factory=dict)
    """Machine's name and index → id."""


@transaction.atomic
def _fill(fleet: Fleet, slug: str) -> _Home:
    home = _home_make(fleet, slug)
    _machines_write(home, fleet.machines)
    _runs_write(home, fleet.tenants)
    return home


def cluster_fill(fleet: Fleet, *, slug: str = "bench") -> Cluster:
    """Writes the fleet into the migrated database of Django's settings, as the cluster `slug` of a new organization.

    One workspace of that organization, `slug` too, may use all pools and owns the runs. Drives are left out: machines
    report none yet. Statistics are made at once, as they are some time after so much has been written.
    """
    home = _fill(fleet, slug)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return home.cluster


def _home_make(fleet: Fleet, slug: str) -> _Home:
    organization = Organization.objects.create(slug=slug, name=slug)
    workspace = Workspace.objects.create(organization=organization, slug=slug, name=slug)
    cluster = Cluster.objects.create(organization=organization, slug=slug, name=slug)
    pools = {
        name: Pool.objects.create(cluster=cluster, slug=name, name=name).id
        for name in sorted({machine.pool for machine in fleet.machines})
    }
    for pool in pools.values():
        WorkspacePool.objects.create(workspace=workspace, pool_id=pool)
    named = sorted({port.fabric for machine in fleet.machines for port in machine.ports if port.fabric})
    fabrics = {
        name: Fabric.objects.create(cluster=cluster, key=name, name=name, storage=name == STORAGE_FABRIC).id
        for name in named
    }
    return _Home(workspace, cluster, pools, fabrics, database_now())


def _machines_write(home: _Home, machines: Iterable[MachineFacts]) -> None:
    machines = list(machines)
    first = _first_id(Machine)
    home.machines = {machine.name: first + number for number, machine in enumerate(machines)}
    copy_rows(Machine, (_machine(home, machine) for machine in machines))
    gpus = [(machine, gpu) for machine in machines for gpu in machine.gpus]
    first = _first_id(Gpu)
    home.gpus = {(machine.name, gpu.index): first + number for number, (machine, gpu) in enumerate(gpus)}
    copy_rows(Gpu, (_gpu(home, machine, gpu) for machine, gpu in gpus))
    copy_rows(RdmaPort, (_port(home, machine, port) for machine in machines for port in machine.ports))
    copy_rows(MachineLabel, (row for machine in machines for row in _labels(home, machine)))


def _machine(home: _Home, facts: MachineFacts) -> dict[str, Any]:
    state = facts.state
    return {
        "id": home.machines[facts.name],
        "cluster_id": home.cluster.id,
        "pool_id": home.pools[facts.pool],
        "name": facts.name,
        "created_at": home.now,
        "address": facts.name,
        "runtime": "bubblewrap",
        "simulated": True,
        "cpu_cores": facts.cpu_millicores // 1000,
        "memory_bytes": facts.memory_bytes,
        "last_seen_at": home.now,
        "unreachable_at": home.now if state & MachineState.UNREACHABLE else None,
        "quarantined_at": home.now if state & MachineState.QUARANTINED else None,
        "two_agents_at": home.now if state & MachineState.CONTESTED else None,
        "cordoned_at": home.now if state & MachineState.CORDONED else None,
        "draining_at": home.now if state & MachineState.DRAINING else None,
    }


def _gpu(home: _Home, machine: MachineFacts, gpu: GpuFacts) -> dict[str, Any]:
    health = Health.FAULTY if gpu.faulty else Health.SUSPECT if gpu.suspect else Health.HEALTHY
    return {
        "id": home.gpus[machine.name, gpu.index],
        "machine_id": home.machines[machine.name],
        "uuid": f"GPU-{machine.name}-{gpu.index}",
        "index": gpu.index,
        "product": f"NVIDIA {gpu.model}",
        "model": gpu.model,
        "memory_bytes": gpu.memory_bytes,
        "numa_node": None if gpu.numa < 0 else gpu.numa,
        "health": health.value,
    }


def _port(home: _Home, machine: MachineFacts, port: PortFacts) -> dict[str, Any]:
    device, _, number = port.name.partition(":")
    layer = LinkLayer.INFINIBAND if port.link == "infiniband" else LinkLayer.ETHERNET
    return {
        "machine_id": home.machines[machine.name],
        "device": device,
        "port": int(number),
        "link_layer": layer.value,
        "state": "ACTIVE" if port.up else "DOWN",
        "rate_gbps": port.gbps,
        "fabric_id": home.fabrics.get(port.fabric or ""),
    }


def _labels(home: _Home, facts: MachineFacts) -> Iterable[dict[str, Any]]:
    places = {RACK_LABEL: facts.rack, NVLINK_DOMAIN_LABEL: facts.nvlink_domain}
    for key, value in {**facts.labels, **places}.items():
        if value:
            machine = home.machines[facts.name]
            yield {"machine_id": machine, "key": key, "value": value, "found": True, "set_at": home.now}


def _runs_write(home: _Home, tenants: Iterable[Tenant]) -> None:
    """Every tenant as a run that has been running for an hour."""
    tenants = list(tenants)
    first = {model: _first_id(model) for model in (Run, RunAttempt, Worker)}
    workers = [
        (number, rank, name) for number, each in enumerate(tenants) for rank, name in enumerate(each.holds)
    ]
    assignments = [uuid.uuid4() for _ in workers]
    copy_rows(Run, (_run(home, each, first[Run] + number) for number, each in enumerate(tenants)))
    copy_rows(
        RunAttempt,
        (
            _attempt(home, each, first[RunAttempt] + number, first[Run] + number)
            for number, each in enumerate(tenants)
        ),
    )
    copy_rows(
        Worker,
        (
            {
                "id": first[Worker] + row,
                "run_id": first[Run] + number,
                "rank": rank,
                "group_rank": rank,
                "name": f"{tenants[number].name}-{rank}",
                "state": WorkerState.RUNNING.value,
            }
            for row, (number, rank, _) in enumerate(workers)
        ),
    )
    copy_rows(
        Assignment,
        (
            _assignment(home, home.machines[name])
            | {
                "id": assignments[row],
                "attempt_id": first[RunAttempt] + number,
                "worker_id": first[Worker] + row,
            }
            for row, (number, _, name) in enumerate(workers)
        ),
    )
    copy_rows(
        Allocation,
        (
            allocation
            for assignment, (number, _, name) in zip(assignments, workers, strict=True)
            for allocation in _allocations(home, assignment, name, tenants[number].holds[name])
        ),
    )


def _run(home: _Home, tenant: Tenant, id_: int) -> dict[str, Any]:
    text = _document(tenant)
    return {
        "id": id_,
        "workspace_id": home.workspace.id,
        "cluster_id": home.cluster.id,
        "name": tenant.name,
        "document": parse_document(text).filled(),
        "submitted": text,
        "state": RunState.RUNNING.value,
        "attempt_no": 1,
        "created_at": home.now - RAN_FOR,
        "queued_at": home.now - RAN_FOR,
        "placed_at": home.now - RAN_FOR,
        "started_at": home.now - RAN_FOR,
        "changed_at": home.now - RAN_FOR,
    }


def _document(tenant: Tenant) -> str:
    machines = len(tenant.holds)
    gpus = sum(len(held) for held in tenant.holds.values())
    resources = {
        "gpu_requests": {"count": gpus},
        "machines": machines,
        "per_gpu": {"cpu_cores": CORES_PER_GPU, "memory_bytes": MEMORY_PER_GPU},
    }
    limit = (
        {}
        if tenant.ends_in is None
        else {"time_limit_seconds": int(RAN_FOR.total_seconds() + tenant.ends_in)}
    )
    command = {"image": "none", "command": "sleep", "args": ["inf"]}
    template = {**command, **limit, "requested_resources": resources}
    return json.dumps({"metadata": {"name": tenant.name}, "spec": {"task_template": template}})


def _attempt(home: _Home, tenant: Tenant, id_: int, run_id: int) -> dict[str, Any]:
    machines, began = list(tenant.holds), home.now - RAN_FOR
    return {
        "id": id_,
        "run_id": run_id,
        "number": 1,
        "state": AttemptState.RUNNING.value,
        "network": "one_machine" if len(machines) == 1 else "ib_fabric",
        "shape": [{"machines": len(machines), "gpus": len(tenant.holds[machines[0]])}],
        "leader_address": machines[0],
        "master_port": 29500,
        "pass_no": 0,
        "placed_at": began,
        "opened_at": began,
        "running_at": began,
        "time_limit_at": None if tenant.ends_in is None else home.now + timedelta(seconds=tenant.ends_in),
    }


def _assignment(home: _Home, machine_id: int) -> dict[str, Any]:
    began = home.now - RAN_FOR
    return {
        "machine_id": machine_id,
        "state": WorkerState.RUNNING.value,
        "phase": Phase.START.value,
        "revision": 1,
        "launch": {},
        "placed_at": began,
        "ready_at": began,
        "started_at": began,
    }


def _allocations(
    home: _Home, assignment: uuid.UUID, machine: str, gpus: tuple[int, ...]
) -> Iterable[dict[str, Any]]:
    base = {
        "assignment_id": assignment,
        "machine_id": home.machines[machine],
        "created_at": home.now - RAN_FOR,
    }
    for index in gpus:
        yield {**base, "gpu_id": home.gpus[machine, index]}
    yield {**base, "cpu_cores": CORES_PER_GPU * len(gpus), "memory_bytes": MEMORY_PER_GPU * len(gpus)}


def copy_rows(model: type[models.Model], rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes rows, all with the same fields or fewer than the first, by COPY; what is left out has its default.

    Rows that bring their numbers as "id" must begin at `_first_id` and end with the largest.
    """
    given = list(rows)
    if not given:
        return
    meta = model._meta  # noqa: SLF001 - Django's documented name
    numbered = isinstance(given[0].get("id"), int)
    columns = [each for each in meta.concrete_fields if each.attname != "id" or "id" in given[0]]
    names = ", ".join(f'"{each.column}"' for each in columns)
    values = _values_of(columns)
    with connection.cursor() as cursor:
        with cursor.copy(f"COPY {meta.db_table} ({names}) FROM STDIN") as copy:
            for row in given:
                copy.write_row(values(row))
        if numbered:
            last = [meta.db_table, given[-1]["id"]]
            cursor.execute("SELECT setval(pg_get_serial_sequence(%s, 'id'), %s)", last)


def _values_of(columns: "list[models.Field[Any, Any]]") -> Callable[[Mapping[str, Any]], list[Any]]:
    """Gives a row's values in the order of these columns."""
    place = {each.attname: number for number, each in enumerate(columns)}
    json_ = {each.attname for each in columns if isinstance(each, models.JSONField)}
    defaults = [
        Jsonb(each.get_default()) if each.attname in json_ and each.has_default() else each.get_default()
        for each in columns
    ]

    def values(row: Mapping[str, Any]) -> list[Any]:
        found = defaults.copy()
        for name, value in row.items():
            found[place[name]] = Jsonb(value) if name in json_ else value
        return found

    return values


def _first_id(model: type[models.Model]) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval(pg_get_serial_sequence(%s, 'id'))", [model._meta.db_table])  # noqa: SLF001
        return int(cursor.fetchone()[0])
