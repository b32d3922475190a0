"""What a change of a pool (who may use it, up to where) would do to the runs of its cluster, told before it is made.

As in `machine_preview.py`: carried out in a transaction that is rolled back, in which only the shares are read. The
machines are the same on both sides; what differs is which pools are open to a run, and how much of them.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum, auto
from functools import cached_property

from django.db import transaction

from machines.models import Cluster, Pool
from placement.outcome import Placement
from placement.policy import Decision, Job, Refused, Running, Share
from placement.policy.jobs import Shares
from placement.policy.quotas import Ledger, pools_of
from placement.policy.within import place_within
from runs.machine_preview import Naming, Preview, Queue, Side, Told, told_once
from runs.models import Run
from runs.scheduling.planning import shares_load
from runs.scheduling.snapshot import cluster_snapshot

Access = tuple[Shares, Mapping[int, frozenset[str]]]
"""As `shares_load` gives it."""


def pool_preview(pool: Pool, change: Callable[[], object], *, visible: Collection[int]) -> Preview:
    """What `change`, a write of this pool alone, would do. Raises what `change` raises; nothing is changed.

    `visible`: ids of the workspaces whose runs the reader may see.
    """
    cluster = pool.cluster
    now, then = shares_load(cluster), _access_then(cluster, pool, change)
    if now == then:
        return Preview(pass_no=cluster.pass_no)
    loaded, naming = cluster_snapshot(cluster), Naming(frozenset(visible))
    queue = Queue(cluster, loaded.names)
    before = _PoolSide(loaded.snapshot, queue.plan.with_access(*now), pool.slug, now[1])
    after = _PoolSide(loaded.snapshot, queue.plan.with_access(*then), pool.slug, then[1])
    told = _told(queue, before, after, naming)
    over = _over(before, after, naming)
    return Preview(*told, over=over, pass_no=cluster.pass_no, waiting=queue.waiting)


def _access_then(cluster: Cluster, pool: Pool, change: Callable[[], object]) -> Access:
    """Under the pool's name of now: that is what the snapshot calls it, and no run that waits names a pool which may
    be renamed."""
    with transaction.atomic():
        change()
        named = Pool.objects.values_list("slug", flat=True).get(id=pool.id)
        shares, pools = shares_load(cluster)
        transaction.set_rollback(True)
    if named != pool.slug:
        renamed = {named: pool.slug}
        shares = {(key, renamed.get(slug, slug)): share for (key, slug), share in shares.items()}
        pools = {key: frozenset(renamed.get(slug, slug) for slug in slugs) for key, slugs in pools.items()}
    return shares, pools


@dataclass(frozen=True)
class _PoolSide(Side):
    """Also what each workspace may use of the pool."""

    pool: str
    open_to: Mapping[int, frozenset[str]]
    """Workspace → pools."""

    def with_room(self) -> set[int]:
        """Runs that have room within their quota, each taken alone."""
        return {job.key for job in self.plan.jobs if self._has_room(job)}

    def _has_room(self, job: Job) -> bool:
        within = place_within(self.ledger, job, self.snapshot, self.ledger.closed(job))
        return isinstance(within.outcome, Placement)

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.snapshot, self.plan.running, self.plan.shares)

    def barred(self, decided: Mapping[int, Decision]) -> set[int]:
        """Runs that could not start on the empty cluster either."""
        never = {key for key, each in decided.items() if isinstance(each, Refused) and each.kind == "never"}
        return never | {job.key for job in self.plan.jobs if self._over_caps(job)}

    def _over_caps(self, job: Job) -> bool:
        caps = [
            self.plan.shares.get((job.workspace, pool), Share()).cap
            for pool in pools_of(job.request, self.snapshot.topology)
        ]
        return job.gpus > sum(math.inf if cap is None else cap for cap in caps)

    def standings(self) -> dict[int, "_Standing"]:
        """By run that holds something of the pool; of a workspace's runs the last ones are those above a limit."""
        used: Counter[int] = Counter()
        found = {}
        for run in sorted(self.plan.running, key=lambda run: run.started_at):
            if not run.leaving and self._is_there(run):
                gpus = self.ledger.gpus_in(self.pool, run)
                used[run.workspace] += gpus
                found[run.holding.key] = self._standing(run, gpus, used[run.workspace])
        return found

    def _is_there(self, run: Running) -> bool:
        topology = self.snapshot.topology
        rows = (topology.row_of.get(hold.machine) for hold in run.holding.holds)
        here = {row for row in rows if row is not None}
        return any(topology.pools[topology.pool[row]] == self.pool for row in here)

    def _standing(self, run: Running, gpus: int, used: int) -> "_Standing":
        share = self.plan.shares.get((run.workspace, self.pool), Share())
        if self.pool not in self.open_to.get(run.workspace, ()):
            return _Standing.CLOSED
        if gpus and share.cap is not None and used > share.cap:
            return _Standing.ABOVE_CAP
        if gpus and run.preemptible and used > share.guaranteed:
            return _Standing.BORROWS
        return _Standing.WITHIN


class _Standing(IntEnum):
    """What a pool's shares say of a run on it, the better ones first."""

    WITHIN = auto()
    BORROWS = auto()
    ABOVE_CAP = auto()
    CLOSED = auto()


_STANDING_WORDS = {
    _Standing.BORROWS: (
        "runs on GPUs that would not be guaranteed to its workspace any more: others could have it stopped for theirs"
    ),
    _Standing.ABOVE_CAP: "would be above what its workspace may use. It goes on; a restart would wait",
    _Standing.CLOSED: "runs where its workspace could start nothing any more. It goes on; a restart needs another pool",
}


def _told(
    queue: Queue, before: _PoolSide, after: _PoolSide, naming: Naming
) -> tuple[tuple[Told, ...], tuple[Told, ...], tuple[Told, ...]]:
    """Runs that wait: those that start, those that could, those that no longer could, now or ever."""
    decided_now, decided_then = queue.judged(before), queue.judged(after)
    room_now, room_then = before.with_room(), after.with_room()
    starts, could = queue.gains(decided_now, decided_then, room_then - room_now, naming)
    barred = after.barred(decided_then) - before.barred(decided_now)
    return starts, could, queue.losses((room_now - room_then) | barred, naming)


def _over(before: _PoolSide, after: _PoolSide, naming: Naming) -> tuple[Told, ...]:
    """Runs that go on where the change leaves them worse off."""
    now, then = before.standings(), after.standings()
    worse = {key: each for key, each in then.items() if each > now[key]}
    runs = Run.objects.in_bulk(worse)
    return told_once(
        [
            Told(runs[key], naming.of(runs[key]), _STANDING_WORDS[each])
            for key, each in worse.items()
            if key in runs
        ]
    )
