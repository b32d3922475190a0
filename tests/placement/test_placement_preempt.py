"""Whom to stop so that a gang can start: whole runs, only those needed, the fewest GPU-seconds lost."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from placement import (
    Candidate,
    Hold,
    Holding,
    MachineFacts,
    Placement,
    Preemption,
    Request,
    Snapshot,
    build_snapshot,
    place,
    preempt,
)
from placement.preempt import MOST_EXACT
from tests.placement.asking import plain, snapshot_of, where
from tests.placement.strategies import requests
from tests.placement.test_placement_future import holding, occupied, whole


def stopping(drawing: str, request: Request, *candidates: Candidate) -> Preemption | None:
    return preempt(snapshot_of(drawing), request, candidates)


def victims(drawing: str, request: Request, *candidates: Candidate) -> tuple[int, ...]:
    found = stopping(drawing, request, *candidates)
    assert found
    return found.victims


def run(key: int, loss: float, *holds: Hold) -> Candidate:
    return Candidate(holding(key, None, *holds), loss)


BUSY = """
    gpu-01  H100 ########
    gpu-02  H100 ########
    gpu-03  H100 ########
"""
ONE, TWO = plain(gpus=8, machines=1), plain(gpus=16, machines=2)


class TestVictims:
    def test_the_one_that_loses_least(self):
        found = stopping(
            BUSY, ONE, run(1, 50, whole("gpu-01")), run(2, 20, whole("gpu-02")), run(3, 90, whole("gpu-03"))
        )
        assert found
        assert (found.victims, where(found.placement)) == ((2,), ["gpu-02"])

    def test_gangs_are_stopped_whole_and_counted_whole(self):
        gang = run(1, 30, whole("gpu-01"), whole("gpu-02"))
        assert victims(BUSY, ONE, gang, run(3, 20, whole("gpu-03"))) == (3,)
        assert victims(BUSY, TWO, gang, run(3, 20, whole("gpu-03"))) == (1,)

    def test_two_cheap_ones_rather_than_a_dear_one(self):
        drawing = "gpu-01  H100 ########\ngpu-02  H100 ########"
        first, second = Hold("gpu-01", (0, 1, 2, 3), 0, 0), Hold("gpu-01", (4, 5, 6, 7), 0, 0)
        assert victims(drawing, ONE, run(1, 10, first), run(2, 15, second), run(3, 30, whole("gpu-02"))) == (
            1,
            2,
        )
        assert victims(drawing, ONE, run(1, 10, first), run(2, 25, second), run(3, 30, whole("gpu-02"))) == (
            3,
        )

    def test_of_equal_losses_the_fewest_runs(self):
        drawing = "gpu-01  H100 ########\ngpu-02  H100 ########"
        halves = [
            run(1, 0, Hold("gpu-01", (0, 1, 2, 3), 0, 0)),
            run(2, 0, Hold("gpu-01", (4, 5, 6, 7), 0, 0)),
        ]
        assert victims(drawing, ONE, *halves, run(3, 0, whole("gpu-02"))) == (3,)

    def test_nobody_is_stopped_where_there_is_room(self):
        found = stopping(BUSY + "gpu-04  H100 ........", ONE, run(1, 1, whole("gpu-01")))
        assert found
        assert (found.victims, where(found.placement)) == ((), ["gpu-04"])

    def test_nobody_is_stopped_in_vain(self):
        assert stopping(BUSY, TWO, run(1, 1, whole("gpu-01"))) is None
        assert (
            stopping(BUSY, plain(gpus=8, machines=1, models=frozenset({"B200"})), run(1, 1, whole("gpu-01")))
            is None
        )
        assert stopping(BUSY, ONE) is None

    def test_what_holds_nothing_useful_is_left_alone(self):
        drawing = "gpu-01  H100 ########\ngpu-02  H100 ########  state=ready,cordoned"
        assert stopping(drawing, ONE, run(2, 1, whole("gpu-02"))) is None
        assert victims(drawing, ONE, run(1, 99, whole("gpu-01")), run(2, 1, whole("gpu-02"))) == (1,)

    def test_a_large_gang_that_loses_little_is_found_among_many_small_ones(self):
        drawing = "\n".join(f"m{number:02d}  H100 ########" for number in range(40))
        small = [run(number, 10, whole(f"m{number:02d}")) for number in range(30)]
        gang = run(99, 60, *(whole(f"m{number:02d}") for number in range(30, 40)))
        assert len(small) > MOST_EXACT
        assert victims(drawing, plain(gpus=80, machines=10), *small, gang) == (99,)
        assert victims(drawing, plain(gpus=40, machines=5), *small, gang) == (0, 1, 2, 3, 4)

    def test_the_order_in_which_candidates_are_given_does_not_matter(self):
        runs = [run(number, 10, whole(f"gpu-0{number}")) for number in (1, 2, 3)]
        assert stopping(BUSY, TWO, *runs) is not None
        assert victims(BUSY, TWO, *runs) == victims(BUSY, TWO, *reversed(runs)) == (1, 2)


LOSSES = st.sampled_from([0.0, 1.0, 1.0, 2.0, 3.0, 5.0, 8.0])


@st.composite
def stoppable(draw: st.DrawFn, most: int) -> tuple[list[MachineFacts], list[Candidate]]:
    machines, runs = draw(occupied(most))
    return machines, [Candidate(each, draw(LOSSES)) for each in runs]


def without(snapshot: Snapshot, stopped: list[Holding]) -> Snapshot:
    return snapshot.released(hold for each in stopped for hold in each.holds)


def enough(snapshot: Snapshot, request: Request, stopped: list[Holding]) -> bool:
    return isinstance(place(without(snapshot, stopped), request), Placement)


@settings(max_examples=300, deadline=None)
@given(stoppable(6), requests())
def test_of_up_to_six_no_choice_loses_less(
    drawn: tuple[list[MachineFacts], list[Candidate]], request: Request
):
    machines, candidates = drawn
    snapshot = build_snapshot(machines)
    best = min(
        (
            (sum(one.loss for one in chosen), len(chosen))
            for count in range(len(candidates) + 1)
            for chosen in combinations(candidates, count)
            if enough(snapshot, request, [one.holding for one in chosen])
        ),
        default=None,
    )
    found = preempt(snapshot, request, candidates)
    assert (found is None) == (best is None)
    if found:
        chosen = [one for one in candidates if one.holding.key in found.victims]
        assert (sum(one.loss for one in chosen), len(chosen)) == best
        answer = place(without(snapshot, [one.holding for one in chosen]), request)
        assert isinstance(answer, Placement)
        assert found.placement.ranks == answer.ranks


@settings(max_examples=150, deadline=None)
@given(stoppable(30), requests())
def test_every_victim_is_needed(drawn: tuple[list[MachineFacts], list[Candidate]], request: Request):
    machines, candidates = drawn
    snapshot = build_snapshot(machines)
    found = preempt(snapshot, request, candidates)
    if found is None:
        assert not enough(snapshot, request, [one.holding for one in candidates])
        return
    stopped = [one.holding for one in candidates if one.holding.key in found.victims]
    assert enough(snapshot, request, stopped)
    for spared in stopped:
        assert not enough(snapshot, request, [each for each in stopped if each is not spared])
