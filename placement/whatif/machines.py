"""Changes to machines: what an administrator or a visit to the machine can bring back.

Of many machines with the same trouble, as few are changed as some domain lacks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from placement.arrays import UNKNOWN, Bools, Ints, Longs, read_only
from placement.ask import Ask
from placement.domains import slots_of
from placement.facts import MachineState
from placement.outcome import Cause, GroupPlacement, Placement
from placement.room import must_share
from placement.rules import MachineOutcome
from placement.search import Judgement
from placement.shapes import Shape
from placement.snapshot import (
    FREE_HEALTHY,
    GPU_FAULTY,
    GPU_SUSPECT,
    Snapshot,
    from_gpu_state,
)
from placement.topology import INFINIBAND, ROCE, Topology, on_compute_fabric, owners, ports_at
from placement.whatif.bench import Bench, Case, frees_enough
from placement.whatif.changes import Change, Code, WhatIf
from placement.whatif.terrain import BROUGHT_UP, with_ports_up

Target = dict[str, Any]

_MOST_DROPPED = 8
"""Machines of an offer that are tried without, where counting alone does not tell which are needed."""


@dataclass(frozen=True)
class Need:
    """Machines of one domain that a gang in this shape lacks."""

    machines: Longs
    shape: Shape
    fabric: int
    """The domain's fabric; UNKNOWN where none plays a part."""


class Lift(Protocol):
    """One kind of trouble and its remedy."""

    @property
    def code(self) -> Code: ...

    @property
    def changes(self) -> tuple[str, ...]:
        """Fields of the snapshot that it looks at and changes."""

    def eligible(self, snapshot: Snapshot) -> Bools:
        """(machines,): machines with this trouble that the remedy would end."""

    def everywhere(self, snapshot: Snapshot, machines: Longs) -> Snapshot:
        """The cluster without this trouble on these machines."""

    def where(self, snapshot: Snapshot, ask: Ask, need: Need) -> list[Target]:
        """What exactly is to be done, per machine."""

    def done(self, snapshot: Snapshot, targets: list[Target]) -> Snapshot:
        """The cluster after that."""


@dataclass(frozen=True)
class StateLift:
    """A machine that takes no work because of its state alone."""

    code: Code
    marks: MachineState
    """The state has at least one of these; the remedy clears them."""
    beside: int = 0
    """May be set too, and is cleared with them."""
    unready: bool = False
    """The remedy also makes the machine ready; otherwise it must be."""
    changes: tuple[str, ...] = ("state",)

    def eligible(self, snapshot: Snapshot) -> Bools:
        state = snapshot.state
        marked = (state & np.uint8(self.marks)) != 0
        if self.unready:
            marked |= state & np.uint8(MachineState.READY) == 0
        cleared = self._cleared(state)
        return np.asarray(marked & (cleared == np.uint8(MachineState.READY)))

    def _cleared(self, state: Any) -> Any:
        cleared = state & ~np.uint8(int(self.marks) | self.beside)
        return cleared | np.uint8(MachineState.READY) if self.unready else cleared

    def everywhere(self, snapshot: Snapshot, machines: Longs) -> Snapshot:
        state = snapshot.state.copy()
        state[machines] = self._cleared(state[machines])
        return replace(snapshot, state=read_only(state))

    def where(self, snapshot: Snapshot, ask: Ask, need: Need) -> list[Target]:  # noqa: ARG002  (of the protocol)
        return [{"machine": snapshot.names[row]} for row in need.machines.tolist()]

    def done(self, snapshot: Snapshot, targets: list[Target]) -> Snapshot:
        return self.everywhere(snapshot, rows_of(snapshot, targets))


@dataclass(frozen=True)
class GpuLift:
    """GPUs that count as faulty or suspect."""

    code: Code
    bit: int
    changes: tuple[str, ...] = ("gpu_state", "free_healthy", "free_suspect", "suspect", "faulty")

    def eligible(self, snapshot: Snapshot) -> Bools:
        return np.asarray(self._marked(snapshot.gpu_state).any(axis=1))

    def _marked(self, gpu_state: Any) -> Any:
        """Whether mending this makes the GPU free and healthy."""
        return (gpu_state & np.uint8(0xFF ^ (GPU_SUSPECT | self.bit)) == FREE_HEALTHY) & (
            gpu_state & np.uint8(self.bit) != 0
        )

    def everywhere(self, snapshot: Snapshot, machines: Longs) -> Snapshot:
        gpu_state = snapshot.gpu_state.copy()
        part = gpu_state[machines]
        gpu_state[machines] = np.where(self._marked(part), np.uint8(FREE_HEALTHY), part)
        return _recounted(snapshot, gpu_state)

    def where(self, snapshot: Snapshot, ask: Ask, need: Need) -> list[Target]:
        """As few GPUs of each machine as its worker lacks, the first ones."""
        free = ask.gpus.free_healthy if ask.group.healthy_only else ask.gpus.free
        lacking = need.shape.gpus - free[need.machines]
        marked = self._marked(snapshot.gpu_state[need.machines]) & ask.gpu_fits(need.machines)
        index = ask.topology.gpu_index[need.machines]
        return [
            {"machine": snapshot.names[row], "gpus": sorted(index[number][marked[number]].tolist())[:count]}
            for number, (row, count) in enumerate(zip(need.machines.tolist(), lacking.tolist(), strict=True))
            if count > 0
        ]

    def done(self, snapshot: Snapshot, targets: list[Target]) -> Snapshot:
        gpu_state = snapshot.gpu_state.copy()
        for row, target in zip(rows_of(snapshot, targets).tolist(), targets, strict=True):
            gpu_state[row, snapshot.topology.slot_of[row, target["gpus"]]] = FREE_HEALTHY
        return _recounted(snapshot, gpu_state)


