"""A cluster over days in virtual time: runs arrive, start, end and are stopped; a policy decides at every change.

Pure and deterministic: the same submissions under the same policy give the same history, whatever the hour. Only
decisions are simulated: a run starts the moment it is placed and holds what its placement says until it ends.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count

from placement import Placement, Request, Snapshot
from placement.holdings import Hold, Holding
from placement.policy import Job, Kind, Reserved, Running
from placement.policy.jobs import Shares

SWEEP_SECONDS = 300.0
"""With runs waiting a pass comes at least so often, as the console's sweep sees to: some rules look at the clock."""
GRACE_SECONDS = 20.0
"""From being told to stop until everything has ended."""
HALF_LIFE_SECONDS = 7 * 86_400.0
_END, _SUBMIT, _WAKE = range(3)
"""What happens at the same moment happens in this order; the pass comes last."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A run as its owner sends it, and how long it really takes."""

    key: int
    at: float
    workspace: int
    request: Request
    seconds: float
    """What it takes when nobody stops it; it begins anew when it was preempted."""
    limit: float | None = None
    """Its time limit, at least `seconds`."""
    priority: int = 0
    preemptible: bool = False
    patience: float = 0

    @property
    def gpus(self) -> int:
        return sum(group.gpus for group in self.request.groups)

    @property
    def machines(self) -> int:
        return sum(group.machines or 1 for group in self.request.groups)


@dataclass(frozen=True, slots=True)
class View:
    """What a policy sees at one moment."""

    now: float
    snapshot: Snapshot
    jobs: Sequence[Job]
    running: Sequence[Running]
    shares: Shares
    usage: Mapping[int, float]
    """GPU-seconds by workspace, halved every seven days."""


@dataclass
class Pass:
    """What a policy decided, in the order in which it did."""

    now: float
    judged: list[int] = field(default_factory=list)
    placed: dict[int, Placement] = field(default_factory=dict)
    stopped: dict[int, int] = field(default_factory=dict)
    """Run that must go → run in whose favour."""
    claims: dict[int, tuple[Hold, ...]] = field(default_factory=dict)
    """What is being freed for a run that waits: closed to others."""
    reserved: tuple[Reserved, ...] = ()
    refused: dict[int, Kind] = field(default_factory=dict)
    patient: dict[int, float] = field(default_factory=dict)
    """Until when a run waits for a better network."""


Policy = Callable[[View], Pass]


@dataclass(frozen=True, slots=True)
class Stay:
    """One time that a run held something."""

    key: int
    placement: Placement
    start: float
    end: float
    preempted: bool
    told_at: float | None = None
    """When it was told to stop."""


@dataclass(frozen=True)
class History:
    submissions: Mapping[int, Submission]
    stays: Sequence[Stay]
    """In the order in which they ended."""
    passes: Sequence[Pass]
    unstarted: frozenset[int]
    """Runs that still waited when nothing could happen any more."""

    def first_starts(self) -> dict[int, float]:
        starts: dict[int, float] = {}
        for stay in self.stays:
            starts[stay.key] = min(stay.start, starts.get(stay.key, stay.start))
        return starts

    def wait(self, key: int) -> float:
        """Seconds from the submission to the first start."""
        return self.first_starts()[key] - self.submissions[key].at


@dataclass
class _Here:
    """A run that holds something now."""

    submission: Submission
    placement: Placement
    start: float
    running: Running
    """As policies see it."""
    told_at: float | None = None

    @property
    def end(self) -> float:
        natural = self.start + self.submission.seconds
        return natural if self.told_at is None else min(natural, self.told_at + GRACE_SECONDS)


