"""Discovery as the agent has it: a thread that looks again and again, and an answer that is always at hand."""

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from agent.discovery.answers import NvmlAnswer
from agent.discovery.checks import Check, Facts, daemon_signs
from agent.discovery.gpu_ward import GpuWard, problem_words
from agent.discovery.health import HEALTHY, Sign, Verdict, worse
from agent.discovery.health_book import HealthBook
from agent.discovery.host import host_read, toolkit_version
from agent.discovery.memory import Memory, memory_read, memory_write
from agent.discovery.nvml_process import NvmlProcess, Problem
from agent.discovery.port_ward import PortWard
from agent.discovery.sources import Sources, driver_loaded, nvidia_devices
from wire.inventory import GpuReport, PortReport
from wire.machine_facts import CheckReport, HealthEvent, HostReport, SplitGpu

log = logging.getLogger(__name__)

LOOK_SECONDS = 10.0
SLOW_SECONDS = 60.0
"""Between two looks at what hardly ever changes. So far may what is kept on disk lag behind, too."""
CHECK_SECONDS = 600.0
_MOST_LIMITS = 16

Checker = Callable[[Facts], list[Check]]
"""Looks at what `astraeus-agent check` shows of this machine. It may take seconds."""


@dataclass(frozen=True)
class Found:
    """All that is known of the machine now."""

    gpus: tuple[GpuReport, ...] = ()
    split_gpus: tuple[SplitGpu, ...] = ()
    gpus_as_of: float | None = None
    ports: tuple[PortReport, ...] = ()
    host: HostReport = field(default_factory=HostReport)
    limits: tuple[str, ...] = ()
    verdict: Verdict = HEALTHY
    events: tuple[HealthEvent, ...] = ()
    checks: tuple[CheckReport, ...] = ()


@dataclass
class _Slow:
    """What is looked at less often, as it was found last."""

    host: HostReport = field(default_factory=HostReport)
    signs: tuple[Sign, ...] = ()
    checks: tuple[CheckReport, ...] = ()
    due: dict[str, float] = field(default_factory=dict)

    def is_due(self, what: str, now: float, seconds: float) -> bool:
        if now < self.due.get(what, now):
            return False
        self.due[what] = now + seconds
        return True


