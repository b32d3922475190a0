"""The pass over days of synthetic work in virtual time: what must hold at every instant, whoever submits what.

Two clusters of work: **mixed** (several workspaces with caps and guarantees, priorities, preemptible runs, runs without
a time limit) and **flood** (one workspace sends small runs without pause, and large gangs between them).
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from math import inf
from random import Random

import pytest
from hypothesis import settings

from benchmarks._load import GPUS, HOUR, MAIN, SIDE, Kind, cluster, request, shares, submissions
from benchmarks._policies import greedy, ours
from benchmarks._simulation import GRACE_SECONDS, History, Pass, Policy, Simulation, Submission
from placement.policy import Reserved, Share
from placement.policy.reserve import SPARED_SECONDS, STOPPING_SECONDS

MACHINES = {MAIN: 96, SIDE: 16}
KINDS = (
    Kind("small", 0.60, (1,), (1, 1, 2, 4), 1.0, limited=0.8, preemptible=0.4),
    Kind("machine", 0.24, (1,), (8,), 2.0, limited=0.8, preemptible=0.4),
    Kind("gang", 0.13, (2, 2, 4, 8), (8,), 3.0, limited=0.9, preemptible=0.4),
    Kind("large", 0.03, (16, 16, 24, 32, 48), (8,), 2.0),
)
SHARES = shares(**{pool.lower(): size for pool, size in MACHINES.items()})


DAYS = 0.6 if settings().max_examples == settings.get_profile("default").max_examples else 5.0
"""Of submissions; the deep run plays more of them."""

pytestmark = pytest.mark.deep


@cache
def mixed(days: float = DAYS) -> History:
    snapshot = cluster(MACHINES[MAIN], MACHINES[SIDE])
    return Simulation(snapshot, submissions(snapshot, days, 1.0, 7, KINDS), SHARES, ours()).run()


def flood(policy: Policy, hours: float = 18.0) -> History:
    """32 machines that one-machine runs of an hour or two alone would fill; every six hours a gang of 16 to 32."""
    random = Random(3)
    work: list[Submission] = []
    at = 0.0
    while (at := round(at + random.expovariate(32 / (1.4 * HOUR)), 3)) < hours * HOUR:
        seconds = random.uniform(0.4, 2.0) * HOUR
        work.append(_submission(len(work) + 1, at, 1, seconds, seconds * random.uniform(1.0, 1.5)))
    for number, machines in enumerate((24, 32, 16)):
        at = (3 + 6 * number % hours) * HOUR
        work.append(_submission(len(work) + 1, at, machines, HOUR, 1.5 * HOUR))
    return Simulation(cluster(32, 0), sorted(work, key=lambda each: each.at), {}, policy).run()


@cache
def our_flood() -> History:
    return flood(ours())


def _submission(key: int, at: float, machines: int, seconds: float, limit: float) -> Submission:
    return Submission(key, at, 1, request(machines, GPUS, pool=MAIN), seconds, limit)


EVERY = pytest.mark.parametrize("history", [mixed, our_flood])
"""For what must hold whatever is submitted."""


@EVERY
def test_every_run_has_its_turn(history):
    found = history()
    assert not found.unstarted
    assert Counter(stay.key for stay in found.stays if not stay.preempted) == dict.fromkeys(
        found.submissions, 1
    )


@EVERY
def test_no_gpu_is_held_twice(history):
    held: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for stay in history().stays:
        for rank in stay.placement.ranks:
            for gpu in rank.gpus:
                held[rank.machine_name, gpu].append((stay.start, stay.end))
    for times in held.values():
        times.sort()
        assert all(before[1] <= after[0] for before, after in pairwise(times))


@EVERY
def test_gangs_are_whole(history):
    found = history()
    for stay in found.stays:
        ranks = stay.placement.ranks
        assert len({rank.machine for rank in ranks}) == len(ranks) == found.submissions[stay.key].machines
        assert sum(len(rank.gpus) for rank in ranks) == found.submissions[stay.key].gpus


@EVERY
def test_what_is_placed_after_a_reservation_is_out_of_its_way_in_time(history):
    """Backfill: on reserved machines only what ends before the reservation's time, or can be stopped by then.

    What others were stopped for is no backfill: its machines were its own before they were reserved.
    """
    found, backfilled = history(), 0
    for before, decided in pairwise(found.passes):
        for reserved in decided.reserved:
            behind = decided.judged[decided.judged.index(reserved.key) + 1 :]
            for key in behind:
                if key not in decided.placed:
                    continue
                freed = {hold.machine for hold in before.claims.get(key, ())}
                if not reserved.machines & (_machines(decided, key) - freed):
                    continue
                backfilled += 1
                run = found.submissions[key]
                in_time = (
                    run.limit is not None
                    and reserved.at is not None
                    and decided.now + run.limit <= reserved.at
                )
                assert in_time or (run.preemptible and run.priority < reserved.priority)
    assert backfilled > 10


@EVERY
def test_a_reservation_is_put_off_by_a_higher_priority_only(history):
    """Nor by who is let in: only what can be stopped for it may use its machines for longer."""
    compared = 0
    for before, decided in pairwise(history().passes):
        promised = {each.key: each for each in before.reserved}
        for reserved in decided.reserved:
            was = promised.get(reserved.key)
            if was and _moment(was) > before.now + STOPPING_SECONDS:
                compared += 1
                later = _moment(reserved) > _moment(was)
                assert (
                    not later or _higher_first(history(), decided, reserved) or _lent(history(), before, was)
                )
    assert compared > 100


def _moment(reserved: Reserved) -> float:
    return inf if reserved.at is None else reserved.at


def _higher_first(history: History, decided: Pass, reserved: Reserved) -> bool:
    """Whether a run of higher priority was placed in this pass."""
    return any(history.submissions[key].priority > reserved.priority for key in decided.placed)


def _lent(history: History, decided: Pass, reserved: Reserved) -> bool:
    """Whether a run that can be stopped for it was let onto its machines."""
    on_them = (key for key in decided.placed if reserved.machines & _machines(decided, key))
    runs = (history.submissions[key] for key in on_them)
    return any(run.preemptible and run.priority < reserved.priority for run in runs)


def test_same_work_same_history():
    assert _told(mixed.__wrapped__(0.15)) == _told(mixed.__wrapped__(0.15))


def test_a_known_time_is_never_put_off_and_is_kept():
    """In one workspace, all with time limits: what a gang was once promised only ever comes earlier."""
    found = our_flood()
    promised: dict[int, float] = {}
    for decided in found.passes:
        for reserved in decided.reserved:
            assert reserved.at is not None
            assert reserved.at <= promised.get(reserved.key, reserved.at)
            promised[reserved.key] = reserved.at
    starts = found.first_starts()
    assert len([key for key in promised if found.submissions[key].machines >= 16]) == 3
    assert all(starts[key] <= at for key, at in promised.items())


def test_a_large_gang_waits_one_time_limit_at_most_where_greed_starves_it():
    """The flood never leaves enough machines free at once by itself; reserved ones drain in the longest time limit."""
    found = our_flood()
    first_reserved: dict[int, float] = {}
    for decided in found.passes:
        for reserved in decided.reserved:
            first_reserved.setdefault(reserved.key, decided.now)
    longest = max(each.limit or 0.0 for each in found.submissions.values())
    large = [key for key, each in found.submissions.items() if each.machines >= 16]
    starts = found.first_starts()
    assert all(starts[key] <= first_reserved[key] + longest for key in large)
    assert max(found.wait(key) for key in large) < 1.5 * longest
    starved = flood(greedy())
    assert min(starved.wait(key) for key in large if starved.submissions[key].machines > 16) > 2 * longest


def test_caps_hold_at_every_instant():
    found = mixed()
    for used in _instants(found):
        for (workspace, pool), share in SHARES.items():
            assert (
                share.cap is None or used[workspace, pool, True] + used[workspace, pool, False] <= share.cap
            )


def test_a_guarantee_is_lent_to_preemptible_runs_only():
    """What can't be taken back leaves every workspace the part that it is guaranteed."""
    found, lent = mixed(), 0
    for used in _instants(found):
        due = 0
        for (workspace, pool), share in SHARES.items():
            if pool == MAIN:
                due += max(share.guaranteed, used[workspace, pool, False])
                lent += used[workspace, pool, True] > share.guaranteed
        assert due <= MACHINES[MAIN] * GPUS


