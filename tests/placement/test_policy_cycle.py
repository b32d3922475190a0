"""One pass: who goes first, what is reserved, and what quotas close. Drawn clusters."""

from dataclasses import replace

from placement import Cause, GroupRequest, Request
from placement.policy import Share
from tests.placement.passes import HOUR, NOW, TWO_FREE_TWO_BUSY, cycle, job, passed, running, told

# --- Order ----------------------------------------------------------------------------------------


def test_priority_then_restarted_then_fair_share_then_time():
    jobs = [
        job(1, 1, workspace=1),
        job(2, 1, workspace=1),
        job(3, 1, workspace=2),
        job(4, 1, workspace=2, ahead=True),
        job(5, 1, workspace=1, priority=10),
    ]
    made = cycle(TWO_FREE_TWO_BUSY, jobs, usage={1: 500.0, 2: 100.0})
    assert [each.key for each in made.order()] == [5, 4, 3, 1, 2]


def test_a_placement_is_charged_at_once_so_that_workspaces_take_turns():
    jobs = [job(key, 1, workspace=1 + key // 10, limit_seconds=HOUR) for key in (1, 2, 3, 11, 12, 13)]
    assert list(passed(cycle(TWO_FREE_TWO_BUSY, jobs))) == [1, 11, 2, 12, 3, 13]


def test_usage_counts_against_what_is_guaranteed():
    jobs = [job(1, 1, workspace=1), job(2, 1, workspace=2)]
    shares = {(2, "h100"): Share(guaranteed=8)}
    made = cycle(TWO_FREE_TWO_BUSY, jobs, usage={1: 1000.0, 2: 4000.0}, shares=shares)
    assert [each.key for each in made.order()] == [2, 1], "4000 of 8 is less than 1000 of 1"


# --- Reservations and backfill ---------------------------------------------------------------------


def test_the_first_run_that_can_t_start_keeps_machines_and_later_ones_start_around_them():
    """Job 1 needs three machines: the two free ones and gpu-01, which is free first."""
    jobs = [job(1, 24), job(2, 8), job(3, 8, limit_seconds=HOUR)]
    runs = [running(90, "gpu-01", ends=NOW + HOUR), running(91, "gpu-02", ends=NOW + 2 * HOUR)]
    said = passed(cycle(TWO_FREE_TWO_BUSY, jobs, runs))

    assert told(said) == {1: "fit", 2: "order", 3: "placed on gpu-03"}
    kept = said[1].reserved
    assert (kept.machines, kept.at, kept.waits_for) == ({"gpu-01", "gpu-03", "gpu-04"}, NOW + HOUR, (90,))
    assert said[2].behind == (1,)


def test_a_run_that_would_end_a_second_too_late_does_not_backfill():
    jobs = [job(1, 24), job(2, 8, limit_seconds=HOUR + 1)]
    runs = [running(90, "gpu-01", ends=NOW + HOUR), running(91, "gpu-02")]
    assert told(passed(cycle(TWO_FREE_TWO_BUSY, jobs, runs)))[2] == "order"


def test_without_a_time_limit_there_is_a_reservation_without_a_time():
    jobs = [job(1, 32), job(2, 8, limit_seconds=60.0)]
    runs = [running(90, "gpu-01", ends=NOW + HOUR), running(91, "gpu-02")]
    said = passed(cycle(TWO_FREE_TWO_BUSY, jobs, runs))

    assert said[1].reserved.at is None
    assert told(said)[2] == "order", "nobody knows when job 1 can start, so nothing is surely out of its way"


def test_a_preemptible_run_of_lower_priority_may_use_what_is_reserved():
    jobs = [job(1, 32, priority=5), job(2, 8, preemptible=True), job(3, 8, preemptible=True, priority=5)]
    runs = [running(90, "gpu-01"), running(91, "gpu-02")]
    said = told(passed(cycle(TWO_FREE_TWO_BUSY, jobs, runs)))

    assert said == {1: "fit", 3: "order", 2: "placed on gpu-03"}, "one of equal priority could not be stopped"


def test_reservations_are_made_for_disjoint_pools_only():
    drawing = """
        a-1  H100 ########  pool=a
        b-1  H100 ########  pool=b
    """
    jobs = [
        replace(
            job(key, 8), request=Request((GroupRequest(gpus=8, machines=1),), allowed_pools=frozenset({pool}))
        )
        for key, pool in ((1, "a"), (2, "a"), (3, "b"))
    ]
    made = cycle(drawing, jobs, [running(90, "a-1"), running(91, "b-1")])
    passed(made)
    assert [(each.key, each.machines) for each in made.reserved] == [
        (1, frozenset({"a-1"})),
        (3, frozenset({"b-1"})),
    ]


def test_the_machines_kept_last_time_are_kept_again():
    drawing = """
        gpu-01  H100 ########
        gpu-02  H100 ########
    """
    runs = [running(90, "gpu-01", ends=NOW + HOUR), running(91, "gpu-02", ends=NOW + HOUR)]
    made = cycle(drawing, [job(1, 8, kept=frozenset({"gpu-02"}))], runs)
    passed(made)
    assert made.reserved[0].machines == {"gpu-02"}


def test_whose_turn_has_come_keeps_it_when_a_workspace_that_used_less_sends_runs():
    """Job 1 waits for gpu-01; nothing but a higher priority takes what is being freed for it."""
    jobs = [
        job(1, 24, kept=frozenset({"gpu-01", "gpu-03", "gpu-04"})),
        job(2, 8, workspace=2),
        job(3, 8, workspace=2, limit_seconds=HOUR),
        job(4, 8, workspace=2, priority=1),
    ]
    runs = [running(90, "gpu-01", ends=NOW + HOUR), running(91, "gpu-02", ends=NOW + 2 * HOUR)]
    made = cycle(TWO_FREE_TWO_BUSY, jobs[:3], runs, usage={1: 5000.0})
    said = passed(made)
    assert list(said) == [1, 2, 3]
    assert told(said) == {1: "fit", 2: "order", 3: "placed on gpu-03"}
    assert (made.reserved[0].machines, made.reserved[0].at) == (jobs[0].kept, NOW + HOUR)

    said = passed(cycle(TWO_FREE_TWO_BUSY, jobs, runs, usage={1: 5000.0}))
    assert list(said) == [4, 1, 2, 3]
    assert told(said)[4] == "placed on gpu-03"


def test_what_is_freed_for_another_is_free_again_when_that_one_has_ended():
    """Job 2 had run 90 stopped; job 1 needs its machine too, and gpu-02, which is free in two hours."""
    drawing = """
        gpu-01  H100 ########
        gpu-02  H100 ########
    """
    claimed = running(90, "gpu-01", leaving=True)
    jobs = [job(1, 16, priority=1), job(2, 8, claims=claimed.holding.holds, limit_seconds=HOUR)]
    made = cycle(drawing, jobs, [claimed, running(91, "gpu-02", ends=NOW + 2 * HOUR)])
    assert told(passed(made)) == {1: "fit", 2: "fit"}
    assert [(each.key, each.at, each.waits_for) for each in made.reserved] == [
        (1, NOW + 2 * HOUR, (2, 90, 91))
    ]


# --- Fit, never, patience --------------------------------------------------------------------------


def test_what_no_waiting_changes_is_told_apart_and_reserves_nothing():
    made = cycle(TWO_FREE_TWO_BUSY, [job(1, 80), job(2, 8)], [running(90, "gpu-01"), running(91, "gpu-02")])
    said = passed(made)

    assert told(said) == {1: "never", 2: "placed on gpu-03"}
    assert said[1].impossible.refusal.cause == Cause.TOO_FEW_MACHINES
    assert made.reserved == ()


def test_patience_waits_for_one_rack_and_reserves_nothing():
    drawing = """
        gpu-01  H100 ........  ib:ib-a rack=r1
        gpu-02  H100 ########  ib:ib-a rack=r1
        gpu-03  H100 ........  ib:ib-a rack=r2
    """
    one = job(1, 16, patience_seconds=600.0)
    made = cycle(drawing, [one, job(2, 8)], [running(90, "gpu-02", ends=NOW + HOUR)])
    said = passed(made)
    assert told(said) == {1: "patient", 2: "placed on gpu-01"}
    assert (said[1].found.verdict.code, said[1].better.verdict.code) == ("ib_fabric", "ib_rack")
    assert said[1].until == NOW + 600

    late = cycle(drawing, [replace(one, patient_since=NOW - 600)], [running(90, "gpu-02", ends=NOW + HOUR)])
    assert told(passed(late)) == {1: "placed on gpu-01 gpu-03"}


# --- Quotas ---------------------------------------------------------------------------------------


def test_a_cap_closes_the_pool_and_counts_what_this_pass_has_placed():
    shares = {(1, "h100"): Share(cap=24)}
    jobs = [job(1, 8), job(2, 8), job(3, 8, workspace=2)]
    said = passed(
        cycle(TWO_FREE_TWO_BUSY, jobs, [running(90, "gpu-01"), running(91, "gpu-02")], shares=shares)
    )

    assert told(said) == {1: "placed on gpu-03", 3: "placed on gpu-04", 2: "policy"}
    assert (said[2].request.over_cap, said[2].reserved) == ({"h100"}, None)


def test_a_cap_of_zero_is_policy_not_fit():
    said = passed(cycle(TWO_FREE_TWO_BUSY, [job(1, 1)], shares={(1, "h100"): Share(cap=0)}))
    assert told(said) == {1: "policy"}


def test_a_gang_over_two_pools_keeps_each_cap():
    drawing = """
        a-1  H100 ........  pool=a
        a-2  H100 ........  pool=a
        b-1  H100 ........  pool=b
    """
    shares = {(1, "a"): Share(cap=8)}
    said = passed(cycle(drawing, [job(1, 16), job(2, 8)], shares=shares))
    assert told(said)[1] == "policy", "16 in pool a pass the cap, and b has 8"
    assert told(said)[2] == "placed on a-1"


def test_free_gpus_guaranteed_to_others_are_lent_to_preemptible_runs_only():
    shares = {(2, "h100"): Share(guaranteed=16)}
    jobs = [job(1, 8), job(2, 8, preemptible=True)]
    said = passed(
        cycle(TWO_FREE_TWO_BUSY, jobs, [running(90, "gpu-01"), running(91, "gpu-02")], shares=shares)
    )

    assert told(said) == {1: "policy", 2: "placed on gpu-03"}
    assert said[1].request.guaranteed_to_others == {"h100"}


def test_what_is_guaranteed_is_taken_back_from_who_borrows_it_whatever_the_priority():
    drawing = """
        gpu-01  H100 ########
        gpu-02  H100 ########
    """
    shares = {(2, "h100"): Share(guaranteed=8)}
    borrowers = [
        running(90, "gpu-01", preemptible=True, priority=50, started_at=NOW - 3 * HOUR),
        running(91, "gpu-02", preemptible=True, priority=50, started_at=NOW - HOUR),
    ]
    said = passed(cycle(drawing, [job(1, 8, workspace=2)], borrowers, shares=shares))
    assert said[1].preemption.victims == (91,), "the one that loses least"

    more = passed(cycle(drawing, [job(1, 16, workspace=2)], borrowers, shares=shares))
    assert more[1].preemption is None, "it asks for more than is guaranteed"


# --- Workers that start on their own ----------------------------------------------------------------


def test_workers_of_one_run_are_placed_on_different_machines():
    drawing = """
        gpu-01  H100 ........
        gpu-02  H100 ........
    """
    workers = [job(number, 2, family=7) for number in (1, 2, 3)]
    said = passed(cycle(drawing, [*workers, job(4, 2)]))
    assert told(said) == {1: "placed on gpu-01", 2: "placed on gpu-02", 3: "fit", 4: "placed on gpu-01"}
    assert said[3].request.occupied == {"gpu-01", "gpu-02"}
    assert said[3].reserved is None, "it waits for its own run"


def test_a_machine_that_holds_a_worker_of_the_run_already_gets_no_other():
    drawing = """
        gpu-01  H100 ........
        gpu-02  H100 ........
    """
    waits = job(1, 2, family=7)
    held = replace(waits, request=replace(waits.request, occupied=frozenset({"gpu-01"})))
    assert told(passed(cycle(drawing, [held]))) == {1: "placed on gpu-02"}


def test_what_is_left_of_a_cap_is_kept_for_the_first_run_that_waits_for_it():
    """Job 1 needs 16 of the cap's 24, of which 16 are used: without this, job 2 would go first forever."""
    shares = {(1, "h100"): Share(cap=24)}
    runs = [running(90, "gpu-01", ends=NOW + HOUR), running(91, "gpu-02")]
    jobs = [job(1, 16), job(2, 8), job(3, 8, limit_seconds=HOUR), job(4, 8, workspace=2)]
    said = passed(cycle(TWO_FREE_TWO_BUSY, jobs, runs, shares=shares))

    assert told(said) == {1: "policy", 2: "order", 3: "placed on gpu-03", 4: "placed on gpu-04"}
    assert (said[2].behind, said[2].quota_kept) == ((1,), {"h100": 1})


def test_what_is_left_of_a_cap_is_kept_until_the_run_that_is_being_stopped_is_gone():
    """It would end in an hour, but is being stopped: job 2 would still run when job 1 can start."""
    shares = {(1, "h100"): Share(cap=24)}
    runs = [running(90, "gpu-01", ends=NOW + HOUR, leaving=True), running(91, "gpu-02", ends=NOW + 2 * HOUR)]
    jobs = [job(1, 16), job(2, 8, limit_seconds=HOUR / 2)]
    assert told(passed(cycle(TWO_FREE_TWO_BUSY, jobs, runs, shares=shares))) == {1: "policy", 2: "order"}


def test_a_run_larger_than_its_cap_keeps_nothing_from_the_others():
    shares = {(1, "h100"): Share(cap=8)}
    said = passed(cycle(TWO_FREE_TWO_BUSY, [job(1, 16), job(2, 8)], shares=shares))
    assert told(said) == {1: "policy", 2: "placed on gpu-03"}


# --- Quotas at the moment of a reservation -----------------------------------------------------------


def test_a_reservation_asks_for_quotas_as_they_are_at_its_moment():
    """What is free now is guaranteed to workspace 2; once run 90 has ended there is as much beyond that."""
    drawing = """
        a-1  H100 ########  pool=a
        a-2  H100 ........  pool=a
        b-1  H100 ########  pool=b
    """
    shares = {(2, "a"): Share(guaranteed=8)}
    runs = [running(90, "a-1", workspace=3, ends=NOW + HOUR), running(91, "b-1", workspace=3)]
    promised = job(1, 8, kept=frozenset({"a-1"}))
    said = passed(cycle(drawing, [promised], runs, shares=shares))

    assert said[1].request.guaranteed_to_others == {"a"}
    assert (said[1].reserved.machines, said[1].reserved.at) == ({"a-1"}, NOW + HOUR)


def test_what_guarantees_leave_is_kept_for_the_first_run_that_waits_for_it():
    """Beside what is guaranteed to workspace 2, 8 are free: without this, runs like job 2 would have them for ever."""
    shares = {(2, "h100"): Share(guaranteed=8)}
    runs = [
        running(90, "gpu-01", workspace=3, ends=NOW + HOUR),
        running(91, "gpu-02", workspace=3),
    ]
    jobs = [job(1, 16), job(2, 8, workspace=3), job(3, 8, workspace=3, limit_seconds=HOUR)]
    said = passed(cycle(TWO_FREE_TWO_BUSY, jobs, runs, shares=shares))

    assert (said[1].reserved.machines, said[1].reserved.at) == ({"gpu-01", "gpu-03"}, NOW + HOUR)
    assert told(said) == {1: "policy", 2: "order", 3: "placed on gpu-03"}
    assert (said[2].behind, said[2].quota_kept) == ((1,), {"h100": 1})


def test_what_quotas_leave_at_the_moment_of_a_reservation_is_kept_for_it():
    """Job 1 can have three machines in two hours, beside the one that is guaranteed to workspace 2."""
    shares = {(2, "h100"): Share(guaranteed=8)}
    runs = [
        running(90, "gpu-01", workspace=3, ends=NOW + HOUR),
        running(91, "gpu-02", workspace=3, ends=NOW + 2 * HOUR),
    ]
    jobs = [job(1, 24), job(2, 8, workspace=3), job(3, 8, workspace=3, preemptible=True)]
    said = passed(cycle(TWO_FREE_TWO_BUSY, jobs, runs, shares=shares))

    assert (said[1].reserved.machines, said[1].reserved.at) == (
        {"gpu-01", "gpu-02", "gpu-03"},
        NOW + 2 * HOUR,
    )
    assert told(said) == {1: "fit", 2: "order", 3: "placed on gpu-04"}, "what is lent can be taken back"
    assert (said[2].behind, said[2].quota_kept) == ((1,), {"h100": 1})

    short = [job(1, 24), job(2, 8, workspace=3, limit_seconds=2 * HOUR)]
    assert told(passed(cycle(TWO_FREE_TWO_BUSY, short, runs, shares=shares)))[2] == "placed on gpu-03"


def test_a_cap_counts_once_what_a_run_gives_up_for_another_of_its_workspace():
    drawing = """
        gpu-01  H100 ########  pool=h100
        gpu-02  H100 ........  pool=h100
    """
    victim = running(90, "gpu-01", preemptible=True, leaving=True)
    jobs = [job(1, 8, claims=victim.holding.holds), job(2, 8, priority=5)]
    said = passed(cycle(drawing, jobs, [victim], shares={(1, "h100"): Share(cap=16)}))
    assert told(said) == {2: "placed on gpu-02", 1: "fit"}
    assert said[1].making_room
