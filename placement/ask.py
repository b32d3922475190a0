"""One group's request in the snapshot's index space: what the rules compare with."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from placement.arrays import UNKNOWN, Bools, Ints, Longs, read_only
from placement.request import GroupRequest, Request
from placement.shapes import Shape, shapes_of
from placement.snapshot import FREE_HEALTHY, FREE_SUSPECT, GPU_FAULTY, GPU_SUSPECT, Snapshot
from placement.topology import INFINIBAND, ROCE, Topology
from placement.verdicts import INFINIBAND_VERDICTS, RDMA_VERDICTS, Verdict


@dataclass(frozen=True)
class GpuCounts:
    """Per machine, how many of its GPUs count for this request."""

    of_model: Ints
    """GPUs of the models asked for."""
    fitting: Ints
    """Of these, those with enough memory; all below are part of them."""
    faulty: Ints
    suspect: Ints
    free_healthy: Ints
    free_suspect: Ints

    @cached_property
    def free(self) -> Ints:
        return np.asarray(self.free_healthy + self.free_suspect)

    @cached_property
    def sound(self) -> Ints:
        """Not faulty."""
        return np.asarray(self.fitting - self.faulty)

    @property
    def held(self) -> Ints:
        """Held by some run and not faulty."""
        return np.asarray(self.sound - self.free)


@dataclass(frozen=True)
class Ask:
    """What one group asks of this snapshot."""

    snapshot: Snapshot
    request: Request
    index: int
    """The group's place in the request."""

    @cached_property
    def group(self) -> GroupRequest:
        return self.request.groups[self.index]

    @cached_property
    def topology(self) -> Topology:
        return self.snapshot.topology

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        return shapes_of(self.group, self.topology.most_gpus)

    @cached_property
    def kinds(self) -> tuple[int, ...]:
        """Link layers of which every machine needs a port; empty when the run asked for no RDMA."""
        by_interconnect = {"infiniband": (INFINIBAND,), "rdma": (INFINIBAND, ROCE)}
        return by_interconnect.get(self.group.interconnect, ())

    @cached_property
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
        topology, snapshot, group = self.topology, self.snapshot, self.group
        if not group.models and not group.min_memory_bytes:
            return GpuCounts(
                topology.gpus_total,
                topology.gpus_total,
                snapshot.faulty,
                snapshot.suspect,
                snapshot.free_healthy,
                snapshot.free_suspect,
            )
        of_model, fitting, match = self._hardware
        counts = GpuCounts(
            of_model,
            fitting,
            snapshot.faulty * match,
            snapshot.suspect * match,
            snapshot.free_healthy * match,
            snapshot.free_suspect * match,
        )
        return self._count_mixed(counts) if topology.mixed.size else counts

    @property
    def _hardware(self) -> tuple[Ints, Ints, Ints]:
        """(machines,): GPUs of the models asked for, those of them with the memory, and 1 where such a machine's GPUs
        are alike, 0 elsewhere."""
        topology, models, memory = self.topology, self.group.models, self.group.min_memory_bytes

        def count() -> tuple[Ints, Ints, Ints]:
            right = self.models_match[topology.model] if models else True
            of_model = np.asarray(topology.gpus_total * right, dtype=np.int32)
            match = ((of_model > 0) & (topology.gpu_memory_min >= memory)).astype(np.int32)
            fitting = of_model * match
            rows = topology.mixed
            of_model[rows] = ((topology.gpu_index[rows] != UNKNOWN) & self._model_fits(rows)).sum(axis=1)
            fitting[rows] = self.gpu_fits(rows).sum(axis=1)
            return read_only(of_model), read_only(fitting), read_only(match)

        return topology.remember(("hardware", models, memory), count)

    def has_fitting(self, gpus: int) -> Bools:
        """(machines,): has so many GPUs of a model and a memory size as asked, whatever their state."""
        key = ("has_fitting", self.group.models, self.group.min_memory_bytes, gpus)
        return self.topology.remember(key, lambda: np.asarray(self.gpus.fitting >= gpus))

    def _count_mixed(self, counts: GpuCounts) -> GpuCounts:
        """Counts again, GPU by GPU, where a machine's GPUs differ."""
        rows = self.topology.mixed
        fits, state = self.gpu_fits(rows), self.snapshot.gpu_state[rows]
        faulty = fits & ((state & GPU_FAULTY) != 0)
        masks = {
            "faulty": faulty,
            "suspect": fits & ((state & GPU_SUSPECT) != 0) & ~faulty,
            "free_healthy": fits & (state == FREE_HEALTHY),
            "free_suspect": fits & (state == FREE_SUSPECT),
        }
        for name, mask in masks.items():
            getattr(counts, name)[rows] = mask.sum(axis=1)
        return counts

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
