"""Desired x held -> actions, and wanted x facts -> step: all of it, by cases and by properties."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.journal import Facts
from agent.reconcile import (
    MOST_LAUNCHES,
    PHASES,
    Action,
    Forget,
    Held,
    Phase,
    Raise,
    Step,
    Take,
    decide,
    higher,
    next_step,
)
from tests.agent.agents import worker
from wire.assignments import Desired

relaxed = settings(deadline=None)  # a busy machine is no error
names = st.sampled_from(["a", "b", "c", "d"])
phases = st.sampled_from(PHASES)
held_states = st.dictionaries(names, st.builds(Held, phases, finished=st.booleans()))
desired_states = st.dictionaries(names, phases).map(
    lambda listed: Desired(assignments=tuple(worker(name, phase=phase) for name, phase in listed.items()))
)


def desired(**listed: Phase) -> Desired:
    return Desired(assignments=tuple(worker(name, phase=phase) for name, phase in listed.items()))


@pytest.mark.parametrize(
    ("wanted", "held", "actions"),
    [
        (desired(), {}, []),
        (desired(a="prepare"), {}, [Take(worker("a", phase="prepare"))]),
        (desired(a="start"), {"a": Held("prepare")}, [Raise("a", "start")]),
        (desired(a="start"), {"a": Held("start")}, []),
        (desired(a="start"), {"a": Held("stop")}, []),
        (desired(a="prepare"), {"a": Held("start")}, []),
        (desired(), {"a": Held("start")}, [Raise("a", "stop")]),
        (desired(), {"a": Held("stop")}, []),
        (desired(), {"a": Held("stop", finished=True)}, [Forget("a")]),
        (desired(), {"a": Held("start", finished=True)}, [Forget("a")]),
        (desired(a="stop"), {"a": Held("stop", finished=True)}, []),
    ],
)
def test_decide(wanted: Desired, held: dict[str, Held], actions: list[Action]) -> None:
    assert decide(wanted, held) == actions


def applied(held: dict[str, Held], actions: list[Action]) -> dict[str, Held]:
    after = dict(held)
    for action in actions:
        match action:
            case Take(assignment):
                after[assignment.id] = Held(assignment.phase)
            case Raise(name, phase):
                after[name] = Held(phase, finished=after[name].finished)
            case Forget(name):
                del after[name]
    return after


@relaxed
@given(desired_states, held_states)
def test_no_phase_ever_sinks(wanted: Desired, held: dict[str, Held]) -> None:
    after = applied(held, decide(wanted, held))
    for name in held.keys() & after.keys():
        assert higher(held[name].wanted, after[name].wanted) == after[name].wanted


@relaxed
@given(desired_states, held_states)
def test_the_same_desired_state_twice_changes_nothing(wanted: Desired, held: dict[str, Held]) -> None:
    after = applied(held, decide(wanted, held))
    assert decide(wanted, after) == []


@relaxed
@given(desired_states, held_states)
def test_what_is_disowned_stops_or_is_forgotten(wanted: Desired, held: dict[str, Held]) -> None:
    listed = {assignment.id for assignment in wanted.assignments}
    after = applied(held, decide(wanted, held))
    assert all(after[name].wanted == "stop" for name in after.keys() - listed)
    assert listed <= after.keys()


@relaxed
@given(st.lists(desired_states, min_size=1, max_size=4), held_states)
def test_only_what_is_finished_is_forgotten(states: list[Desired], held: dict[str, Held]) -> None:
    for wanted in states:
        for action in (actions := decide(wanted, held)):
            if isinstance(action, Forget):
                assert held[action.id].finished
        held = applied(held, actions)


facts = st.builds(
    Facts,
    alive=st.booleans(),
    marker=st.booleans(),
    state=st.one_of(
        st.just({}), st.sampled_from(["prepared", "running", "stopping"]).map(lambda phase: {"phase": phase})
    ),
    exit=st.one_of(st.none(), st.just({"kind": "exited", "code": 0})),
)


@relaxed
@given(phases, facts, st.integers(0, MOST_LAUNCHES))
def test_nothing_is_launched_where_something_may_have_started(
    wanted: Phase, seen: Facts, launches: int
) -> None:
    step = next_step(wanted, seen, launches)
    if seen.marker or seen.alive or seen.exit is not None or wanted == "stop":
        assert step is not Step.LAUNCH
    if wanted != "start":
        assert step is not Step.ORDER_START


@relaxed
@given(facts, st.integers(0, MOST_LAUNCHES))
def test_a_wanted_stop_always_leads_to_an_end(seen: Facts, launches: int) -> None:
    ending = {Step.ORDER_STOP, Step.NEVER_RAN, Step.LOST, Step.DONE}
    waits_for_its_end = seen.alive and seen.phase == "stopping"
    assert next_step("stop", seen, launches) in ending or waits_for_its_end


@pytest.mark.parametrize(
    ("wanted", "seen", "launches", "step"),
    [
        ("prepare", Facts(alive=False, marker=False), 0, Step.LAUNCH),
        ("prepare", Facts(alive=False, marker=False), MOST_LAUNCHES, Step.GIVE_UP),
        ("prepare", Facts(alive=True, marker=False), 1, Step.WAIT),
        ("start", Facts(alive=True, marker=False), 1, Step.ORDER_START),
        ("start", Facts(alive=True, marker=False, state={"phase": "prepared"}), 1, Step.ORDER_START),
        ("start", Facts(alive=True, marker=True, state={"phase": "running"}), 1, Step.WAIT),
        ("start", Facts(alive=False, marker=True, state={"phase": "running"}), 1, Step.LOST),
        ("stop", Facts(alive=True, marker=True, state={"phase": "running"}), 1, Step.ORDER_STOP),
        ("stop", Facts(alive=True, marker=True, state={"phase": "stopping"}), 1, Step.WAIT),
        ("stop", Facts(alive=False, marker=False), 0, Step.NEVER_RAN),
        ("start", Facts(alive=True, marker=True, exit={"kind": "exited"}), 1, Step.DONE),
    ],
)
def test_next_step(wanted: Phase, seen: Facts, launches: int, step: Step) -> None:
    assert next_step(wanted, seen, launches) is step
