"""Quotas and reservations close machines: the machines say so, and the gang is told what alone stands in its way."""

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from placement import (
    Cause,
    GroupRequest,
    MachineFacts,
    Placement,
    Refusal,
    Request,
    build_snapshot,
    place,
    possible_ever,
    words,
)
from placement.topology import MOST_PASSING
from tests.placement.asking import placed_on, plain, reasons, refused, refused_on, snapshot_of, where
from tests.placement.strategies import clusters, requests

TWO_POOLS = """
    a-01  H100 ........  pool=a100
    a-02  H100 ........  pool=a100
    b-01  H100 ........  pool=h100
    b-02  H100 ####....  pool=h100
    c-01  H100 ........  pool=
"""
"""Two pools; c-01 is in none."""


def asking(machines: int, **policy: Any) -> Request:
    return replace(plain(gpus=8 * machines, machines=machines), **policy)


def told(drawing: str, request: Request) -> tuple[Cause, str]:
    refusal = refused(drawing, request)
    return refusal.cause, words.headline(refusal.as_data())


class TestMachines:
    def test_a_pool_at_its_cap_is_closed(self):
        assert reasons(TWO_POOLS, asking(4, over_cap=frozenset({"a100"}))) == {
            "b-01": "8 of 8 GPUs free",
            "c-01": "8 of 8 GPUs free",
            "b-02": "4 of 8 GPUs free, 8 needed; 4 held",
            "a-01": "Pool a100: this run would pass the cap of its workspace; 8 of 8 GPUs free",
            "a-02": "Pool a100: this run would pass the cap of its workspace; 8 of 8 GPUs free",
        }

    def test_a_pool_guaranteed_to_others_is_closed(self):
        sentences = reasons(TWO_POOLS, asking(4, guaranteed_to_others=frozenset({"h100"})))
        assert sentences["b-01"] == (
            "Pool h100: what is free there is guaranteed to other workspaces; 8 of 8 GPUs free"
        )
        assert sentences["b-02"] == (
            "Pool h100: what is free there is guaranteed to other workspaces;"
            " 4 of 8 GPUs free, 8 needed; 4 held"
        )

    def test_reserved_machines_are_closed(self):
        sentences = reasons(TWO_POOLS, asking(5, reserved=frozenset({"c-01", "gone"})))
        assert sentences["c-01"] == "Reserved for a run that goes first; 8 of 8 GPUs free"
        assert sentences["b-01"] == "8 of 8 GPUs free"

    def test_a_pool_that_the_cluster_lacks_closes_nothing(self):
        answer = placed_on(snapshot_of(TWO_POOLS), asking(4, over_cap=frozenset({"", "gone"})))
        assert where(answer) == ["a-01", "a-02", "b-01", "c-01"]

    def test_what_the_caller_knows_beyond_the_cluster_is_told(self):
        asked: dict[str, object] = {}

        def sentence(code: str, **numbers: object) -> str:
            row = {"codes": [code], "numbers": {"machine": {}, code: numbers}}
            return words.machine_sentence(row, asked)

        assert sentence("pool_cap", pool="a100", used=56, cap=64, workspace="vision") == (
            "Pool a100: this run would pass the cap of vision, 56 of 64 GPUs in use"
        )
        assert sentence("pool_guaranteed", pool="a100", used=3, cap=1200) == (
            "Pool a100: what is free there is guaranteed to other workspaces, 3 of 1,200 GPUs in use"
        )
        assert sentence("reserved", run="llm-8", at="14:05") == (
            "Reserved for llm-8, which starts 14:05 at the latest"
        )
        assert sentence("reserved", run="llm-8") == "Reserved for llm-8"