class Simulation:
    """Plays the submissions against a cluster; `run` gives what happened."""

    def __init__(
        self, snapshot: Snapshot, submissions: Sequence[Submission], shares: Shares, policy: Policy
    ) -> None:
        self._snapshot = snapshot
        self._submissions = {each.key: each for each in submissions}
        self._shares = shares
        self._policy = policy
        self._now = 0.0
        self._waiting: dict[int, Job] = {}
        self._here: dict[int, _Here] = {}
        self._usage: dict[int, float] = {}
        self._stays: list[Stay] = []
        self._passes: list[Pass] = []
        self._events: list[tuple[float, int, int, int]] = []
        self._number = count()
        for each in submissions:
            self._schedule(each.at, _SUBMIT, each.key)

    def run(self) -> History:
        while self._events:
            self._go_on(self._events[0][0])
            while self._events and self._events[0][0] == self._now:
                _, kind, _, key = heappop(self._events)
                self._happen(kind, key)
            if self._waiting:
                self._pass()
        return History(self._submissions, self._stays, self._passes, frozenset(self._waiting))

    def _schedule(self, at: float, kind: int, key: int = 0) -> None:
        heappush(self._events, (at, kind, next(self._number), key))

    def _go_on(self, now: float) -> None:
        """Time passes: what is held is used."""
        seconds = now - self._now
        faded = 0.5 ** (seconds / HALF_LIFE_SECONDS)
        self._usage = {workspace: used * faded for workspace, used in self._usage.items()}
        for here in self._here.values():
            workspace = here.submission.workspace
            self._usage[workspace] = self._usage.get(workspace, 0.0) + here.submission.gpus * seconds
        self._now = now

    def _happen(self, kind: int, key: int) -> None:
        if kind == _SUBMIT:
            self._waiting[key] = _job(self._submissions[key])
        elif kind == _END and self._ends_now(key):
            self._end(key)

    def _ends_now(self, key: int) -> bool:
        """False for the end that an attempt would have had that was stopped before."""
        here = self._here.get(key)
        return here is not None and here.end == self._now

    def _end(self, key: int) -> None:
        here = self._here.pop(key)
        self._snapshot = self._snapshot.give_back(here.placement)
        cut_off = self._now < here.start + here.submission.seconds
        self._stays.append(
            Stay(key, here.placement, here.start, self._now, preempted=cut_off, told_at=here.told_at)
        )
        if cut_off:
            self._waiting[key] = _job(here.submission)

    def _pass(self) -> None:
        decided = self._policy(self._view())
        self._passes.append(decided)
        for key, placement in decided.placed.items():
            self._start(key, placement)
        for key in decided.stopped:
            self._stop(key)
        self._remember(decided)
        for until in decided.patient.values():
            self._schedule(until, _WAKE)
        if self._waiting and self._here and self._events[0][0] > self._now + SWEEP_SECONDS:
            self._schedule(self._now + SWEEP_SECONDS, _WAKE)

    def _start(self, key: int, placement: Placement) -> None:
        del self._waiting[key]
        submission = self._submissions[key]
        running = _running(submission, placement, self._now)
        self._here[key] = _Here(submission, placement, self._now, running)
        self._snapshot = self._snapshot.take(placement)
        self._schedule(self._here[key].end, _END, key)

    def _stop(self, key: int) -> None:
        here = self._here[key]
        here.told_at = self._now
        here.running = replace(here.running, leaving=True)
        self._schedule(here.end, _END, key)

    def _remember(self, decided: Pass) -> None:
        """What the next pass must know of this one."""
        kept = {each.key: each.machines for each in decided.reserved}
        for key, job in self._waiting.items():
            since = job.patient_since
            self._waiting[key] = replace(
                job,
                kept=kept.get(key, frozenset()),
                claims=decided.claims.get(key, ()),
                patient_since=self._now if since is None and key in decided.patient else since,
            )

    def _view(self) -> View:
        running = [here.running for here in self._here.values()]
        return View(
            self._now, self._snapshot, list(self._waiting.values()), running, self._shares, self._usage
        )


def _job(submission: Submission) -> Job:
    return Job(
        key=submission.key,
        workspace=submission.workspace,
        priority=submission.priority,
        queued_at=submission.at,
        request=submission.request,
        preemptible=submission.preemptible,
        limit_seconds=submission.limit,
        patience_seconds=submission.patience,
    )


def _running(submission: Submission, placement: Placement, start: float) -> Running:
    ends_at = None if submission.limit is None else start + submission.limit
    return Running(
        Holding(submission.key, placement.holds, ends_at),
        submission.workspace,
        submission.priority,
        start,
        submission.preemptible,
    )
