"""The machine's GPUs over time: what is known of each, whether its driver answers, and their health."""

import time
from collections.abc import Callable, Collection, Iterator

from agent.discovery.answers import Failure, GpuAnswer, NvmlAnswer
from agent.discovery.health import Rule, Sign, Verdict, worse
from agent.discovery.health_book import HealthBook
from agent.discovery.nvml import Code
from agent.discovery.nvml_process import Problem, Silent
from agent.discovery.signs import gone_sign, gpu_signs, xid_signs
from agent.discovery.tree import Tree
from wire.inventory import GpuReport
from wire.machine_facts import GpuInstance, SplitGpu

_FRESH_SECONDS = 30.0
_NO_CLUSTER = "00000000-0000-0000-0000-000000000000"
_MOST_MEMORY = 2**50
UNANSWERED = Rule("suspect", leave=60.0)
UNUSABLE = Rule("faulty", leave=60.0)
_FAILURES = {
    Code.VERSION_MISMATCH: (
        "Driver/library version mismatch: the GPUs' driver was upgraded while it was loaded. Reboot this machine."
    ),
    Code.DRIVER_NOT_LOADED: "No driver is loaded for this machine's NVIDIA GPUs.",
    Code.LIBRARY_NOT_FOUND: "The driver's library libnvidia-ml.so.1 is missing.",
}


def failure_words(failure: Failure) -> str:
    known = {int(code): words for code, words in _FAILURES.items()}
    return known.get(failure.code, f"NVML doesn't work: {failure.message}")


def problem_words(problem: Problem) -> str:
    if isinstance(problem, Silent):
        return f"NVML has not answered for {problem.seconds:.0f} s"
    how = f"signal {-problem.code}" if problem.code < 0 else f"exit code {problem.code}"
    return f"NVML's helper process ended with {how}"


def _subject(gpu: GpuAnswer) -> tuple[str, str]:
    return f"gpu {gpu.uuid}", f"GPU {gpu.index}"


