"""Quotas in numbers and words: what the workspace may use of each pool, what it uses, and who does."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np

from machines.models import WorkspacePool
from placement import Request, Snapshot
from placement.arrays import UNKNOWN
from placement.phrases import and_list, plural
from runs.explaining.held import Held, Holder
from runs.models import Run
from runs.reasons import SOMEBODY_S_RUN

NAMED = 3
"""So many runs that use a quota stand in the sentence."""


@dataclass(frozen=True)
class PoolUse:
    """One pool, as the workspace of the run sees it. GPUs."""

    pool: str
    cap: int | None
    guaranteed: int
    used: int
    lent: int
    """Of what is guaranteed to the workspace, so much is in use by others."""
    closed: str
    """Why the run may not use it now: "pool_cap", "pool_guaranteed" or ""."""
    kept: str
    """The run for which what quotas leave is kept, where that is what closes it; "" otherwise."""
    users: tuple[tuple[Holder, int], ...]
    """The workspace's own runs there, the largest first."""

    def as_data(self) -> dict[str, Any]:
        return {
            "pool": self.pool,
            "cap": self.cap,
            "guaranteed": self.guaranteed,
            "used": self.used,
            "lent": self.lent,
            "closed": self.closed,
            "used_by": [{"run": holder.name, "gpus": gpus} for holder, gpus in self.users],
        }


def pools_of(
    workspace: int,
    cluster: int,
    snapshot: Snapshot,
    request: Request,
    held: Held,
    kept: Mapping[str, int],
) -> list[PoolUse]:
    """The pools that the workspace may use, by name. `kept`: pool → the run for which what quotas leave is kept."""
    names = _names(kept, workspace)
    used = _by_pool(snapshot, held, workspace)
    free = _free(snapshot)
    access = WorkspacePool.objects.filter(workspace=workspace, pool__cluster=cluster).order_by("pool__slug")
    pools = []
    for pool, cap, guaranteed in access.values_list("pool__slug", "gpu_cap", "guaranteed_gpus"):
        own = used.get(pool, [])
        total = sum(gpus for _, gpus in own)
        pools.append(
            PoolUse(
                pool=pool,
                cap=cap,
                guaranteed=guaranteed,
                used=total,
                lent=max(0, guaranteed - total - free[pool]),
                closed=_closed(pool, request),
                kept=names.get(pool, ""),
                users=tuple(sorted(own, key=lambda use: (-use[1], use[0].name))),
            )
        )
    asked = sum(group.gpus for group in request.groups)
    return [_alone(pools[0], asked)] if len(pools) == 1 else pools


def _names(kept: Mapping[str, int], workspace: int) -> dict[str, str]:
    """Pool → the run, as the workspace may see it."""
    runs = Run.objects.in_bulk(set(kept.values()))
    return {
        pool: runs[key].name if runs[key].workspace_id == workspace else SOMEBODY_S_RUN
        for pool, key in kept.items()
        if key in runs
    }


def _alone(pool: PoolUse, asked: int) -> PoolUse:
    """Where there is no other pool, a request that is larger than what the cap leaves can't be met."""
    over = pool.cap is not None and pool.used + asked > pool.cap
    return replace(pool, closed="pool_cap") if over and not pool.closed else pool


def _closed(pool: str, request: Request) -> str:
    if pool in request.over_cap:
        return "pool_cap"
    return "pool_guaranteed" if pool in request.guaranteed_to_others else ""


