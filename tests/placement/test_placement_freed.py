"""What ends frees what it held: the first moment to start, and whom to stop for it, against every choice tried."""

from collections.abc import Collection
from dataclasses import replace
from itertools import chain, combinations

from hypothesis import strategies as st

from placement import MachineFacts, build_snapshot
from placement.future import AT_ONCE, earliest
from placement.holdings import Hold, Holding
from placement.preempt import Candidate, preempt
from tests.placement.changes import holdings_on, released
from tests.placement.examples import holds_for
from tests.placement.legality import assert_legal
from tests.placement.reference import Reference
from tests.placement.same import assert_same
from tests.placement.strategies import STORAGE, clusters, requests


def taken(one: MachineFacts) -> MachineFacts:
    """The machine wholly held by runs."""
    gpus = tuple(replace(gpu, held=True) for gpu in one.gpus)
    return replace(one, gpus=gpus, cpu_free_millicores=0, memory_free_bytes=0)


BUSY = st.tuples(clusters(), st.sets(st.integers(0, 5))).map(
    lambda drawn: [taken(one) if row in drawn[1] else one for row, one in enumerate(drawn[0])]
)


def after(machines: list[MachineFacts], ended: Collection[Holding]) -> list[MachineFacts]:
    holds = [hold for holding in ended for hold in holding.holds]
    return [released(one, holds) for one in machines]


@holds_for(BUSY, share=0.3)
def test_the_cluster_after_runs_have_ended_is_the_cluster_without_them(machines):
    snapshot, holdings = build_snapshot(machines, storage_fabrics=STORAGE), holdings_on(machines)
    holds = [hold for holding in holdings[::2] for hold in holding.holds]
    freed = snapshot.released([*holds, Hold("gone", (0,), 1000, 1000)])
    assert_same(freed, build_snapshot(after(machines, holdings[::2]), storage_fabrics=STORAGE))
    assert_same(freed.held(holds), snapshot)


@holds_for(BUSY, requests(rules=3), share=0.6)
def test_the_first_moment_to_start_is_the_first_at_which_the_reference_finds_room(machines, request):
    holdings = holdings_on(machines)
    limits = sorted({holding.ends_at for holding in holdings if holding.ends_at is not None})
    ended: dict[float | None, list[Holding]] = {AT_ONCE: []}
    ended |= {limit: [one for one in holdings if (one.ends_at or limit + 1) <= limit] for limit in limits}
    ended[None] = holdings
    fitting = (
        moment
        for moment, gone in ended.items()
        if Reference(after(machines, gone), request, STORAGE).feasible()
    )
    expected: float | str | None = next(fitting, "never")
    found = earliest(build_snapshot(machines, storage_fabrics=STORAGE), request, holdings)
    assert (found.at if found else "never") == expected
    if found:
        gone = ended[found.at]
        assert_legal(after(machines, gone), request, found.placement, STORAGE)
        used = {rank.machine_name for rank in found.placement.ranks}
        waited = {one.key for one in gone for hold in one.holds if hold.machine in used}
        assert found.waits_for == tuple(sorted(waited))


def one_by_one(holdings: list[Holding]) -> list[Candidate]:
    """Each machine's hold as a run of its own, with losses in no order of names; two of them lose nothing."""
    holds = [hold for holding in holdings for hold in holding.holds]
    losses = (5.0, 3.0, 0.0, 4.0, 3.0, 0.0)
    return [
        Candidate(Holding(key, (hold,), None), loss)
        for key, (hold, loss) in enumerate(zip(holds, losses, strict=False), 1)
    ]


@holds_for(BUSY, requests(rules=3), share=0.4)
def test_whom_to_stop_is_the_cheapest_of_all_choices(machines, request):
    candidates = one_by_one(holdings_on(machines))
    choices = chain.from_iterable(combinations(candidates, size) for size in range(len(candidates) + 1))
    enough = [
        (sum(one.loss for one in choice), len(choice))
        for choice in choices
        if Reference(after(machines, [one.holding for one in choice]), request, STORAGE).feasible()
    ]
    answer = preempt(build_snapshot(machines, storage_fabrics=STORAGE), request, candidates)
    assert (answer is None) == (not enough)
    if answer:
        stopped = [one for one in candidates if one.holding.key in answer.victims]
        assert (sum(one.loss for one in stopped), len(answer.victims)) == min(enough)
        assert_legal(after(machines, [one.holding for one in stopped]), request, answer.placement, STORAGE)
