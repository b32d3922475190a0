"""Whom a preemption stops, what it is granted, and what becomes of that. Drawn clusters."""

from dataclasses import replace
from typing import Any

from placement.holdings import Hold
from placement.policy import Refused, Running, Share
from tests.placement.passes import HOUR, NOW, cycle, job, passed, running, told


def preempting(*runs: Running, **fields: Any) -> Refused:
    drawing = """
        gpu-01  H100 ########
        gpu-02  H100 ########
    """
    said = passed(cycle(drawing, [job(1, 8, **{"priority": 5, **fields})], list(runs)))[1]
    assert isinstance(said, Refused)
    return said


def test_a_preemptible_run_of_lower_priority_is_stopped_and_what_it_frees_is_claimed():
    runs = [
        running(90, "gpu-01", preemptible=True, started_at=NOW - HOUR),
        running(91, "gpu-02", preemptible=True, started_at=NOW - 2 * HOUR),
    ]
    drawing = """
        gpu-01  H100 ########
        gpu-02  H100 ########
    """
    made = cycle(drawing, [job(1, 8, priority=5), job(2, 8, priority=4)], runs)
    said = passed(made)
    assert said[1].preemption.victims == (90,)
    assert said[2].preemption.victims == (91,), "the first one's machine is spoken for"
    assert [hold.machine for hold in made.claims_of(job(1, 8))] == ["gpu-01"]


def test_who_is_never_stopped():
    equal = running(90, "gpu-01", preemptible=True, priority=5)
    firm = running(91, "gpu-02")
    young = running(92, "gpu-02", preemptible=True, started_at=NOW - 599)
    assert preempting(equal, firm).preemption is None
    assert preempting(equal, young).preemption is None


def test_while_the_victims_end_nobody_else_is_stopped_and_their_gpus_go_to_nobody_else():
    claim = (Hold("gpu-01", tuple(range(8)), 96_000, 0),)
    leaving = running(90, "gpu-01", preemptible=True, leaving=True)
    other = running(91, "gpu-02", preemptible=True)
    said = preempting(leaving, other, claims=claim)
    assert (said.making_room, said.preemption) == (True, None)

    drawing = """
        gpu-01  H100 ........
        gpu-02  H100 ########
    """
    freed = cycle(drawing, [job(1, 8, priority=5, claims=claim), job(2, 8, priority=9)], [other])
    assert told(passed(freed)) == {2: "fit", 1: "placed on gpu-01"}


def test_who_had_others_stopped_starts_where_they_were_and_waits_for_no_better_place():
    drawing = """
        gpu-01  H100 ........  ib:ib-a rack=r1
        gpu-02  H100 ########  ib:ib-a rack=r1
        gpu-03  H100 ........  ib:ib-a rack=r2
    """
    freed = tuple(Hold(name, tuple(range(8)), 96_000, 0) for name in ("gpu-01", "gpu-03"))
    patient = job(1, 16, priority=5, patience_seconds=600.0)
    assert told(passed(cycle(drawing, [patient], [running(90, "gpu-02")]))) == {1: "patient"}
    claiming = replace(patient, claims=freed)
    assert told(passed(cycle(drawing, [claiming], [running(90, "gpu-02")]))) == {1: "placed on gpu-01 gpu-03"}


BOTH_BUSY = """
    gpu-01  H100 ########  pool=h100
    gpu-02  H100 ########  pool=h100
"""


def test_nobody_is_stopped_whose_end_would_only_make_a_guarantee_of_theirs_due():
    """What is free then is owed to them, and the one that had them stopped would wait beside it."""
    runs = [running(key, f"gpu-0{key}", workspace=2, preemptible=True) for key in (1, 2)]

    def victims(guaranteed: int) -> tuple[int, ...]:
        shares = {(2, "h100"): Share(guaranteed=guaranteed)}
        preemption = passed(cycle(BOTH_BUSY, [job(9, 8, priority=5)], runs, shares=shares))[9].preemption
        return () if preemption is None else preemption.victims

    assert victims(guaranteed=8) == (1,)
    assert victims(guaranteed=9) == ()
    assert victims(guaranteed=16) == ()


