"""What must hold whatever the cluster looks like: more room never hurts, names and order never matter."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from placement import (
    MachineFacts,
    MachineState,
    Placement,
    Refusal,
    Request,
    build_snapshot,
    explain,
    place,
)
from placement.place import NoRoom, placed
from placement.snapshot import GPU_HELD
from tests.placement.examples import engine, holds_for, placed_at_random
from tests.placement.strategies import STORAGE, clusters, machine, requests


def assert_no_worse(before: Placement, after: Placement | Refusal) -> None:
    """Still placed, and by the order of choice no worse off."""
    assert isinstance(after, Placement)
    was, now = before.groups[0].score, after.groups[0].score
    assert (now.verdict, now.machines, now.lemon) <= (was.verdict, was.machines, was.lemon)


@holds_for(clusters(), requests(rules=3), machine(99), share=0.6)
def test_adding_a_machine_never_turns_a_placement_into_a_refusal(machines, request, another):
    answer = placed_at_random(machines, request)
    assert_no_worse(answer, engine([*machines, another], request))


@holds_for(clusters(), requests(groups=2, rules=2), machine(99), share=0.3)
def test_adding_a_machine_keeps_a_gang_of_two_groups_placed(machines, request, another):
    placed_at_random(machines, request)
    assert isinstance(engine([*machines, another], request), Placement)


def freed(one: MachineFacts, what: str) -> MachineFacts:
    """The machine with one kind of hindrance gone."""
    match what:
        case "runs":
            return replace(
                one,
                gpus=tuple(replace(gpu, held=False) for gpu in one.gpus),
                cpu_free_millicores=one.cpu_millicores,
                memory_free_bytes=one.memory_bytes,
            )
        case "faults":
            return replace(one, gpus=tuple(replace(gpu, suspect=False, faulty=False) for gpu in one.gpus))
        case "state":
            return replace(one, state=MachineState.READY)
    return replace(one, ports=tuple(replace(port, up=True) for port in one.ports))


FREED = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["runs", "faults", "state", "ports"])),
    min_size=1,
    max_size=3,
)


@holds_for(clusters(), requests(rules=3), FREED, share=0.6)
def test_what_becomes_free_or_sound_never_turns_a_placement_into_a_refusal(machines, request, changes):
    answer = placed_at_random(machines, request)
    better = list(machines)
    for row, what in changes:
        if row < len(better):
            better[row] = freed(better[row], what)
    assert_no_worse(answer, engine(better, request))


@holds_for(clusters(), requests(), share=0.3)
def test_policy_and_order_only_take_machines_away(machines, request):
    answer = placed_at_random(machines, request)
    assert_no_worse(answer, engine(machines, Request(request.groups, avoid=request.avoid)))


def renamed(name: str) -> str:
    return f"node-{name}"


def renaming(request: Request) -> Request:
    """The same request where every machine is called otherwise."""
    (group,) = request.groups
    selection = replace(
        group.selection,
        machines=group.selection.machines and frozenset(map(renamed, group.selection.machines)),
        exclude_machines=frozenset(map(renamed, group.selection.exclude_machines)),
    )
    return replace(
        request,
        groups=(replace(group, selection=selection),),
        reserved=frozenset(map(renamed, request.reserved)),
        occupied=frozenset(map(renamed, request.occupied)),
        avoid={renamed(name): score for name, score in request.avoid.items()},
        prefer=frozenset(map(renamed, request.prefer)),
    )


@holds_for(clusters(), requests(), share=0.5)
def test_renaming_machines_changes_only_names(machines, request):
    before = engine(machines, request)
    after = engine([replace(one, name=renamed(one.name)) for one in machines], renaming(request))
    assert json.dumps(after.as_data()).replace("node-m", "m") == json.dumps(before.as_data())


@holds_for(clusters(), requests(groups=2), st.randoms(use_true_random=False), share=0.3)
def test_the_order_in_which_machines_are_given_does_not_matter(machines, request, random):
    shuffled = list(machines)
    random.shuffle(shuffled)
    assert engine(shuffled, request).as_data() == engine(machines, request).as_data()


@holds_for(clusters(), requests(groups=2, rules=2), share=0.3)
def test_taking_and_giving_back_leaves_the_cluster_as_it_was(machines, request):
    answer = placed_at_random(machines, request)
    before = build_snapshot(machines, storage_fabrics=STORAGE)
    taken = before.take(answer)
    for rank in answer.ranks:
        held = (taken.gpu_state[rank.machine] & GPU_HELD != 0).sum()
        assert held == (before.gpu_state[rank.machine] & GPU_HELD != 0).sum() + len(rank.gpus)
        assert taken.cpu_free[rank.machine] == before.cpu_free[rank.machine] - rank.cpu_millicores
        assert taken.memory_free[rank.machine] == before.memory_free[rank.machine] - rank.memory_bytes
    after = taken.give_back(answer)
    for name in ("gpu_state", "free_healthy", "free_suspect", "suspect", "faulty", "cpu_free", "memory_free"):
        assert (getattr(after, name) == getattr(before, name)).all()


@holds_for(clusters(), st.lists(requests(), min_size=2, max_size=4), share=0.3)
def test_a_snapshot_that_runs_were_taken_on_is_the_cluster_with_these_runs(machines, asked):
    """Carrying a snapshot through a pass gives the same as building it anew from the database."""
    snapshot, facts = build_snapshot(machines, storage_fabrics=STORAGE), {one.name: one for one in machines}
    for request in asked:
        answer = place(snapshot, request)
        anew = place(build_snapshot(facts.values(), storage_fabrics=STORAGE), request)
        assert answer.as_data() == anew.as_data()
        if isinstance(answer, Placement):
            snapshot = snapshot.take(answer)
            for rank in answer.ranks:
                facts[rank.machine_name] = holding(facts[rank.machine_name], rank)


def holding(one: MachineFacts, rank) -> MachineFacts:
    return replace(
        one,
        gpus=tuple(replace(gpu, held=gpu.held or gpu.index in rank.gpus) for gpu in one.gpus),
        cpu_free_millicores=one.cpu_free_millicores - rank.cpu_millicores,
        memory_free_bytes=one.memory_free_bytes - rank.memory_bytes,
    )


@holds_for(clusters(), requests(groups=2))
def test_an_answer_that_says_why_only_when_asked_says_the_same(machines, request):
    answer = placed(build_snapshot(machines, storage_fabrics=STORAGE), request)
    told = answer.refusal if isinstance(answer, NoRoom) else answer
    assert told.as_data() == engine(machines, request).as_data()


@holds_for(clusters(), requests())
def test_rows_that_are_mixed_to_one_number_are_told_apart(machines, request):
    outcome = engine(machines, request).outcomes[0]
    rows = explain.machine_rows(outcome)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explain, "_SIGN", np.uint64(0))
        assert explain.machine_rows(outcome) == rows
