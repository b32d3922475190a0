"""Who holds what on a cluster's machines, now or at a time that is past."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Case, JSONField, Q, Sum, TextField, When
from django.db.models.functions import Cast

from common.among import among
from placement.freeing import Whereabouts
from placement.holdings import Hold, Holding
from placement.topology import Topology
from placement.whatif import Named
from runs.models import Allocation, Assignment, RunAttempt
from runs.reasons import SOMEBODY_S_RUN
from wire.quantities import MILLI
from wire.spec import stored_document

_MACHINE = attrgetter("machine")


@dataclass(frozen=True)
class Holder:
    """A run that holds something; an independent one with all its children."""

    run_id: int
    keys: frozenset[int]
    """By which it is known: of an independent run also its children's, which passes know."""
    name: str
    workspace_id: int
    limit_at: datetime | None
    """When its time limit ends it; None: it has none, or does not run yet."""
    ends_at: datetime | None
    """The same, also of a run that is only starting, as if it ran from now on."""
    preemptible: bool
    holds: tuple[Hold, ...]

    @cached_property
    def holding(self) -> Holding:
        return Holding(self.run_id, self.holds, self.ends_at.timestamp() if self.ends_at else None)

    @cached_property
    def named(self) -> Named:
        """As its workspace may see it."""
        return Named(self.holding, self.name, self.preemptible)

    @cached_property
    def unnamed(self) -> Named:
        """As others may."""
        return Named(self.holding, SOMEBODY_S_RUN, self.preemptible)


class _Attempt(NamedTuple):
    """One, with what it held when it was read. All of it comes with the placement, and goes worker by worker."""

    id: int
    run_id: int
    number: int
    name: str
    parent_id: int | None
    workspace_id: int
    preemptible: bool | None
    limit_at: datetime | None
    limit_seconds: int | None
    """Of one that had not opened, as far as is known: `limit_at` comes with that."""
    workers: int
    """So many held something: as long as it is the same number, it is the same workers."""
    holds: Sequence[Hold]

    @property
    def shown_id(self) -> int:
        return self.parent_id or self.run_id


class _Family(NamedTuple):
    """What one run holds, or several children of one."""

    attempts: Sequence[_Attempt]
    """In the order in which they were made, run by run."""
    holder: Holder | None
    """The same at any time; None: one of them has not opened, and is told as if it ran from now on."""


@dataclass
class _Known:
    """What was read of the attempts that held something when a cluster was last asked: it stays true."""

    workers: str
    """What `_workers` told."""
    attempts: Mapping[int, _Attempt]
    """By id."""
    elsewhere: frozenset[int]
    """Attempts that held something in other clusters."""
    families: Mapping[int, _Family]
    """By the id of the run that people see, in the order of their names."""
    _where: Whereabouts | None = field(default=None, init=False)

    def holders(self, now: datetime | None) -> list[Holder]:
        """`now`: when those start that have not; None: it does not matter when they end."""
        return [family.holder or _holder(family.attempts, now) for family in self.families.values()]

    def where(self, topology: Topology) -> Whereabouts:
        """Of what they hold, whenever that ends."""
        known = self._where
        if known is None or known.topology is not topology:
            known = Whereabouts.of(topology, [holder.holding for holder in self.holders(None)])
            self._where = known
        return known

    @cached_property
    def on(self) -> dict[str, tuple[int, ...]]:
        """Machine → the runs that hold GPUs there, by their place among the families."""
        found: dict[str, tuple[int, ...]] = {}
        for number, family in enumerate(self.families.values()):
            alone = (number,)
            for hold in chain.from_iterable(attempt.holds for attempt in family.attempts):
                if hold.gpus:
                    others = found.get(hold.machine, ())
                    found[hold.machine] = others if number in others else others + alone
        return found

    @cached_property
    def starting(self) -> list[int]:
        """Attempts that had not opened."""
        return [each.id for each in self.attempts.values() if each.limit_seconds]


_NOTHING = _Known("", {}, frozenset(), {})
_known: dict[int, _Known] = {}
"""By cluster."""


@dataclass(frozen=True)
class Held:
    """All that runs hold in a cluster."""

    holders: Sequence[Holder]
    """By name."""
    where: Callable[[Topology], Whereabouts]
    """Their holdings in the arrays of a cluster; when those end is to be asked of `holders`."""
    on: Mapping[str, tuple[int, ...]]
    """Machine → those that hold GPUs there, by their place in `holders`."""


def held_in(cluster_id: int, now: datetime, *, past: bool = False) -> Held:
    """What every run holds in the cluster; `past`: as it was at `now`."""
    at = now if past else None
    known = _known.get(cluster_id, _NOTHING)
    workers = _workers(at)
    if workers != known.workers:
        known = _changed(known, cluster_id, workers, at)
    if opened := _opened(known):
        attempts = {**known.attempts, **opened}
        known = replace(known, attempts=attempts, families=_families(attempts.values(), known.families))
    if not past:
        _known[cluster_id] = known
    return Held(known.holders(now), known.where, known.on)


