"""One group's request in the snapshot's index space: what the rules compare with."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np

from placement.arrays import UNKNOWN, Bools, Bytes, Ints, Longs, read_only
from placement.request import GroupRequest, Request
from placement.shapes import Shape, shapes_of
from placement.snapshot import FREE_HEALTHY, FREE_SUSPECT, GPU_FAULTY, GPU_SUSPECT, Snapshot
from placement.topology import INFINIBAND, ROCE, Topology
from placement.verdicts import INFINIBAND_VERDICTS, RDMA_VERDICTS, Verdict

_Kept = TypeVar("_Kept")


@dataclass(frozen=True)
class GpuCounts:
    """Per machine, how many of its GPUs count for this request; (machines,) each. Only what is asked for is counted."""

    ask: "Ask"

    @property
    def of_model(self) -> Ints:
        """GPUs of the models asked for."""
        return self.ask.hardware.of_model

    @property
    def fitting(self) -> Ints:
        """Of these, those with enough memory; all below are part of them."""
        return self.ask.hardware.fitting

    @cached_property
    def faulty(self) -> Ints:
        return self._of(self.ask.snapshot.faulty, lambda state: (state & GPU_FAULTY) != 0)

    @cached_property
    def suspect(self) -> Ints:
        return self._of(
            self.ask.snapshot.suspect, lambda state: (state & (GPU_SUSPECT | GPU_FAULTY)) == GPU_SUSPECT
        )

    @cached_property
    def free_healthy(self) -> Ints:
        return self._of(self.ask.snapshot.free_healthy, lambda state: state == FREE_HEALTHY)

    @cached_property
    def free(self) -> Ints:
        """Healthy and suspect ones."""
        return self._of(
            self.ask.snapshot.gpus_free, lambda state: (state == FREE_HEALTHY) | (state == FREE_SUSPECT)
        )

    @property
    def free_where_fitting(self) -> Ints:
        """The same as `free` where a machine's GPUs fit, and cheaper; elsewhere it tells nothing."""
        return self.free if self.ask.topology.mixed.size else self.ask.snapshot.gpus_free

    @property
    def healthy_where_fitting(self) -> Ints:
        """As above, of `free_healthy`."""
        return self.free_healthy if self.ask.topology.mixed.size else self.ask.snapshot.free_healthy

    @cached_property
    def sound(self) -> Ints:
        """Not faulty."""
        return np.asarray(self.fitting - self.faulty)

    @property
    def held(self) -> Ints:
        """Held by some run and not faulty."""
        return np.asarray(self.sound - self.free)

    def _of(self, every: Ints, marked: Callable[[Bytes], Bools]) -> Ints:
        """Of what is counted of all GPUs the part that fits; GPU by GPU where a machine's GPUs differ."""
        hardware, rows = self.ask.hardware, self.ask.topology.mixed
        if hardware.match is None:
            return every
        counted = np.asarray(every * hardware.match)
        if rows.size:
            there = marked(self.ask.snapshot.gpu_state[rows])
            counted[rows] = (self.ask.gpu_fits(rows) & there).sum(axis=1)
        return counted


@dataclass(frozen=True, slots=True)
class Hardware:
    """Per machine, what it has of the GPUs asked for, whatever their state; (machines,) each."""

    of_model: Ints
    fitting: Ints
    match: Ints | None
    """1 where all of a machine's GPUs fit, 0 elsewhere; None: any GPU fits."""


@dataclass(frozen=True, slots=True)
class Sound:
    """What faults leave of the GPUs asked for, whoever holds them: no placement changes it."""

    enough: Bools
    """(machines,): has as many as a worker needs that fit, whatever their state."""
    gpus: Ints
    """(machines,): those that fit and are not faulty."""
    too_few: Bools
    """(machines,): of machines with enough, those where too many are faulty."""
    with_suspects: Longs
    """Rows of machines with enough of which some show a warning sign: few."""
    healthy: Ints
    """(these rows,): GPUs without one."""


