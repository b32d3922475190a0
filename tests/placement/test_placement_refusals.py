"""A refusal is the whole truth: put right what it says, and the gang starts."""

import json
from dataclasses import replace

from hypothesis import assume

from placement import GroupRequest, MachineFacts, Placement, Refusal, Request, words
from placement.outcome import Cause
from tests.placement.examples import engine, holds_for, refused_at_random
from tests.placement.mending import brought_together, lifted, mended
from tests.placement.reference import Reference
from tests.placement.strategies import STORAGE, clusters, requests


def codes_of(answer: Refusal, row: int) -> set[str]:
    return {rule.code for rule in answer.outcome.rules_failed(row)}


def contradicts_itself(group: GroupRequest, needed: int) -> bool:
    """What the run document's rules refuse before any request is made: each in another rack, all in one rack."""
    apart = group.spread in ("rack", "fabric") and needed > 1
    return not Reference.splits(group) or (apart and group.spread == group.keep_within)


@holds_for(clusters(), requests(), share=1.2)
def test_putting_right_every_stated_reason_on_enough_machines_starts_the_gang(machines, request):
    assume(machines)
    answer = refused_at_random(machines, request)
    group, needed, split = request.groups[0], answer.shape.machines, answer.shape.gpus
    assume(not contradicts_itself(group, needed))
    told = [codes_of(answer, row) for row in range(len(machines))]
    nearest = sorted(range(len(machines)), key=lambda row: len(told[row]))[:needed]
    request = lifted(request, set().union(*(told[row] for row in nearest)))
    ready = [mended(machines[row], told[row], group, split) for row in nearest]
    together = brought_together(ready, group, needed)
    assert isinstance(engine(together, naming(request, together)), Placement)


def naming(request: Request, machines: list[MachineFacts]) -> Request:
    """The request where the machines that it names, if any, are these."""
    (group,) = request.groups
    named = group.selection.machines and frozenset(one.name for one in machines)
    return replace(request, groups=(replace(group, selection=replace(group.selection, machines=named)),))


@holds_for(clusters(), requests(), share=1)
def test_putting_right_what_one_machine_lacks_makes_it_usable(machines, request):
    answer = refused_at_random(machines, request)
    group, shape = request.groups[0], (answer.shape.machines, answer.shape.gpus)
    for row, one in enumerate(machines):
        codes = codes_of(answer, row)
        asked = lifted(request, codes)
        better = mended(one, codes, group, answer.shape.gpus)
        assert not Reference([better], asked, STORAGE).failed(better, asked.groups[0], *shape)


ONE_REPAIR = (
    {"no_gpus", "other_model", "too_few_gpus", "gpu_memory", "cpu_short", "memory_short"}
    | {"gpus_faulty", "gpus_busy", "gpus_suspect"},
    {"no_rdma_port", "port_no_fabric", "no_fabric", "port_slow", "port_down"},
)
"""Reasons of which one repair may lift several: a faster port instead of one that is up again."""


@holds_for(clusters(), requests(), share=0.8)
def test_no_reason_is_there_for_show(machines, request):
    """Putting right all others leaves the machine refused."""
    answer = refused_at_random(machines, request)
    group, shape = request.groups[0], (answer.shape.machines, answer.shape.gpus)
    for row, one in enumerate(machines):
        codes = codes_of(answer, row)
        for kept in codes:
            others = codes - next((kind for kind in ONE_REPAIR if kept in kind), {kept})
            asked = lifted(request, others)
            better = mended(one, others, group, answer.shape.gpus)
            assert Reference([better], asked, STORAGE).failed(better, asked.groups[0], *shape)


@holds_for(clusters(), requests(), share=0.6)
def test_a_run_told_to_wait_for_its_turn_or_for_quota_starts_once_it_has_it(machines, request):
    answer = refused_at_random(machines, request)
    in_turn = replace(request, reserved=frozenset())
    unbound = replace(in_turn, over_cap=frozenset(), guaranteed_to_others=frozenset())
    assert (answer.cause is Cause.MACHINES_RESERVED) == isinstance(engine(machines, in_turn), Placement)
    free = isinstance(engine(machines, unbound), Placement)
    assert (answer.cause in (Cause.MACHINES_RESERVED, Cause.POOLS_CLOSED)) == free


@holds_for(clusters(), requests(groups=2), share=0.8)
def test_every_answer_becomes_data_and_sentences(machines, request):
    answer = engine(machines, request)
    data = json.loads(json.dumps(answer.as_data()))
    parts = [data] if isinstance(answer, Refusal) else data["groups"]
    for part in parts:
        named = [name for row in part["rows"] for name in row["machines"]] + part.get("chosen", [])
        assert sorted(named) == sorted(one.name for one in machines), "every machine is told once"
        for row in part["rows"]:
            assert words.machine_sentence(row, part["asked"], ["eval-3"])
            assert row["codes"] == [] or words.GROUP_TITLES[row["codes"][0]]
    if isinstance(answer, Refusal):
        assert words.worker_reason(data).endswith(".")
        assert all(domain["found"] <= len(machines) for domain in data["domains"])
    else:
        assert words.placement_sentence(data)