def test_what_was_freed_for_a_run_is_its_own_though_more_was_guaranteed_to_another_meanwhile():
    drawing = BOTH_BUSY.replace("gpu-01  H100 ########", "gpu-01  H100 ........")
    lent = running(90, "gpu-02", workspace=3, preemptible=True)
    shares = {(2, "h100"): Share(guaranteed=16)}
    freed = (Hold("gpu-01", tuple(range(8)), 96_000, 0),)
    assert told(passed(cycle(drawing, [job(1, 8)], [lent], shares=shares))) == {1: "policy"}
    granted = job(1, 8, claims=freed)
    assert told(passed(cycle(drawing, [granted], [lent], shares=shares))) == {1: "placed on gpu-01"}


def test_what_was_freed_for_a_run_is_its_own_though_a_cap_is_kept_for_one_that_goes_first():
    """Else it would have others stopped in every second pass: its claim is what makes the first one wait."""
    drawing = BOTH_BUSY.replace("gpu-01  H100 ########", "gpu-01  H100 ........")
    freed = (Hold("gpu-01", tuple(range(8)), 96_000, 0),)
    jobs = [job(1, 16, priority=5), job(2, 8, claims=freed)]
    shares = {(1, "h100"): Share(cap=16)}
    said = told(passed(cycle(drawing, jobs, [running(90, "gpu-02", workspace=2)], shares=shares)))
    assert said == {1: "policy", 2: "placed on gpu-01"}


def test_a_claim_that_no_longer_helps_is_given_up():
    """gpu-01 was cordoned after its run had been asked to leave."""
    drawing = """
        gpu-01  H100 ########  state=ready,cordoned
        gpu-02  H100 ########
    """
    claim = (Hold("gpu-01", tuple(range(8)), 96_000, 0),)
    runs = [running(90, "gpu-01", leaving=True), running(91, "gpu-02", preemptible=True)]
    said = passed(cycle(drawing, [job(1, 8, priority=5, claims=claim)], runs))[1]
    assert (said.making_room, said.preemption.victims) == (False, (91,))


def test_who_gives_up_a_claim_may_no_more_than_one_that_had_none():
    """The grant ends with its claim: GPUs that are guaranteed to others are so for it, too."""
    drawing = BOTH_BUSY.replace("gpu-01  H100 ########", "gpu-01  H100 ########  state=ready,cordoned")
    runs = [running(90, "gpu-01", leaving=True), running(91, "gpu-02", workspace=3, preemptible=True)]
    useless = (Hold("gpu-01", tuple(range(8)), 96_000, 0),)
    shares = {(2, "h100"): Share(guaranteed=8)}
    for claims in ((), useless):
        made = cycle(drawing, [job(1, 8, priority=5, claims=claims)], runs, shares=shares)
        assert passed(made)[1].preemption is None
        assert made.claims_of(job(1, 8)) == ()


def test_what_another_has_claimed_is_no_room_for_a_second_preemptor():
    """Both wait for a machine; only one is being freed, and it is spoken for."""
    drawing = """
        gpu-01  H100 ########
        gpu-02  H100 ########
    """
    claim = (Hold("gpu-01", tuple(range(8)), 96_000, 0),)
    stale = (Hold("gpu-02", tuple(range(8)), 96_000, 0),)
    jobs = [job(1, 8, priority=5, claims=claim), job(2, 8, priority=4, claims=stale)]
    said = passed(cycle(drawing, jobs, [running(90, "gpu-01", leaving=True), running(91, "gpu-02")]))
    assert (said[1].making_room, said[2].making_room) == (True, False)


def test_who_is_being_stopped_for_one_run_is_stopped_for_no_other():
    """One cheap run and a dear one: the second preemptor gets the dear one or, where there is none, nothing."""
    cheap = running(90, "gpu-01", preemptible=True, started_at=NOW - HOUR)
    dear = running(91, "gpu-02", preemptible=True, started_at=NOW - 2 * HOUR)
    drawing = """
        gpu-01  H100 ########
        gpu-02  H100 ########
    """
    jobs = [job(number, 8, priority=6 - number) for number in (1, 2, 3)]
    said = passed(cycle(drawing, jobs, [cheap, dear]))
    stopped = [found.victims if (found := said[number].preemption) else () for number in (1, 2, 3)]
    assert stopped == [(90,), (91,), ()]