class GpuWard:
    """Not for several threads at once, but for `busy`."""

    def __init__(
        self,
        book: HealthBook,
        known: Collection[GpuAnswer],
        known_at: float | None,
        *,
        epoch: Callable[[], float] = time.time,
    ) -> None:
        self._book = book
        self._epoch = epoch
        self._answer: NvmlAnswer | None = None
        self._answered: float | None = None
        self._trouble: Sign | None = None
        self._failure: Failure | None = None
        self.known = {gpu.uuid: gpu for gpu in known}
        """As each was when it last answered, gone ones too."""
        self.known_at = known_at
        """Epoch."""

    def hear(self, answer: NvmlAnswer, now: float) -> None:
        self._failure = answer.failure
        if answer.failure is not None:
            self._trouble = Sign("nvml", failure_words(answer.failure).rstrip("."), UNUSABLE)
            return
        before = {gpu.uuid: gpu for gpu in self._answer.gpus} if self._answer else {}
        self._trouble, self._answer = None, answer
        self._answered, self.known_at = now, self._epoch()
        there = {gpu.uuid: gpu for gpu in answer.gpus}
        self.known.update(
            {uuid: gpu for uuid, gpu in there.items() if not gpu.error or uuid not in self.known}
        )
        xids: dict[str, list[int]] = {}
        for xid in answer.xids:
            xids.setdefault(xid.uuid, []).append(xid.number)
        for uuid, gpu in there.items():
            signs = gpu_signs(gpu, before.get(uuid), answer.gpus, xids.get(uuid, ()))
            self._book.follow(*_subject(gpu), signs, now)
        for uuid in self.known.keys() - there.keys():
            gone = (*xid_signs(xids.get(uuid, ())), gone_sign())
            self._book.follow(*_subject(self.known[uuid]), gone, now)

    def fail(self, problem: Problem) -> None:
        kind = "silent" if isinstance(problem, Silent) else "ended"
        self._failure = None
        self._trouble = Sign(kind, problem_words(problem), UNANSWERED)

    def signs(self) -> Iterator[Sign]:
        """What is wrong with the driver: the machine's, not one GPU's."""
        if self._trouble is not None:
            yield self._trouble

    def limits(self) -> Iterator[str]:
        if self._trouble is not None:
            yield f"{self._trouble.evidence}."
        if self._answer is not None:
            yield from (f"{problem}." for problem in self._answer.problems)

    @property
    def settled(self) -> bool:
        """Whether the driver has answered, or has been found not to."""
        return self._answer is not None or self._trouble is not None

    @property
    def said(self) -> NvmlAnswer | None:
        """What the driver says now; None while it says nothing."""
        if self._failure is not None:
            return NvmlAnswer(failure=self._failure)
        return self._answer if self._trouble is None else None

    @property
    def silence(self) -> str:
        """Why it says nothing; empty when it does, or nobody has asked."""
        return self._trouble.evidence if self._trouble and self._failure is None else ""

    @property
    def as_of(self) -> float | None:
        """Since when nothing new is known of the GPUs; None while their driver answers, or there are none."""
        answers = self._answer is not None and self._trouble is None
        return None if answers or not self.known else self.known_at

    def cuda_version(self) -> str:
        return self._answer.cuda_version[:20] if self._answer else ""

    def busy(self, uuids: Collection[str], now: float) -> bool | None:
        """Whether one of them works; None when that can't be told."""
        answer, answered = self._answer, self._answered
        if answer is None or answered is None or now - answered > _FRESH_SECONDS:
            return None if uuids else False
        known = {gpu.uuid: gpu.busy for gpu in answer.gpus}
        states = [known.get(uuid) for uuid in uuids]
        if any(states):
            return True
        return None if None in states else False

    def reports(self, tree: Tree, trouble: Verdict, now: float) -> tuple[GpuReport, ...]:
        """`trouble`: the driver's verdict, which is every GPU's too."""
        whole = [gpu for gpu in self.known.values() if not gpu.mig]
        reports = [self._report(tree, gpu, trouble, now) for gpu in whole]
        return tuple(sorted(reports, key=lambda report: (report.index, report.uuid)))

    def _report(self, tree: Tree, gpu: GpuAnswer, trouble: Verdict, now: float) -> GpuReport:
        found = worse(self._book.age(*_subject(gpu), now), trouble)
        return GpuReport(
            index=gpu.index,
            uuid=gpu.uuid[:96],
            product=gpu.product[:128],
            memory_bytes=_memory(gpu.memory_bytes),
            numa_node=tree.numa_node(f"sys/bus/pci/devices/{gpu.pci_bus}") if gpu.pci_bus else None,
            nvlink_domain=nvlink_domain(gpu),
            health=found.health,
            evidence=found.evidence,
            pci_bus=gpu.pci_bus[:32],
        )

    def split(self) -> tuple[SplitGpu, ...]:
        return tuple(_split(gpu) for gpu in sorted(self.known.values(), key=lambda gpu: gpu.index) if gpu.mig)


def nvlink_domain(gpu: GpuAnswer) -> str | None:
    """Cluster and clique, when its switches connect it to GPUs of other machines."""
    fabric = gpu.fabric
    if fabric is None or not fabric.done or fabric.status != 0 or fabric.cluster_uuid == _NO_CLUSTER:
        return None
    return f"{fabric.cluster_uuid}.{fabric.clique}"[:80]


def _split(gpu: GpuAnswer) -> SplitGpu:
    return SplitGpu(
        index=gpu.index,
        uuid=gpu.uuid[:96],
        product=gpu.product[:128],
        memory_bytes=_memory(gpu.memory_bytes),
        pci_bus=gpu.pci_bus[:32],
        instances=tuple(
            GpuInstance(
                uuid=each.uuid[:96], product=each.product[:128], memory_bytes=_memory(each.memory_bytes)
            )
            for each in gpu.instances[:64]
        ),
    )


def _memory(number: int) -> int:
    return number if 0 <= number < _MOST_MEMORY else 0