@dataclass(eq=False)
class Ask:
    """What one group asks of this snapshot."""

    snapshot: Snapshot
    request: Request
    index: int
    """The group's place in the request."""
    group: GroupRequest = field(init=False)
    topology: Topology = field(init=False)

    def __post_init__(self) -> None:
        self.group, self.topology = self.request.groups[self.index], self.snapshot.topology

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        return shapes_of(self.group, self.topology.most_gpus)

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """Link layers of which every machine needs a port; empty when the run asked for no RDMA."""
        by_interconnect = {"infiniband": (INFINIBAND,), "rdma": (INFINIBAND, ROCE)}
        return by_interconnect.get(self.group.interconnect, ())

    @property
    def min_gbps(self) -> int:
        """Slower ports do not count; 0: every port that is up counts, also one of unknown speed."""
        return self.group.min_gbps or 0

    def link_of(self, verdict: Verdict) -> int | None:
        """The link layer that joins the machines under this verdict; None when RDMA plays no part."""
        if verdict not in RDMA_VERDICTS:
            return None
        return INFINIBAND if verdict in INFINIBAND_VERDICTS else ROCE

    @cached_property
    def lemons(self) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None":
        """(machines,): lemon scores; None when no machine is to be avoided."""
        avoid = {name: score for name, score in self.request.avoid.items() if score > 0}
        rows = self.topology.rows_named(avoid) if avoid else np.zeros(0, dtype=np.int64)
        if not rows.size:
            return None
        scores = np.zeros(self.topology.size)
        scores[rows] = [avoid[self.topology.names[row]] for row in rows]
        return scores

    @cached_property
    def models_match(self) -> Bools:
        """(models + 2,): by model row; the last two stand for "mixed" and "none", which match no named model."""
        wanted = [name in self.group.models for name in self.topology.models]
        return np.array([*wanted, False, False], dtype=np.bool_)

    @cached_property
    def gpus(self) -> GpuCounts:
        """Counts of the GPUs that have a model and a memory size as asked."""
        return GpuCounts(self)

    @cached_property
    def hardware(self) -> Hardware:
        topology, models, memory = self.topology, self.group.models, self.group.min_memory_bytes
        if not models and not memory:
            return Hardware(topology.gpus_total, topology.gpus_total, None)

        def count() -> Hardware:
            right = self.models_match[topology.model] if models else True
            of_model = np.asarray(topology.gpus_total * right, dtype=np.int32)
            match = ((of_model > 0) & (topology.gpu_memory_min >= memory)).astype(np.int32)
            fitting = of_model * match
            rows = topology.mixed
            of_model[rows] = ((topology.gpu_index[rows] != UNKNOWN) & self._model_fits(rows)).sum(axis=1)
            fitting[rows] = self.gpu_fits(rows).sum(axis=1)
            return Hardware(read_only(of_model), read_only(fitting), read_only(match))

        return topology.remember(("hardware", models, memory), count)

    def sound(self, gpus: int) -> Sound:
        """Of machines for workers with so many GPUs."""
        return self._by_faults(gpus, lambda: self._sound(gpus))

    def _by_faults(self, what: Hashable, count: Callable[[], _Kept]) -> _Kept:
        """What follows from the hardware and from which GPUs are faulty or suspect.

        It is remembered by the snapshot's arrays, which snapshots share as long as they say the same. Where a
        machine's GPUs differ these do not tell which one is faulty.
        """
        if self.topology.mixed.size:
            return count()
        faulty, suspect = self.snapshot.faulty, self.snapshot.suspect
        key = ("faults", id(faulty), id(suspect), self.group.models, self.group.min_memory_bytes, what)
        # Their numbers are these arrays' alone as long as what is remembered holds on to them.
        return self.topology.remember(key, lambda: (faulty, suspect, count()), passing=True)[2]

    def _sound(self, gpus: int) -> Sound:
        counts = self.gpus
        sound = self._by_faults("sound", lambda: read_only(np.asarray(counts.sound)))
        enough = self.topology.remember(
            ("enough", self.group.models, self.group.min_memory_bytes, gpus),
            lambda: np.asarray(counts.fitting >= gpus),
        )
        rows = np.flatnonzero(enough & (counts.suspect > 0))
        return Sound(
            enough=enough,
            gpus=sound,
            too_few=read_only(np.asarray(enough & (sound < gpus))),
            with_suspects=read_only(rows),
            healthy=read_only(np.asarray(sound[rows] - counts.suspect[rows])),
        )

    def _model_fits(self, rows: Longs | Ints) -> Bools:
        """(rows, slots): the GPU's own model is one of those asked for."""
        if not self.group.models:
            return np.ones((rows.size, self.topology.gpu_model.shape[1]), dtype=np.bool_)
        return np.asarray(self.models_match[self.topology.gpu_model[rows]])

    def gpu_fits(self, rows: Longs | Ints) -> Bools:
        """(rows, slots): a GPU that has a model and a memory size as asked, whatever its state."""
        enough = self.topology.gpu_memory[rows] >= self.group.min_memory_bytes
        return np.asarray((self.topology.gpu_index[rows] != UNKNOWN) & enough & self._model_fits(rows))

    def cpu_needed(self, gpus: int) -> "int | Longs":
        """Millicores of one worker with so many GPUs: a number, or one per machine where a share is taken."""
        fixed = self.cpu_fixed(gpus)
        return self._share("cpu", self.topology.cpu_total, gpus) if fixed is None else fixed

    def memory_needed(self, gpus: int) -> "int | Longs":
        """Bytes of one worker with so many GPUs."""
        fixed = self.memory_fixed(gpus)
        return self._share("memory", self.topology.memory_total, gpus) if fixed is None else fixed

    def cpu_fixed(self, gpus: int) -> int | None:
        """Millicores of one worker with so many GPUs; None where it gets a share of its machine's."""
        return _fixed(gpus, self.group.cpu_millicores, self.group.cpu_millicores_per_gpu)

    def memory_fixed(self, gpus: int) -> int | None:
        """Bytes of one worker with so many GPUs; None where it gets a share of its machine's."""
        return _fixed(gpus, self.group.memory_bytes, self.group.memory_bytes_per_gpu)

    def _share(self, what: str, total: Longs, gpus: int) -> Longs:
        """(machines,): the part of the machine's total that so many of its GPUs are."""

        def share() -> Longs:
            has = self.topology.gpus_total
            return np.asarray(total * np.minimum(gpus, has) // np.maximum(has, 1))

        return self.topology.remember(("share", what, gpus), share)


def _fixed(gpus: int, each: int | None, per_gpu: int | None) -> int | None:
    if each is not None:
        return each
    if per_gpu is not None:
        return per_gpu * gpus
    return 0 if gpus == 0 else None