class TestGangs:
    def test_a_cap_that_alone_is_in_the_way_is_the_cause(self):
        assert told(TWO_POOLS, asking(4, over_cap=frozenset({"a100"}))) == (
            Cause.POOLS_CLOSED,
            (
                "4 machines with 8 free GPUs are needed; enough have room,"
                " but this run would pass its workspace's cap in pool a100."
            ),
        )

    def test_every_pool_closed_is_not_called_no_machine_selected(self):
        closed: dict[str, Any] = {
            "over_cap": frozenset({"h100"}),
            "guaranteed_to_others": frozenset({"a100"}),
        }
        cause, sentence = told(
            TWO_POOLS, replace(asking(2), allowed_pools=frozenset({"a100", "h100"}), **closed)
        )
        assert cause is Cause.POOLS_CLOSED
        assert sentence == (
            "2 machines with 8 free GPUs are needed; enough have room,"
            " but this run would pass its workspace's cap in pool h100"
            " and what is free in pool a100 is guaranteed to other workspaces."
        )

    def test_machines_reserved_for_those_before_are_the_cause(self):
        cause, sentence = told(TWO_POOLS, asking(4, reserved=frozenset({"a-01", "b-02", "c-01"})))
        assert cause is Cause.MACHINES_RESERVED
        assert sentence == (
            "4 machines with 8 free GPUs are needed; enough have room,"
            " but 2 machines are reserved for runs that go first."
        )

    def test_order_comes_before_policy_only_when_it_is_enough(self):
        both = asking(4, reserved=frozenset({"c-01"}), over_cap=frozenset({"a100"}))
        cause, sentence = told(TWO_POOLS, both)
        assert cause is Cause.POOLS_CLOSED
        assert sentence.endswith(
            "but this run would pass its workspace's cap in pool a100"
            " and 1 machine is reserved for runs that go first."
        )

    def test_what_would_not_fit_anyway_is_a_matter_of_fit(self):
        cause, sentence = told(TWO_POOLS, asking(5, over_cap=frozenset({"a100"})))
        assert cause is Cause.TOO_FEW_MACHINES
        assert sentence == "5 machines with 8 free GPUs are needed; 2 are free now (b-01, c-01)."

    def test_none_open_and_not_enough_anyway(self):
        drawing = "a-01  H100 #.......  pool=a100"
        assert told(drawing, asking(1, over_cap=frozenset({"a100"}))) == (
            Cause.TOO_FEW_MACHINES,
            (
                "1 machine with 8 free GPUs is needed; none is free now; nearest is a-01: Pool a100:"
                " this run would pass the cap of its workspace; 7 of 8 GPUs free, 8 needed; 1 held."
            ),
        )

    def test_pools_that_the_workspace_may_not_use_are_no_quota(self):
        request = asking(1, allowed_pools=frozenset(), over_cap=frozenset({"a100"}))
        assert told(TWO_POOLS, request)[0] is Cause.NONE_SELECTED

    def test_the_shape_told_is_the_one_that_would_have_room(self):
        drawing = """
            a-01  H100 ....####  pool=a
            a-02  H100 ....####  pool=a
            b-01  H100 ......##  pool=b
        """
        request = replace(plain(gpus=8, min_nodes=1, max_nodes=2), over_cap=frozenset({"a"}))
        refusal = refused(drawing, request)
        assert (refusal.cause, refusal.shape.machines, refusal.shape.gpus) == (Cause.POOLS_CLOSED, 2, 4)

    def test_workers_are_told_the_same(self):
        refusal = refused(TWO_POOLS, asking(4, over_cap=frozenset({"a100"})))
        assert words.worker_reason(refusal.as_data()) == words.headline(refusal.as_headline())


class TestEver:
    def test_quotas_and_reservations_play_no_part(self):
        request = asking(
            3,
            over_cap=frozenset({"a100"}),
            guaranteed_to_others=frozenset({"h100"}),
            reserved=frozenset({"c-01"}),
        )
        assert isinstance(possible_ever(snapshot_of(TWO_POOLS), request), Placement)

    def test_allowed_pools_do(self):
        request = asking(3, allowed_pools=frozenset({"h100"}))
        assert not isinstance(possible_ever(snapshot_of(TWO_POOLS), request), Placement)


def test_reservations_that_change_with_every_pass_do_not_push_out_what_lasts():
    snapshot = snapshot_of(TWO_POOLS)
    request = Request((GroupRequest(gpus=8, machines=1, models=frozenset({"H100"})),))
    place(snapshot, request)
    lasting = dict(snapshot.topology._remembered)
    for number in range(3 * MOST_PASSING):
        answer = place(snapshot, replace(request, reserved=frozenset({"a-01", f"gone-{number}"})))
        assert isinstance(answer, Placement)
        assert where(answer) == ["a-02"]
    assert snapshot.topology._remembered == lasting
    assert len(snapshot.topology._passing) == MOST_PASSING