def test_each_pass_goes_by_priority():
    found = mixed()
    for decided in found.passes:
        priorities = [found.submissions[key].priority for key in decided.judged]
        assert priorities == sorted(priorities, reverse=True)


def test_nobody_overtakes_a_like_run_of_higher_priority():
    found = mixed()
    starts = found.first_starts()
    compared = 0
    for one in found.submissions.values():
        for other in found.submissions.values():
            alike = one.workspace == other.workspace and one.request == other.request and not other.patience
            if (
                alike
                and _can_replace(other, one)
                and other.priority > one.priority
                and other.at <= starts[one.key]
            ):
                compared += 1
                assert starts[other.key] <= starts[one.key]
    assert compared > 50


def test_a_preempted_run_was_stopped_for_a_better_one_and_comes_back():
    found = mixed()
    stopped = [stay for stay in found.stays if stay.preempted]
    assert stopped
    for stay in stopped:
        run = found.submissions[stay.key]
        assert run.preemptible
        assert stay.told_at is not None
        assert stay.told_at - stay.start >= SPARED_SECONDS
        assert stay.end == stay.told_at + GRACE_SECONDS
    for decided in found.passes:
        for victim, winner in decided.stopped.items():
            lower = found.submissions[victim].priority < found.submissions[winner].priority
            assert lower or _takes_its_guarantee_back(found, winner)


