"""The engine against the naive reference: what it finds, how good that is, and whether it is legal."""

import ast
from pathlib import Path

import pytest

from placement import (
    GroupRequest,
    Impossible,
    MachineFacts,
    Placement,
    Refusal,
    Request,
    Rule,
    Verdict,
    build_snapshot,
    possible_ever,
)
from placement.outcome import Cause
from tests.placement import reference_rules
from tests.placement.changes import changed
from tests.placement.examples import engine, holds_for
from tests.placement.legality import assert_legal
from tests.placement.reference import VERDICTS, Reference
from tests.placement.strategies import STORAGE, clusters, requests


def agree(machines: list[MachineFacts], request: Request) -> None:
    """One group: found exactly when the reference finds it, and chosen in the order that `place.py` writes down."""
    answer, best = engine(machines, request), Reference(machines, request, STORAGE).best(request.groups[0])
    assert isinstance(answer, Placement) == (best is not None)
    if isinstance(answer, Placement) and best is not None:
        assert_legal(machines, request, answer, STORAGE)
        score = answer.groups[0].score
        assert (score.verdict, score.machines, score.lemon) == (best.verdict, best.machines, best.lemon)
        if request.groups[0].spread not in ("rack", "fabric"):
            assert score.racks == best.racks
            # Across racks the fullest are taken whole, and between lemons the better ones go first.
            if best.racks == 1 and not best.lemon:
                assert (score.broken, score.left_over) == (best.broken, best.left_over)


@holds_for(clusters(), requests(), share=2)
def test_finds_what_the_reference_finds_and_nothing_worse(machines, request):
    agree(machines, request)


@holds_for(clusters(most=12), requests(), share=1)
def test_on_larger_clusters_too(machines, request):
    agree(machines, request)


def agree_together(machines: list[MachineFacts], request: Request) -> None:
    """Several groups: found exactly when some choice of machines holds all, the worst network as good as can be."""
    answer, best = engine(machines, request), Reference(machines, request, STORAGE).best_together()
    assert isinstance(answer, Placement) == (best is not None)
    if isinstance(answer, Placement):
        assert_legal(machines, request, answer, STORAGE)
        assert int(answer.verdict) == best


@holds_for(clusters(), requests(groups=2))
def test_a_gang_of_two_groups_is_placed_exactly_when_some_choice_of_machines_holds_it(machines, request):
    agree_together(machines, request)


@holds_for(clusters(most=8), requests(groups=3), share=0.5)
def test_a_gang_of_three_groups_too(machines, request):
    agree_together(machines, request)


@holds_for(clusters(), requests(), share=0.8)
def test_possible_ever_is_what_the_reference_finds_on_the_empty_sound_cluster(machines, request):
    ever = possible_ever(build_snapshot(machines, storage_fabrics=STORAGE), request)
    empty = Reference(machines, request, STORAGE).emptied()
    assert isinstance(ever, Placement) == empty.feasible()
    if isinstance(ever, Placement):
        assert_legal(empty.machines, empty.request, ever, STORAGE)


@holds_for(clusters(most=4), requests(), share=0.5)
def test_every_number_that_would_have_to_change_is_one_that_helps(machines, request):
    ever = possible_ever(build_snapshot(machines, storage_fabrics=STORAGE), request)
    if isinstance(ever, Impossible):
        empty = Reference(machines, request, STORAGE).emptied()
        for change in ever.changes:
            group = changed(request.groups[0], change.field, change.would_fit)
            assert group != request.groups[0]
            assert empty.asking(groups=(group,)).feasible(), change


@holds_for(clusters(), requests(groups=2), share=1)
def test_every_machine_is_told_exactly_the_rules_that_it_fails(machines, request):
    answer = engine(machines, request)
    naive = Reference(machines, request, STORAGE)
    told = [(answer.group, answer)] if isinstance(answer, Refusal) else enumerate(answer.groups)
    for number, part in told:
        outcome, shape = part.outcome, part.shape
        for row, one in enumerate(naive.machines):
            codes = {rule.code for rule in outcome.rules_failed(row)}
            assert codes == naive.failed(one, request.groups[number], shape.machines, shape.gpus)
            assert (outcome.bits[row] == 0) == bool(outcome.usable[row]) == (not codes)


@holds_for(clusters(), requests(), share=1.5)
def test_the_cause_and_the_room_of_every_domain_are_true(machines, request):
    answer = engine(machines, request)
    if isinstance(answer, Refusal) and machines:
        naive, group = Reference(machines, request, STORAGE), request.groups[0]
        count, split = answer.shape.machines, answer.shape.gpus
        assert answer.cause.code == naive.cause(group, count, split)
        told = [(one.kind, one.name, one.on_fabric, one.found) for one in answer.domains if one.found]
        assert sorted(told, key=str) == naive.rooms(group, count, split)
        assert {one.needed for one in answer.domains} <= {count}
        assert all(one.found == len(one.machines) for one in answer.domains)


@holds_for(clusters(), requests(groups=2), share=0.5)
def test_groups_are_told_to_collide_only_where_each_fits_alone(machines, request):
    answer = engine(machines, request)
    naive = Reference(machines, request, STORAGE)
    if isinstance(answer, Refusal) and answer.cause is Cause.GROUPS_COLLIDE:
        assert all(naive.best(group) for group in request.groups)
    elif isinstance(answer, Refusal):
        assert not naive.best(request.groups[answer.group])


# The reference itself.


@pytest.mark.parametrize("name", ["reference.py", "reference_rules.py", "legality.py"])
def test_the_reference_shares_no_code_with_the_engine(name):
    """What it imports of `placement` stands under TYPE_CHECKING."""
    tree = ast.parse((Path(reference_rules.__file__).parent / name).read_text())
    imported = [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)] + [
        alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names
    ]
    assert not [module for module in imported if module.split(".")[0] == "placement"]


def test_the_reference_knows_the_verdicts_of_the_engine():
    assert [verdict.code for verdict in Verdict] == VERDICTS


def test_the_reference_knows_the_rules_of_the_engine():
    machine = MachineFacts("m")
    group = GroupRequest(gpus=1, machines=1, interconnect="infiniband")
    naive = Reference([machine], Request((group,)), STORAGE)
    checks = [
        naive._admission(machine, group),
        naive._state(machine),
        naive._places(machine, group, 1),
        naive._amounts(machine, group, 1),
        naive._ports(machine, group),
        naive._gpus(machine, group, 1),
    ]
    assert sorted(code for check in checks for code in check) == sorted(rule.code for rule in Rule)