def _by_pool(snapshot: Snapshot, held: Held, workspace: int) -> dict[str, list[tuple[Holder, int]]]:
    """The workspace's runs that hold GPUs in each pool, with how many."""
    topology, where, holders = snapshot.topology, held.where(snapshot.topology), held.holders
    own = np.fromiter((holder.workspace_id == workspace for holder in holders), np.bool_, len(holders))
    counted = own[where.holder] & (topology.pool[where.row] != UNKNOWN)
    at = (topology.pool[where.row[counted]], where.holder[counted])
    gpus = np.zeros((len(topology.pools), len(holders)), dtype=np.int64)
    np.add.at(gpus, at, where.gpus[counted])
    found: dict[str, list[tuple[Holder, int]]] = {}
    for pool, number in np.argwhere(gpus).tolist():
        found.setdefault(topology.pools[pool], []).append((holders[number], int(gpus[pool, number])))
    return found


def _free(snapshot: Snapshot) -> Counter[str]:
    topology, free = snapshot.topology, Counter[str]()
    for number, pool in enumerate(topology.pools):
        free[pool] = int(snapshot.gpus_free[topology.pool == number].sum())
    return free


def policy_words(pools: Iterable[PoolUse], workspace: str, asked: int) -> str:
    """One sentence: the quota that is in the way, else how much of quotas is used."""
    known = list(pools)
    closed = [_closed_words(pool, workspace, asked) for pool in known if pool.closed]
    if closed:
        return " ".join(closed)
    capped = [pool for pool in known if pool.cap is not None]
    if not capped:
        names, noun = and_list([pool.pool for pool in known]), "pool" if len(known) == 1 else "pools"
        return f"{workspace} has no quota on {noun} {names}." if known else f"No pool is open to {workspace}."
    used = and_list(
        [f"{pool.used:,} of {plural(pool.cap or 0, 'GPU')} of pool {pool.pool}" for pool in capped]
    )
    return f"Within quota: {used} in use; {asked:,} asked."


def _closed_words(pool: PoolUse, workspace: str, asked: int) -> str:
    cap, over = pool.cap or 0, pool.used + asked - (pool.cap or 0)
    if pool.kept and (pool.closed == "pool_guaranteed"):
        return f"Quota: what is left of pool {pool.pool} is kept for {pool.kept}, which goes first."
    if pool.closed == "pool_guaranteed":
        return f"Quota: what is free in pool {pool.pool} is guaranteed to other workspaces."
    first = f"{pool.kept}, which goes first" if pool.kept else "a run that goes first"
    many = f", {over:,} too many" if over > 0 else f"; what is left is kept for {first}"
    return (
        f"Quota: {workspace} may use {plural(cap, 'GPU')} of pool {pool.pool}; "
        f"{pool.used:,} {'is' if pool.used == 1 else 'are'} in use{_users_words(pool)}, "
        f"{asked:,} {'is' if asked == 1 else 'are'} asked{many}."
    )


def _users_words(pool: PoolUse) -> str:
    told = [f"{gpus:,} by {holder.name}" for holder, gpus in pool.users[:NAMED]]
    more = len(pool.users) - NAMED
    if not told:
        return ""
    return f" ({', '.join(told)}{f' and {more:,} more runs' if more > 0 else ''})"


def quota_frees_at(pool: PoolUse, asked: int) -> tuple[datetime | None, str] | None:
    """When runs that end have freed enough of the cap, and the run that is the last of them.

    (None, run): that run has no time limit. None: never, the run asks for more than the cap.
    """
    over = pool.used + asked - (pool.cap or 0)
    latest = sorted(pool.users, key=lambda item: (item[0].ends_at is None, item[0].ends_at, item[0].name))
    for holder, gpus in latest:
        over -= gpus
        if over <= 0:
            return holder.ends_at, holder.name
    return None


def pool_numbers(pools: Iterable[PoolUse], workspace: str) -> Mapping[str, dict[str, Any]]:
    """What `words.machine_sentence` is told of a pool that the workspace's cap closes, or what is kept of it."""
    return {
        pool.pool: {"kept": pool.kept}
        if pool.kept
        else {"workspace": workspace, "used": pool.used, "cap": pool.cap}
        for pool in pools
        if pool.kept or (pool.closed == "pool_cap" and pool.cap is not None)
    }