def _changed(known: _Known, cluster_id: int, workers: str, at: datetime | None) -> _Known:
    """With what has come since, and without what has gone."""
    counts = Counter(map(int, workers.strip("{}").split(","))) if workers.strip("{}") else Counter[int]()
    same = {key: each for key, each in known.attempts.items() if counts.get(key) == each.workers}
    elsewhere = known.elsewhere & counts.keys()
    unknown = counts.keys() - same.keys() - elsewhere
    new = _read(cluster_id, {key: counts[key] for key in unknown}, at)
    attempts = {**same, **new}
    families = _families(attempts.values(), known.families)
    return _Known(workers, attempts, elsewhere | (unknown - new.keys()), families)


def _families(attempts: Iterable[_Attempt], known: Mapping[int, _Family]) -> dict[int, _Family]:
    """Those of which nothing has changed stay as they are known."""
    together: dict[int, list[_Attempt]] = defaultdict(list)
    for attempt in sorted(attempts, key=_IN_ORDER):
        together[attempt.shown_id].append(attempt)
    found = {}
    for key, own in together.items():
        before = known.get(key)
        found[key] = before if before and before.attempts == own else _family(own)
    return found


def _family(attempts: Sequence[_Attempt]) -> _Family:
    starting = any(attempt.limit_seconds for attempt in attempts)
    return _Family(attempts, None if starting else _holder(attempts, None))


def _workers(at: datetime | None) -> str:
    """The attempt of each worker that holds something, of all clusters, in order, as PostgreSQL writes an array.

    Whether the same workers hold something as before, a comparison of this tells: an index alone answers it, and the
    numbers are read when they differ.
    """
    held = Assignment.objects.filter(_held(at)).order_by()
    attempts = ArrayAgg("attempt_id", order_by="attempt_id")
    return held.aggregate(workers=Cast(attempts, TextField()))["workers"] or "{}"


def _held(at: datetime | None) -> Q:
    if at is None:
        return Q(gone_at=None)
    return Q(placed_at__lte=at) & (Q(gone_at=None) | Q(gone_at__gt=at))


_COLUMNS = (
    "id",
    "run_id",
    "number",
    "run__name",
    "run__parent_id",
    "run__workspace_id",
    "run__document__spec__preemptible",
    "time_limit_at",
)
_IN_ORDER = attrgetter("name", "run_id", "number")


def _read(cluster_id: int, workers: Mapping[int, int], at: datetime | None) -> dict[int, _Attempt]:
    """Those of these attempts that are the cluster's, given with how many of their workers hold something."""
    if not workers:
        return {}
    holds = _holds(cluster_id, workers.keys(), at)
    starting = Case(When(opened_at=None, then="run__document"), output_field=JSONField())
    attempts = RunAttempt.objects.filter(id__in=holds.keys()).order_by().annotate(starting=starting)
    return {
        row[0]: _Attempt(*(*row, _limit_seconds(document), workers[row[0]], holds[row[0]]))
        for *row, document in attempts.values_list(*_COLUMNS, "starting")
    }


def _limit_seconds(document: object) -> int | None:
    return None if document is None else stored_document(document).time_limit_seconds


def _opened(known: _Known) -> dict[int, _Attempt]:
    """Those that had not opened when they were read, and by now have: with the end of their time limit."""
    opened = RunAttempt.objects.filter(among("id", known.starting), time_limit_at__isnull=False).order_by()
    return {
        key: known.attempts[key]._replace(limit_at=at, limit_seconds=None)
        for key, at in opened.values_list("id", "time_limit_at")
    }


def _holds(cluster_id: int, attempts: Collection[int], at: datetime | None) -> dict[int, list[Hold]]:
    """By attempt, one for each of its workers in the cluster."""
    held = Assignment.objects.filter(_held(at), attempt__in=attempts, machine__cluster=cluster_id)
    rows = (
        Allocation.objects.filter(assignment__in=held.order_by())
        .order_by()
        .values_list("assignment__attempt_id", "assignment_id", "machine__name")
        .annotate(
            gpus=ArrayAgg("gpu__index", filter=Q(gpu__isnull=False), default=[]),
            cores=Sum("cpu_cores"),
            memory=Sum("memory_bytes"),
        )
    )
    holds: dict[int, list[Hold]] = defaultdict(list)
    for attempt, _, machine, gpus, cores, memory in rows:
        holds[attempt].append(Hold(machine, tuple(sorted(gpus)), round(cores * MILLI), memory))
    return holds


def _holder(attempts: Sequence[_Attempt], now: datetime | None) -> Holder:
    """Of one run, or of several children of one: it ends with the last of them. `now`: when one starts that has not."""
    # What is left of an older attempt ends before the newest one does.
    newest = list({attempt.run_id: attempt for attempt in attempts}.values())
    first = newest[0]
    held = chain.from_iterable(attempt.holds for attempt in attempts)
    return Holder(
        run_id=first.shown_id,
        keys=frozenset({first.shown_id, *(attempt.run_id for attempt in newest)}),
        name=first.name,
        workspace_id=first.workspace_id,
        limit_at=_last(attempt.limit_at for attempt in newest),
        ends_at=_last(_end(attempt, now) for attempt in newest),
        preemptible=all(attempt.preemptible for attempt in newest),
        holds=tuple(sorted(held, key=_MACHINE)),
    )


def _end(attempt: _Attempt, now: datetime | None) -> datetime | None:
    if now is not None and attempt.limit_seconds:
        return now + timedelta(seconds=attempt.limit_seconds)
    return attempt.limit_at


def _last(ends: Iterable[datetime | None]) -> datetime | None:
    """None where one of them has no end."""
    known = list(ends)
    return None if None in known else max(filter(None, known))
