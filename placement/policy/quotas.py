"""Quotas per workspace and pool: a cap, and a guaranteed share that is lent to preemptible runs only.

What is lent can be taken back. So guarantees are counted against the other runs alone, and the room that they leave
only grows as runs end.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from math import inf, isinf

import numpy as np

from placement.arrays import UNKNOWN
from placement.freeing import Whereabouts
from placement.holdings import Hold
from placement.outcome import Placement
from placement.policy.jobs import Job, Running, Share, Shares
from placement.policy.stays import OPEN, Cell, Gone, Owners, Stays
from placement.request import GroupRequest, Request
from placement.snapshot import Snapshot
from placement.topology import Topology

_Pools = frozenset[str]
_NO_SHARE = Share()


@dataclass(frozen=True, slots=True)
class Kept:
    """A workspace's room in a pool that is kept for a job which goes first."""

    key: int
    until: float | None
    """When enough of it is free at the latest; None: a run that uses it has no time limit."""


@dataclass(frozen=True, slots=True)
class Pledge:
    """What is kept for a job until it is placed."""

    gpus: Counter[Cell]
    twice: Counter[Cell]
    """Of these, what runs of the same workspace hold that are being stopped."""


class Ledger:
    """GPUs used by workspace and pool, kept as jobs are placed."""

    def __init__(
        self,
        snapshot: Snapshot,
        running: Collection[Running],
        shares: Shares,
        where: Whereabouts | None = None,
    ) -> None:
        """`where`: of these runs, in their order; looked up where it is not given."""
        self._topology = snapshot.topology
        self._shares = shares
        self._pools = tuple(dict.fromkeys(pool for _, pool in shares))
        """Those of which any workspace has a share."""
        where = where or Whereabouts.of(snapshot.topology, [run.holding for run in running])
        stays = Stays(snapshot, where, Owners.of_runs(running))
        all_held = stays.gone(np.ones(len(running), dtype=np.bool_))
        self._used: Counter[Cell] = all_held.used
        self._firm: Counter[Cell] = all_held.firm
        """What of it can't be taken back; what is about to end is not counted any more."""
        self._leaving: Counter[Cell] = Counter()
        """What of it is about to end: caps count it still."""
        self._twice: Counter[Cell] = Counter()
        """What runs that are being stopped hold of what is pledged to their own workspace."""
        self._of_run: dict[int, Counter[Cell]] = {}
        self._departing: dict[int, set[tuple[str, int]]] = {}
        """By workspace: GPUs of its runs that are being stopped."""
        lent = stays.lent()
        self._free = {pool: free + lent[pool] for pool, free in _free_by_pool(snapshot).items()}
        """GPUs on machines that take runs which nobody holds, or only one from whom they can be taken back."""
        self._granted: dict[str, int] = {}
        """GPUs by pool that others were stopped for, for the job that is being judged."""
        self._eased: Counter[Cell] = Counter()
        """Of that, what will end for its sake: until it has, its workspace's cap does not count it."""
        self._may_use: dict[int, _Pools] = {}
        """By job: `pools_of` its request."""
        self._kept: dict[Cell, Kept] = {}
        self._owed: dict[Cell, int] = {}
        """What of its guarantee a workspace uses for no run that stays; all that of a pool is in the next."""
        self._owed_in: Counter[str] = Counter()
        for run in running:
            if run.leaving:
                self.leave(run)
        for workspace, pool in shares:
            self._owe(workspace, pool)

    def later(self, gone: Gone) -> "Ledger":
        """As it will be when so much has ended. What the job that is judged was granted counts no more."""
        then = copy(self)
        then.give_back(gone)
        return then

    def give_back(self, gone: Gone) -> None:
        """So much has ended. Nothing that a copy of this shares is changed."""
        self._used, self._twice = self._used + self._twice + self._eased - gone.used, Counter()
        self._firm = self._firm - gone.firm
        self._free = {pool: free + gone.opened[pool] for pool, free in self._free.items()}
        self._owed, self._owed_in = self._owed.copy(), self._owed_in.copy()
        self._granted, self._eased = {}, Counter()
        for cell in self._shares:
            self._owe(*cell)

    def used(self, workspace: int, pool: str) -> int:
        return self._used.get((workspace, pool), 0)

    def held_by(self, job: Job, holds: Iterable[Hold]) -> Counter[Cell]:
        """What the job uses of its pools when it holds this."""
        return self._by_pool(job.workspace, holds)

    def use(self, job: Job, held: Counter[Cell], sign: int = 1) -> None:
        """The job uses so much more; `sign` -1: less."""
        for (workspace, pool), gpus in held.items():
            self._used[workspace, pool] += sign * gpus
            if not job.preemptible:
                self._firm[workspace, pool] += sign * gpus
                self._free[pool] = self._free.get(pool, 0) - sign * gpus
                self._owe(workspace, pool)

    def closed(
        self, job: Job, *, reserved: frozenset[str] = frozenset(), occupied: frozenset[str] = frozenset()
    ) -> Request:
        """The job's request with the pools closed that `closed_to` names; `reserved` and `occupied` are what it is to
        say."""
        over, lent = self.closed_to(job)
        return replace(
            job.request,
            over_cap=over,
            guaranteed_to_others=lent,
            reserved=reserved,
            occupied=occupied,
        )

    def closed_to(self, job: Job) -> tuple[_Pools, _Pools]:
        """The pools in which not even the job's smallest worker has room: by its cap, and by others' guarantees.

        Where its caps leave less room in all its pools together than it needs, these are closed too: it waits for
        its workspace's own runs, and no machine that ends early would help it.
        """
        if not job.gpus or not self._shares:
            return _Pools(), _Pools()
        workspace, least = job.workspace, _smallest(job)
        rooms = {pool: self._cap_room(workspace, pool) for pool in self._pools}
        in_all = sum([rooms.get(pool, inf) for pool in self._pools_of(job)])
        needed = job.gpus if in_all < job.gpus else least
        over = _Pools([pool for pool, room in rooms.items() if needed > room])
        return over, self._lent(job, dict.fromkeys(self._pools, least))

    def keep(self, job: Job, running: Iterable[Running], stopped_at: float) -> None:
        """Keeps what the workspace may use of the job's pools for it: else later, smaller ones would take it forever.

        A job that asks for more than the caps allow keeps nothing. `stopped_at`: when those that leave have ended.
        """
        pools = self._pools_of(job)
        caps = [self._share(job.workspace, pool).cap for pool in pools]
        if any(cap is None for cap in caps) or sum(cap or 0 for cap in caps) < job.gpus:
            return
        own = [(_end(run, stopped_at), run) for run in running if run.workspace == job.workspace]
        until = self._room_at(job, pools, own)
        for pool in pools:
            self._kept.setdefault((job.workspace, pool), Kept(job.key, until))

    def _room_at(self, job: Job, pools: Iterable[str], own: Iterable[tuple[float, Running]]) -> float | None:
        """When so many of the workspace's own runs, each told with its end, have ended that its caps leave room for
        the job."""
        room = sum(self._cap_room(job.workspace, pool) for pool in pools)
        for end, run in sorted(own, key=lambda each: each[0]):
            room += sum(self.gpus_in(pool, run) for pool in pools)
            if room >= job.gpus:
                return None if isinf(end) else end
        return None

    def kept_from(self, job: Job, now: float) -> dict[str, Kept]:
        """By pool: what is kept for a job that goes first, unless this one surely ends before it can start."""
        ends = float("inf") if job.limit_seconds is None else now + job.limit_seconds
        return {
            pool: kept
            for (workspace, pool), kept in self._kept.items()
            if workspace == job.workspace
            and kept.key != job.key
            and (kept.until is None or ends > kept.until)
        }

    def broken(self, job: Job, request: Request, placement: Placement) -> Request | None:
        """The request, closing also the pools in which this placement would pass a limit; None when it passes none."""
        if not self._shares:
            return None
        taken = {pool: gpus for (_, pool), gpus in self.held_by(job, placement.holds).items()}
        over, lent = self._close(job, taken)
        over, lent = over | request.over_cap, lent | request.guaranteed_to_others
        if over == request.over_cap and lent == request.guaranteed_to_others:
            return None
        return replace(request, over_cap=over, guaranteed_to_others=lent)

    def room_in_each(self, job: Job) -> float:
        """GPUs that the job may use in whichever pool it likes."""
        rooms = [self._cap_room(job.workspace, pool) for pool in self._pools]
        if not job.preemptible:
            rooms += [self._unlent_room(job.workspace, pool) for pool in self._pools]
        return min(rooms, default=inf)

    def has_room_for_all(self, job: Job, request: Request) -> bool:
        """Whether each pool that is open to the request has room for the whole job."""
        over, lent = self._close(job, dict.fromkeys(self._pools, job.gpus))
        return (over | lent) & pools_of(
            request, self._topology
        ) <= request.over_cap | request.guaranteed_to_others

    def may_ever_use(self, job: Job) -> frozenset[str]:
        """The pools that the request may use whose caps are not below the smallest worker of it."""
        pools = self._pools_of(job)
        if not job.gpus or not self._shares:
            return pools
        least, caps = _smallest(job), {pool: self._share(job.workspace, pool).cap for pool in pools}
        return frozenset(pool for pool, cap in caps.items() if cap is None or cap >= least)

    def pools_due(self, job: Job) -> tuple[str, ...]:
        """Pools in which the whole job is covered by what is guaranteed to its workspace."""
        return tuple(
            pool
            for (workspace, pool), share in self._shares.items()
            if workspace == job.workspace and self.used(workspace, pool) + job.gpus <= share.guaranteed
        )

    def borrowed(self, workspace: int, pool: str) -> int:
        """GPUs that the workspace uses of the pool beyond what is guaranteed to it."""
        lasting = self.used(workspace, pool) - self._leaving[workspace, pool]
        return lasting - self._share(workspace, pool).guaranteed

    def gpus_in(self, pool: str, run: Running) -> int:
        return self._held(run)[run.workspace, pool]

    def leave(self, run: Running) -> None:
        """The run is being stopped."""
        self._leaving.update(self._held(run))
        gpus = {(hold.machine, gpu) for hold in run.holding.holds for gpu in hold.gpus}
        self._departing.setdefault(run.workspace, set()).update(gpus)

    def pledge(self, job: Job, holds: Collection[Hold]) -> Pledge:
        """Keeps the room that a preemption was granted with until its job is placed.

        What the workspace's own runs hold until they have ended is in use already, and is counted once.
        """
        departing = self._departing.get(job.workspace, set())
        twice = self._by_pool(job.workspace, (_of(hold, departing) for hold in holds))
        pledge = Pledge(self._by_pool(job.workspace, holds), twice)
        self.use(job, pledge.gpus)
        self._used.subtract(twice)
        self._twice.update(twice)
        return pledge

    def redeem(self, job: Job, pledge: Pledge) -> None:
        """Gives back what was pledged."""
        self.use(job, pledge.gpus, sign=-1)
        self._used.update(pledge.twice)
        self._twice.subtract(pledge.twice)

    def grant(self, pledge: Pledge) -> None:
        """What the job that is judged now was granted: quotas were asked then, and lending goes on beside it."""
        self._granted = {pool: gpus for (_, pool), gpus in pledge.gpus.items()}
        self._eased = pledge.twice
        self._used.subtract(pledge.twice)

    def revoke(self) -> None:
        """The job is judged, or has given up what it was granted."""
        self._used.update(self._eased)
        self._granted, self._eased = {}, Counter()

    def _owe(self, workspace: int, pool: str) -> None:
        """What is owed to the workspace is worked out anew: asked for each job, it changes with few."""
        owed = max(0, self._share(workspace, pool).guaranteed - self._firm[workspace, pool])
        self._owed_in[pool] += owed - self._owed.get((workspace, pool), 0)
        self._owed[workspace, pool] = owed

    def _close(self, job: Job, wanted: Mapping[str, int]) -> tuple[_Pools, _Pools]:
        """The pools that a cap closes to the job, and those that guarantees close."""
        over = [pool for pool, gpus in wanted.items() if gpus > self._cap_room(job.workspace, pool)]
        return _Pools(over), self._lent(job, wanted)

    def _lent(self, job: Job, wanted: Mapping[str, int]) -> _Pools:
        if job.preemptible:
            return _Pools()
        return _Pools(
            [pool for pool, gpus in wanted.items() if gpus > self._unlent_room(job.workspace, pool)]
        )

    def _pools_of(self, job: Job) -> _Pools:
        if job.key not in self._may_use:
            self._may_use[job.key] = pools_of(job.request, self._topology)
        return self._may_use[job.key]

    def _cap_room(self, workspace: int, pool: str) -> float:
        cap = self._share(workspace, pool).cap
        return float("inf") if cap is None else cap - self.used(workspace, pool)

    def _unlent_room(self, workspace: int, pool: str) -> float:
        """GPUs that a run which can't be taken back may use: those not guaranteed to others, or its own share."""
        own = self._owed.get((workspace, pool), 0)
        due = self._owed_in[pool] - own
        free = max(self._free.get(pool, 0) - due, self._granted.get(pool, 0))
        return max(own, free) if due else float("inf")

    def _share(self, workspace: int, pool: str) -> Share:
        return self._shares.get((workspace, pool), _NO_SHARE)

    def _held(self, run: Running) -> Counter[Cell]:
        key = run.holding.key
        if key not in self._of_run:
            self._of_run[key] = self._by_pool(run.workspace, run.holding.holds)
        return self._of_run[key]

    def _by_pool(self, workspace: int, holds: Iterable[Hold]) -> Counter[Cell]:
        used: dict[Cell, int] = {}
        row_of, pool_of = self._topology.row_of, self._topology.pool_of
        for hold in holds:
            row = row_of.get(hold.machine)
            if row is not None and hold.gpus:
                cell = workspace, pool_of[row]
                used[cell] = used.get(cell, 0) + len(hold.gpus)
        return Counter(used)