def test_who_had_others_stopped_starts_as_soon_as_they_are_gone():
    found = mixed()
    starts = _starts(found)
    for decided in found.passes:
        for winner in set(decided.stopped.values()):
            begun = starts[winner][bisect_left(starts[winner], decided.now)]
            assert begun <= decided.now + GRACE_SECONDS


def test_a_gang_beyond_its_cap_holds_nothing_up():
    """It waits for policy, whatever its priority: were machines reserved for it, they would stand empty for ever."""
    capped = {(1, MAIN): Share(cap=8 * GPUS)}
    large = Submission(1, 0.0, 1, request(9, GPUS, pool=MAIN), HOUR, HOUR, priority=5)
    others = [
        Submission(key, key, 2, request(1, GPUS, pool=MAIN), 2 * HOUR, priority=0) for key in range(2, 40)
    ]
    found = Simulation(cluster(16, 0), [large, *others], capped, ours()).run()
    assert {decided.refused[1] for decided in found.passes if 1 in decided.judged} == {"policy"}
    assert not any(decided.reserved for decided in found.passes if decided.judged == [1])
    assert found.unstarted == {1}


def _machines(decided: Pass, key: int) -> set[str]:
    return {rank.machine_name for rank in decided.placed[key].ranks}


def _told(history: History) -> list[tuple[object, ...]]:
    return [(stay.key, stay.start, stay.end, stay.placement.ranks) for stay in history.stays]


def _instants(history: History) -> Iterator[Counter[tuple[int, str, bool]]]:
    """GPUs used by (workspace, pool, preemptible) after each moment at which that changes."""
    changes = [(stay.end, -1, stay) for stay in history.stays] + [
        (stay.start, 1, stay) for stay in history.stays
    ]
    used: Counter[tuple[int, str, bool]] = Counter()
    for _, sign, stay in sorted(changes, key=lambda change: change[:2]):
        run = history.submissions[stay.key]
        for rank in stay.placement.ranks:
            used[run.workspace, rank.machine_name.partition("-")[0], run.preemptible] += sign * len(rank.gpus)
        yield used


def _can_replace(other: Submission, one: Submission) -> bool:
    """Whether `other` may be placed wherever and whenever `one` may: no later to end, no less preemptible."""
    if other.preemptible != one.preemptible:
        return False
    return one.limit is None or (other.limit is not None and other.limit <= one.limit)


def _takes_its_guarantee_back(history: History, winner: int) -> bool:
    share = SHARES.get((history.submissions[winner].workspace, MAIN))
    return share is not None and history.submissions[winner].gpus <= share.guaranteed


def _starts(history: History) -> dict[int, list[float]]:
    starts: dict[int, list[float]] = defaultdict(list)
    for stay in history.stays:
        starts[stay.key].append(stay.start)
    return {key: sorted(times) for key, times in starts.items()}