@dataclass(frozen=True)
class PortLift:
    """RDMA ports that are down."""

    code: Code = Code.BRING_PORT_UP
    changes: tuple[str, ...] = ("topology",)

    def eligible(self, snapshot: Snapshot) -> Bools:
        topology = snapshot.topology

        def broken() -> Bools:
            owner = owners(topology.ports)[_down(topology)]
            return np.bincount(owner, minlength=topology.size) > 0

        return topology.remember((BROUGHT_UP,), broken)

    def everywhere(self, snapshot: Snapshot, machines: Longs) -> Snapshot:
        topology = snapshot.topology

        def brought_up() -> Topology:
            rows = ports_at(topology.ports, machines)[1]
            return with_ports_up(topology, rows[_down(topology)[rows]])

        return replace(snapshot, topology=topology.remember((BROUGHT_UP, machines.tobytes()), brought_up))

    def where(self, snapshot: Snapshot, ask: Ask, need: Need) -> list[Target]:
        """One port of each machine that has none up: the first that counts on the domain's fabric."""
        ports = snapshot.topology.ports
        rows = ports_at(ports, need.machines)[1]
        rows = rows[on_compute_fabric(ports, snapshot.topology.fabrics)[rows]]
        if ask.kinds:
            rows = rows[np.isin(ports.link[rows], ask.kinds) & (ports.gbps[rows] >= ask.min_gbps)]
        if need.fabric != UNKNOWN:
            rows = rows[ports.fabric[rows] == need.fabric]
        rows = rows[~np.isin(owners(ports)[rows], owners(ports)[rows[ports.up[rows]]])]
        owner, first = np.unique(owners(ports)[rows], return_index=True)
        names = zip(owner.tolist(), rows[first].tolist(), strict=True)
        return [
            {"machine": snapshot.names[machine], "port": ports.names[row], "gbps": int(ports.gbps[row])}
            for machine, row in names
        ]

    def done(self, snapshot: Snapshot, targets: list[Target]) -> Snapshot:
        topology = snapshot.topology
        rows = []
        for machine, target in zip(rows_of(snapshot, targets).tolist(), targets, strict=True):
            start, end = topology.ports.start[machine : machine + 2].tolist()
            rows.append(start + topology.ports.names[start:end].index(target["port"]))
        return replace(snapshot, topology=with_ports_up(topology, np.array(rows, dtype=np.int64)))


def _down(topology: Topology) -> Bools:
    """(ports,): down, and would count if it were up."""
    return np.asarray(on_compute_fabric(topology.ports, topology.fabrics) & ~topology.ports.up)


def _recounted(snapshot: Snapshot, gpu_state: Any) -> Snapshot:
    return from_gpu_state(
        snapshot.topology,
        state=snapshot.state,
        gpu_state=gpu_state,
        cpu_free=snapshot.cpu_free,
        memory_free=snapshot.memory_free,
    )


def rows_of(snapshot: Snapshot, targets: list[Target]) -> Longs:
    row_of = snapshot.topology.row_of
    return np.array([row_of[target["machine"]] for target in targets], dtype=np.int64)


LIFTS: tuple[Lift, ...] = (
    StateLift(Code.UNCORDON, MachineState.CORDONED),
    StateLift(Code.UNDRAIN, MachineState.DRAINING, beside=MachineState.CORDONED),
    StateLift(Code.END_QUARANTINE, MachineState.QUARANTINED, unready=True),
    StateLift(Code.STOP_COPY, MachineState.CONTESTED),
    StateLift(Code.UPDATE_AGENT, MachineState.STALE_AGENT),
    StateLift(Code.BRING_BACK, MachineState.UNREACHABLE, unready=True),
    GpuLift(Code.CLEAR_SUSPECT, GPU_SUSPECT),
    PortLift(),
    GpuLift(Code.REPAIR_GPU, GPU_FAULTY),
)