def _end(run: Running, stopped_at: float) -> float:
    """When the run has ended at the latest; inf: it has no time limit."""
    limit = inf if run.holding.ends_at is None else run.holding.ends_at
    return min(limit, stopped_at) if run.leaving else limit


def pools_of(request: Request, topology: Topology) -> frozenset[str]:
    """Names of the pools that the request may use, as far as it names them."""
    pools = frozenset(topology.pools)
    if request.allowed_pools is not None:
        pools &= request.allowed_pools
    named = [group.selection.pools for group in request.groups]
    if all(names is not None for names in named):
        pools &= frozenset().union(*(names for names in named if names is not None))
    return pools


def _of(hold: Hold, gpus: Collection[tuple[str, int]]) -> Hold:
    """What of the hold is on these GPUs."""
    return replace(hold, gpus=tuple(gpu for gpu in hold.gpus if (hold.machine, gpu) in gpus))


def _free_by_pool(snapshot: Snapshot) -> dict[str, int]:
    """Free GPUs on machines that take runs."""
    topology = snapshot.topology
    counted = (snapshot.state == OPEN) & (topology.pool != UNKNOWN)
    free = snapshot.gpus_free[counted]
    sums = np.bincount(topology.pool[counted], weights=free, minlength=len(topology.pools))
    return {name: int(gpus) for name, gpus in zip(topology.pools, sums, strict=True)}


def _smallest(job: Job) -> int:
    """GPUs of the smallest worker of the job that has any."""
    return min(_least(group) for group in job.request.groups if group.gpus)


def _least(group: GroupRequest) -> int:
    """GPUs of the smallest worker that the group may have."""
    return max(1, group.gpus // group.machines if group.machines else group.min_per_machine)
