"""The first moment at which a gang could start, as runs end by their time limits."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from placement import (
    Hold,
    Holding,
    MachineFacts,
    Placement,
    Request,
    Snapshot,
    build_snapshot,
    earliest,
    fits,
    place,
)
from placement.future import AT_ONCE, Always, Departures
from tests.placement.asking import GIB, plain, reference, snapshot_of, where
from tests.placement.strategies import clusters, requests

DRAWING = """
    gpu-01  H100 ########
    gpu-02  H100 ####....
    gpu-03  H100 ########
    gpu-04  H100 ........  state=ready,cordoned
"""


def whole(machine: str, gpus: int = 8) -> Hold:
    return Hold(machine, tuple(range(gpus)), 0, 0)


def holding(key: int, ends_at: float | None, *holds: Hold) -> Holding:
    return Holding(key, holds, ends_at)


EVAL = holding(3, 100.0, whole("gpu-02", 4))
LLM = holding(7, 200.0, whole("gpu-01"))
ENDLESS = holding(9, None, whole("gpu-03"))


class TestEarliest:
    def test_it_waits_for_as_few_ends_as_are_needed(self):
        found = earliest(snapshot_of(DRAWING), plain(gpus=8, machines=1), [ENDLESS, LLM, EVAL])
        assert found
        assert (found.at, where(found.placement), found.waits_for) == (100.0, ["gpu-02"], (3,))

    def test_a_gang_waits_for_the_last_of_its_machines(self):
        found = earliest(snapshot_of(DRAWING), plain(gpus=16, machines=2), [ENDLESS, LLM, EVAL])
        assert found
        assert (found.at, where(found.placement), found.waits_for) == (200.0, ["gpu-01", "gpu-02"], (3, 7))

    def test_without_a_time_limit_no_time_can_be_given(self):
        found = earliest(snapshot_of(DRAWING), plain(gpus=24, machines=3), [ENDLESS, LLM, EVAL])
        assert found
        assert found.at is None
        assert found.waits_for == (3, 7, 9)

    def test_what_no_end_helps_has_no_moment(self):
        assert earliest(snapshot_of(DRAWING), plain(gpus=32, machines=4), [ENDLESS, LLM, EVAL]) is None
        assert earliest(snapshot_of(DRAWING), plain(gpus=8, machines=1), []) is None

    def test_what_has_room_already_waits_for_nobody(self):
        found = earliest(snapshot_of(DRAWING), plain(gpus=4, machines=1), [ENDLESS, LLM, EVAL])
        assert found
        assert (found.at, found.waits_for) == (AT_ONCE, ())

    def test_a_run_that_stays_beside_is_not_waited_for(self):
        drawing = "gpu-01  H100 ####.###"
        stays, ends = holding(1, 900.0, Hold("gpu-01", (5, 6, 7), 0, 0)), holding(2, 50.0, whole("gpu-01", 4))
        found = earliest(snapshot_of(drawing), plain(gpus=4, machines=1), [stays, ends])
        assert found
        assert (found.at, found.waits_for) == (50.0, (2,))

    def test_cores_and_memory_come_back_too(self):
        snapshot = snapshot_of("gpu-01  H100 ........  cpu=8  mem=1024")
        run = holding(1, 60.0, Hold("gpu-01", (), 100_000, 512 * GIB))
        request = plain(gpus=8, machines=1, cpu_millicores=96_000, memory_bytes=1024 * GIB)
        found = earliest(snapshot, request, [run])
        assert found
        assert (found.at, found.waits_for) == (60.0, (1,))

    def test_runs_that_end_together_free_together(self):
        one, other = holding(1, 60.0, whole("gpu-01")), holding(2, 60.0, whole("gpu-03"))
        found = earliest(snapshot_of(DRAWING), plain(gpus=16, machines=2), [one, other])
        assert found
        assert (found.at, found.waits_for) == (60.0, (1, 2))

    def test_policy_and_order_stay_as_asked(self):
        request = replace(plain(gpus=8, machines=1), reserved=frozenset({"gpu-02"}))
        found = earliest(snapshot_of(DRAWING), request, [ENDLESS, LLM, EVAL])
        assert found
        assert (found.at, where(found.placement)) == (200.0, ["gpu-01"])

    def test_unknown_machines_and_gpus_are_passed_over(self):
        run = holding(1, 60.0, whole("gone"), Hold("gpu-02", (0, 1, 2, 3, 12), 0, 0))
        found = earliest(snapshot_of(DRAWING), plain(gpus=8, machines=1), [run])
        assert found
        assert (found.at, found.waits_for) == (60.0, (1,))

    def test_the_reference_request(self):
        drawing = """
            gpu-01  H100 ########  ib:ib-a
            gpu-02  H100 ........  ib:ib-b
            gpu-03  H100 ########  ib:ib-b@200
            gpu-04  H100 ########  ib:ib-b
        """
        runs = [
            holding(1, 10.0, whole("gpu-01")),
            holding(3, 20.0, whole("gpu-03")),
            holding(4, 30.0, whole("gpu-04")),
        ]
        found = earliest(snapshot_of(drawing), reference(), runs)
        assert found
        assert (found.at, where(found.placement), found.waits_for) == (30.0, ["gpu-02", "gpu-04"], (4,))


class TestKeep:
    SAME = """
        gpu-01  H100 ########
        gpu-02  H100 ########
        gpu-03  H100 ########
    """

    def found_with(self, keep: set[str], last: float = 60.0):
        ends = {"gpu-01": 60.0, "gpu-02": 60.0, "gpu-03": last}
        runs = [holding(number, end, whole(name)) for number, (name, end) in enumerate(ends.items())]
        snapshot = snapshot_of(self.SAME)
        departures = Departures.of(snapshot.topology, runs)
        found = departures.earliest(snapshot, Always(plain(gpus=16, machines=2)), keep=frozenset(keep))
        assert found
        return found.at, where(found.placement)

    def test_machines_of_the_last_pass_are_taken_again(self):
        assert self.found_with(set()) == (60.0, ["gpu-01", "gpu-02"])
        assert self.found_with({"gpu-02", "gpu-03"}) == (60.0, ["gpu-02", "gpu-03"])

    def test_not_when_that_would_be_later(self):
        assert self.found_with({"gpu-02", "gpu-03"}, last=90.0) == (60.0, ["gpu-01", "gpu-02"])

    def test_not_when_they_are_no_longer_enough(self):
        assert self.found_with({"gpu-03", "gone"}) == (60.0, ["gpu-01", "gpu-02"])


@st.composite
def occupied(draw: st.DrawFn, runs: int = 5) -> tuple[list[MachineFacts], list[Holding]]:
    """A cluster and the runs that hold what is held there, some over several machines."""
    machines = draw(clusters())
    holds: dict[int, list[Hold]] = {}
    for one in machines:
        for gpu in one.gpus:
            if gpu.held:
                run = draw(st.integers(0, runs - 1))
                holds.setdefault(run, []).append(Hold(one.name, (gpu.index,), 2_000, 8 * GIB))
    ends = st.sampled_from([None, 10.0, 20.0, 20.0, 30.0])
    return machines, [Holding(run, tuple(held), draw(ends)) for run, held in sorted(holds.items())]


def released(snapshot: Snapshot, holdings: list[Holding]) -> Snapshot:
    return snapshot.released(hold for each in holdings for hold in each.holds)


@settings(max_examples=400, deadline=None)
@given(occupied(), requests())
def test_it_is_really_the_first_moment(drawn: tuple[list[MachineFacts], list[Holding]], request: Request):
    machines, runs = drawn
    snapshot = build_snapshot(machines)
    found = earliest(snapshot, request, runs)
    moments = sorted({run.ends_at for run in runs if run.ends_at is not None})
    for at in (AT_ONCE, *moments):
        ended = [run for run in runs if run.ends_at is not None and run.ends_at <= at]
        answer = place(released(snapshot, ended), request)
        if isinstance(answer, Placement):
            assert found
            assert found.at == at
            assert found.placement.ranks == answer.ranks
            used = {rank.machine_name for rank in answer.ranks}
            assert found.waits_for == tuple(
                run.key for run in ended if used & {hold.machine for hold in run.holds}
            )
            return
    answer = place(released(snapshot, runs), request)
    assert isinstance(answer, Placement) == (found is not None)
    assert found is None or found.at is None


@settings(max_examples=300, deadline=None)
@given(clusters(), requests(groups=2))
def test_fits_says_what_placing_would(machines: list[MachineFacts], request: Request):
    snapshot = build_snapshot(machines)
    assert fits(snapshot, request) == isinstance(place(snapshot, request), Placement)
    alone = replace(request, groups=request.groups[:1])
    assert fits(snapshot, alone) == isinstance(place(snapshot, alone), Placement)


@settings(max_examples=100, deadline=None)
@given(occupied())
def test_holding_again_what_was_released_changes_nothing(drawn: tuple[list[MachineFacts], list[Holding]]):
    machines, runs = drawn
    before = build_snapshot(machines)
    after = released(before, runs).held(hold for run in runs for hold in run.holds)
    for name in ("gpu_state", "free_healthy", "free_suspect", "cpu_free", "memory_free"):
        assert (getattr(after, name) == getattr(before, name)).all()