@dataclass
class Remedy:
    """One lift on one snapshot: tried for many requests, worked out once."""

    lift: Lift
    snapshot: Snapshot
    _alone: dict[int, MachineOutcome] = field(default_factory=dict)
    """Per group, what the rules say with this remedy alone."""

    @cached_property
    def eligible(self) -> Bools:
        return self.lift.eligible(self.snapshot)

    @cached_property
    def everywhere(self) -> Snapshot:
        return self.lift.everywhere(self.snapshot, np.flatnonzero(self.eligible))

    def on(self, snapshot: Snapshot) -> "Remedy":
        """The same lift on a snapshot made from this one; what it changes is worked out once for both."""
        fresh = Remedy(self.lift, snapshot)
        if all(getattr(snapshot, name) is getattr(self.snapshot, name) for name in self.lift.changes):
            fresh.eligible = self.eligible
            if self.eligible.any():
                changed = {name: getattr(self.everywhere, name) for name in self.lift.changes}
                fresh.everywhere = replace(snapshot, **changed)
        return fresh

    def offers(self, bench: Bench, case: Case) -> Iterator[WhatIf]:
        """The remedy on as few machines as are needed."""
        if not self.eligible.any():
            return
        alone = self._alone.get(case.index)
        if case.changes and alone is not None and not frees_enough(case, self.lift.code, alone):
            return
        need = self._need(case)
        if need is None and case.refusal.cause is not Cause.GROUPS_COLLIDE:
            bench.tried += 1
            return
        offer = None
        if need is not None and need.machines.size:
            offer = self._try(bench, case, self.lift.where(self.snapshot, case.ask, need))
        offer = offer or self._uncounted(bench, case)
        if offer is not None:
            yield offer

    def _need(self, case: Case) -> Need | None:
        """The domain and shape that lack fewest machines of those that the remedy brings."""
        after = Judgement(Ask(self.everywhere, case.request, case.index))
        if not case.changes:
            self._alone[case.index] = after.outcome(case.shape)
        needs = [
            need
            for shape in after.ask.shapes
            if (need := _lacking(after, shape, self.eligible & ~case.judgement.outcome(shape).usable))
        ]
        return min(needs, key=lambda need: need.machines.size, default=None)

    def _try(self, bench: Bench, case: Case, targets: list[Target]) -> WhatIf | None:
        if not targets:
            return None
        change = Change(self.lift.code, {"targets": targets})
        return bench.attempt(case, change, snapshot=self.lift.done(self.snapshot, targets))

    def _uncounted(self, bench: Bench, case: Case) -> WhatIf | None:
        """Where groups stand in each other's way: all machines, then only those used, then without each of them."""
        answer = bench.place(self.everywhere, case.request)
        if not isinstance(answer, Placement):
            return None
        targets = self.used(answer, case)
        best = self._try(bench, case, targets)
        for target in targets if 1 < len(targets) <= _MOST_DROPPED else ():
            fewer = [other for other in targets if other != target]
            offer = self._try(bench, case, fewer)
            if offer is not None:
                best, targets = offer, fewer
        return best

    def used(self, placement: Placement, case: Case) -> list[Target]:
        """What must be done for this placement on the cluster without the trouble."""
        targets: list[Target] = []
        for group in placement.groups:
            rows = np.sort(group.machines)
            rows = rows[self.eligible[rows]]
            ask = Ask(self.snapshot, case.request, group.outcome.ask.index)
            targets += self.lift.where(self.snapshot, ask, Need(rows, group.shape, _fabric_of(ask, group)))
        return targets


def _fabric_of(ask: Ask, group: GroupPlacement) -> int:
    """Row of the fabric that joins the group, UNKNOWN when RDMA plays no part."""
    fabrics = ask.topology.fabrics
    link = INFINIBAND if group.transport == "infiniband" else ROCE
    pairs = zip(fabrics.names, fabrics.link.tolist(), strict=True)
    return next((row for row, pair in enumerate(pairs) if pair == (group.fabric, link)), UNKNOWN)


def _lacking(after: Judgement, shape: Shape, brought: Bools) -> Need | None:
    """The domain that needs fewest of the machines `brought`; None when no domain has room even with them."""
    ask, usable = after.ask, after.outcome(shape).usable
    levels = must_share(ask, shape)
    links = ask.kinds if shape.machines > 1 else ()
    # With `spread` one machine stands for its place: one that needs no remedy where there is one.
    position: Ints = np.where(brought, usable.size, 0).astype(np.int32)
    position += np.arange(usable.size, dtype=np.int32)
    slots = slots_of(ask, levels, links, usable, position)
    machine, domain = slots.grouping.machine[slots.rows], slots.grouping.domain[slots.rows]
    there = slots.counts - np.bincount(domain[brought[machine]], minlength=slots.counts.size)
    lacking = np.where(slots.counts >= shape.machines, np.maximum(shape.machines - there, 0), usable.size + 1)
    if not lacking.size or lacking.min() > usable.size:
        return None
    best = int(lacking.argmin())
    machines = np.sort(machine[(domain == best) & brought[machine]])[: lacking[best]]
    return Need(machines.astype(np.int64), shape, int(slots.grouping.fabric[best]))