class TestHeadlines:
    """`as_headline` is what lists keep: a few numbers from which the same sentence is made."""

    def test_it_is_small_however_large_the_cluster(self):
        drawing = "\n".join(
            f"m{number:03d}  H100 ........  ib:ib-a  rack=r{number // 12:02d}" for number in range(240)
        )
        refusal = refused(drawing, plain(gpus=104, machines=13, keep_within="rack"))
        data = refusal.as_headline()
        assert [len(domain["machines"]) for domain in data["domains"]] == [8, 8, 8]
        assert data["domains_left_out"] == 17
        assert "rows" not in data
        assert len(json.dumps(data)) < 2500
        assert words.worker_reason(data) == (
            "No rack has room: 13 machines with 8 free GPUs in one rack are needed;"
            " rack r00 has 12 (m000, m001 and 10 more), r01 has 12 (m012, m013 and 10 more),"
            " the other 18 racks have at most 12 each."
        )

    def test_the_nearest_machine_is_the_one_that_the_page_lists_first(self):
        drawing = """
            gpu-01  A100 ........
            gpu-02  H100 ######..
            gpu-03  H100 ####....
            gpu-04  H100 ....####  state=ready,cordoned
        """
        refusal = refused_on(snapshot_of(drawing), plain(gpus=8, machines=1, models=frozenset({"H100"})))
        data = refusal.as_headline()
        assert data["nearest"]["machines"] == ["gpu-03"]
        assert data["nearest"] == next(row for row in refusal.as_data()["rows"] if row["codes"])
        assert words.headline(data) == (
            "1 machine with 8 free H100s is needed; none is free now;"
            " nearest is gpu-03: 4 of 8 GPUs free, 8 needed; 4 held."
        )

    def test_a_cluster_without_machines(self):
        refusal = refused("", plain(gpus=8, machines=1))
        assert isinstance(refusal, Refusal)
        assert words.headline(refusal.as_headline()) == "This cluster has no machines."


POOLS = st.sets(st.sampled_from(["p", "q"])).map(frozenset)
NAMES = st.sets(st.sampled_from(["m0", "m1", "m2", "gone"])).map(frozenset)


@settings(max_examples=300, deadline=None)
@given(clusters(), requests(), POOLS, POOLS, NAMES)
def test_policy_and_order_are_the_cause_exactly_when_lifting_them_alone_helps(
    machines: list[MachineFacts],
    request: Request,
    over_cap: frozenset[str],
    guaranteed: frozenset[str],
    reserved: frozenset[str],
):
    snapshot = build_snapshot(machines)
    asked = replace(request, over_cap=over_cap, guaranteed_to_others=guaranteed, reserved=reserved)
    answer = place(snapshot, asked)
    if isinstance(answer, Placement):
        return
    in_turn = replace(asked, reserved=frozenset())
    free = replace(in_turn, over_cap=frozenset(), guaranteed_to_others=frozenset())
    if isinstance(place(snapshot, in_turn), Placement):
        assert answer.cause is Cause.MACHINES_RESERVED
    elif isinstance(place(snapshot, free), Placement):
        assert answer.cause is Cause.POOLS_CLOSED
    else:
        assert answer.cause not in {Cause.MACHINES_RESERVED, Cause.POOLS_CLOSED}


@settings(max_examples=300, deadline=None)
@given(clusters(), requests(groups=2), POOLS, NAMES)
def test_lists_and_pages_say_the_same(
    machines: list[MachineFacts], request: Request, over_cap: frozenset[str], reserved: frozenset[str]
):
    asked = replace(request, over_cap=over_cap, reserved=reserved)
    answer = place(build_snapshot(machines), asked)
    if isinstance(answer, Refusal):
        short, full = answer.as_headline(), answer.as_data()
        assert words.worker_reason(json.loads(json.dumps(short))) == words.worker_reason(full)
        assert {key: full[key] for key in short if key not in {"domains", "domains_left_out"}} == {
            key: short[key] for key in short if key not in {"domains", "domains_left_out"}
        }