class Discovery:
    """`look` and everything below it run in one thread; `found` and `busy` may be asked by any."""

    def __init__(
        self, state: Path, boot_id: str, *, check: Checker | None = None, sources: Sources | None = None
    ) -> None:
        self._sources = sources or Sources()
        self._tree = self._sources.tree
        self._state = state
        self._check = check
        self._kept = memory = memory_read(state, boot_id)
        self._book = HealthBook(memory.health, memory.events, epoch=self._sources.epoch)
        self._gpus = GpuWard(self._book, memory.gpus, memory.gpus_at, epoch=self._sources.epoch)
        self._ports = PortWard(self._tree, self._book, self._sources.ask_sm)
        self._slow = _Slow()
        self._helper: NvmlProcess | None = None
        self._heard: list[NvmlAnswer | Problem] = []
        self._lock = threading.Lock()
        self._wake, self._first, self._closed = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="discovery", daemon=True)
        self.found = Found()

    def start(self) -> None:
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Until all has been looked at once, GPUs included, or for `seconds`."""
        if not self._first.wait(seconds):
            log.warning("the GPUs' driver has not answered for %.0f s; going on without", seconds)

    def close(self) -> None:
        self._closed.set()
        self._wake.set()
        if self._helper is not None:
            self._helper.close()
        if self._thread.is_alive():
            self._thread.join(LOOK_SECONDS)

    def busy(self, uuids: Collection[str]) -> bool | None:
        """As `agent.silence.GpusBusy`."""
        return self._gpus.busy(uuids, self._sources.clock())

    def _run(self) -> None:
        while not self._closed.is_set():
            self._wake.clear()
            try:
                self.look()
            except Exception:
                log.exception("the machine could not be looked at, tried again")
            self._wake.wait(LOOK_SECONDS)

    # --- one look

    def look(self) -> Found:
        now = self._sources.clock()
        self._listen(now)
        ports = self._ports.look(now)
        if self._slow.is_due("slow", now, SLOW_SECONDS):
            self._look_slowly()
        driver = self._book.follow("driver", "the GPUs' driver", self._gpus.signs(), now)
        machine = self._book.follow("machine", "this machine", self._slow.signs, now)
        gpus = self._gpus.reports(self._tree, driver, now)
        self._look_slowest(now)
        limits = (*self._gpus.limits(), *self._ports.limits(ports))
        self.found = Found(
            gpus=gpus,
            split_gpus=self._gpus.split(),
            gpus_as_of=self._gpus.as_of,
            ports=ports,
            host=self._slow.host,
            limits=tuple(limit[:500] for limit in limits)[:_MOST_LIMITS],
            verdict=worse(driver, machine),
            events=self._book.events,
            checks=self._slow.checks,
        )
        self._keep(now)
        if self._gpus_known():
            self._first.set()
        return self.found

    def _listen(self, now: float) -> None:
        with self._lock:
            heard, self._heard = self._heard, []
        for news in heard:
            if isinstance(news, NvmlAnswer):
                settled = self._gpus.settled
                self._gpus.hear(news, now)
                if not settled:
                    self._slow.due.clear()  # what GPUs there are decides what else they need
            else:
                log.warning("%s", problem_words(news))
                self._gpus.fail(news)

    def hear(self, news: NvmlAnswer | Problem) -> None:
        """From any thread: what the driver says, for the next look."""
        with self._lock:
            self._heard.append(news)
        self._wake.set()

    def _gpus_known(self) -> bool:
        return self._helper is None or self._gpus.settled

    def _look_slowly(self) -> None:
        toolkit = toolkit_version(self._tree)
        self._slow.host = host_read(
            self._tree, cuda_version=self._gpus.cuda_version(), toolkit_version=toolkit
        )
        if self._helper is None and self._sources.helper and self._has_gpus():
            self._helper = NvmlProcess(
                self.hear, self.hear, command=self._sources.helper, deadlines=self._sources.deadlines
            )
            self._helper.start()
        self._slow.signs = tuple(daemon_signs(self._facts())) if self._gpus_known() else ()

    def _look_slowest(self, now: float) -> None:
        """Not in the first look, for which the console waits."""
        if (
            self._check is not None
            and self._first.is_set()
            and self._slow.is_due("check", now, CHECK_SECONDS)
        ):
            self._slow.checks = _reports(self._check(self._facts()))

    def _has_gpus(self) -> bool:
        return driver_loaded(self._tree) or nvidia_devices(self._tree) > 0 or bool(self._gpus.known)

    def _facts(self) -> Facts:
        return Facts(
            tree=self._tree,
            ports=self._ports.ports,
            answer=self._gpus.said,
            problem=self._gpus.silence,
            nvidia_devices=nvidia_devices(self._tree),
        )

    def _keep(self, now: float) -> None:
        """At once what would be missed: who is there, and what counts against whom. The rest now and then."""
        memory = Memory(
            boot_id=self._kept.boot_id,
            health=self._book.states(),
            gpus=tuple(self._gpus.known.values()),
            gpus_at=self._gpus.known_at,
            events=self._book.events,
        )
        if _mark(memory) == _mark(self._kept) and not self._slow.is_due("keep", now, SLOW_SECONDS):
            return
        if memory != self._kept:
            memory_write(self._state, memory)
        self._kept = memory


def _mark(memory: Memory) -> object:
    """Of what must not be lost."""
    return memory.events, {(gpu.uuid, gpu.index, gpu.mig) for gpu in memory.gpus}


def _reports(checks: list[Check]) -> tuple[CheckReport, ...]:
    return tuple(
        CheckReport(what=one.what[:40], verdict=one.verdict, found=one.found[:500], fix=one.fix[:500])
        for one in checks[:64]
    )
