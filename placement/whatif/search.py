"""Single changes first; pairs only when no single one helps, or only those that make the run smaller."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from placement.freeing import Whereabouts
from placement.outcome import Refusal
from placement.request import Request
from placement.snapshot import Snapshot
from placement.whatif import amounts, labels, requests, runs, selection, shapes
from placement.whatif.bench import Bench, Case, Failure, cases_of
from placement.whatif.changes import Change, Code, Named, WhatIf, WhatIfs
from placement.whatif.machines import LIFTS, Remedy
from placement.whatif.requests import Variants
from placement.whatif.runs import Holders

OF_REQUEST: tuple[Variants, ...] = (
    selection.excluded,
    selection.pools,
    selection.named,
    selection.labels,
    requests.healthy_only,
    requests.keep_within,
    requests.spread,
    requests.interconnect,
    requests.speed,
    requests.models,
    requests.gpu_memory,
    shapes.machines,
    shapes.node_range,
    shapes.min_per_machine,
    amounts.less_cpu,
    amounts.less_memory,
    amounts.fixed_amounts,
    shapes.fewer_gpus,
    shapes.fewer_machines,
    selection.preemptible,
)

AS_MUCH_AS_FITS = frozenset(
    {
        Code.LESS_CPU,
        Code.LESS_MEMORY,
        Code.FIXED_AMOUNTS,
        Code.FEWER_GPUS,
        Code.FEWER_MACHINES,
        Code.NODE_RANGE,
    }
)
"""How far these go depends on what else is changed: in a pair they come second."""

SMALLER = frozenset({Code.FEWER_GPUS, Code.FEWER_MACHINES})
"""These make the run another one: where nothing else helps, pairs of other changes are looked for all the same."""

_MOST_PAIRS = 4


def what_ifs(
    snapshot: Snapshot,
    request: Request,
    refusal: Refusal,
    *,
    holdings: Sequence[Named] = (),
    where: Whereabouts | None = None,
    limit: int = 400,
) -> WhatIfs:
    """Every change with which `place` gives a placement now, in the order of `Code`; at most `limit` engine calls.

    `refusal`: what `place(snapshot, request)` answered. `holdings`: what runs hold on this cluster now; `where`: their
    whereabouts, for one who has them already.
    """
    search = _Search(Bench(limit), snapshot, Holders(snapshot, holdings, where))
    bases = cases_of(snapshot, request, refusal)
    found = [offer for case in bases for offer in search.singles(case)]
    if all(offer.changes[0].code in SMALLER for offer in found):
        search.bench.skipped = SMALLER
        found += search.pairs(bases)
    if not found:
        search.bench.skipped = frozenset()
        found += search.pairs(bases)
    return WhatIfs.of(sorted(found, key=lambda offer: offer.rank), search.bench.tried)


@dataclass
class _Search:
    bench: Bench
    snapshot: Snapshot
    holders: Holders

    def __post_init__(self) -> None:
        self.remedies = tuple(Remedy(lift, self.snapshot) for lift in LIFTS)

    def singles(self, case: Case) -> Iterator[WhatIf]:
        for variants in (*OF_REQUEST, *self._of_cluster(self.remedies)):
            yield from variants(self.bench, case)

    def _of_cluster(self, remedies: Sequence[Remedy]) -> list[Variants]:
        return [
            *(remedy.offers for remedy in remedies),
            *(partial(labels.offers, label) for label in labels.LABELS),
            selection.cap,
            selection.reserved,
            partial(runs.alone, self.holders),
        ]

    def pairs(self, bases: Sequence[Case]) -> Iterator[WhatIf]:
        """Two changes of the request; one of the request and one of the cluster; two of the cluster; two runs."""
        seen: set[frozenset[object]] = set()
        count = 0
        for offer in self._pairs(bases):
            keys = frozenset(change.key for change in offer.changes)
            if keys in seen:
                continue
            seen.add(keys)
            yield offer
            count += 1
            if count == _MOST_PAIRS:
                return

    def _pairs(self, bases: Sequence[Case]) -> Iterator[WhatIf]:
        for failure in self._worth_going_on(bases[0].refusal):
            for case in failure.cases():
                yield from self.singles(case)
        for case in bases:
            for number, remedy in enumerate(self.remedies):
                yield from self._beside(remedy, self.remedies[number + 1 :], case)
            yield from runs.together(self.holders, self.bench, case)

    def _worth_going_on(self, before: Refusal) -> list[Failure]:
        """Changes of the request that moved something, in the order of `Code`."""
        failed = [
            failure
            for failure in self.bench.failed.values()
            if failure.snapshot is self.snapshot
            and failure.change.code not in AS_MUCH_AS_FITS
            and failure.moved(before)
        ]
        return sorted(failed, key=lambda failure: failure.change.code.rank)

    def _beside(self, remedy: Remedy, others: Sequence[Remedy], case: Case) -> Iterator[WhatIf]:
        """The remedy everywhere and one more change to the cluster; when that helps, only where both are needed."""
        code = remedy.lift.code
        everywhere = remedy.everywhere if remedy.eligible.any() else case.snapshot
        for loose in self._seconds(others, everywhere, Change(code, {}), case):
            if targets := remedy.used(loose.placement, case):
                done = remedy.lift.done(case.snapshot, targets)
                yield from self._seconds(others, done, Change(code, {"targets": targets}), case)

    def _seconds(
        self, others: Sequence[Remedy], snapshot: Snapshot, first: Change, case: Case
    ) -> Iterator[WhatIf]:
        """Changes to the cluster beside the first one, which is in the snapshot already."""
        answer = self.bench.place(snapshot, case.request) if snapshot is not case.snapshot else None
        if not isinstance(answer, Refusal):
            return
        changed = replace(case, snapshot=snapshot, refusal=answer, changes=(first,))
        for variants in self._of_cluster([other.on(snapshot) for other in others]):
            yield from variants(self.bench, changed)
