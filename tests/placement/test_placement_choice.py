"""Which of several possible placements is chosen: network, machines, lemons, tightness, fragmentation, health, name."""

from typing import Any

import pytest

from placement import GroupRequest, Request, Selection, Verdict
from tests.placement.asking import gpus, placed, plain, refused, where


def two(**fields: Any) -> Request:
    return plain(gpus=16, machines=2, **fields)


class TestNetwork:
    def test_one_nvlink_domain_before_one_rack(self):
        drawing = """
            a-01  H100 ........  ib:ib-a  rack=r1
            a-02  H100 ........  ib:ib-a  rack=r1
            z-01  H100 ........  ib:ib-a  rack=r2  nvl=d1
            z-02  H100 ........  ib:ib-a  rack=r3  nvl=d1
        """
        answer = placed(drawing, two())
        assert where(answer) == ["z-01", "z-02"]
        assert answer.verdict is Verdict.NVLINK_DOMAIN

    def test_one_rack_before_one_fabric(self):
        drawing = """
            a-01  H100 ........  ib:ib-a  rack=r1
            a-02  H100 ........  ib:ib-a  rack=r2
            a-03  H100 ........  ib:ib-a  rack=r2
        """
        answer = placed(drawing, two())
        assert where(answer) == ["a-02", "a-03"]
        assert answer.verdict is Verdict.IB_RACK
        assert answer.groups[0].rack == "r2"

    def test_one_fabric_before_roce_in_one_rack(self):
        drawing = """
            a-01  H100 ........  roce:  rack=r1
            a-02  H100 ........  roce:  rack=r1
            b-01  H100 ........  ib:ib-a
            b-02  H100 ........  ib:ib-a
        """
        assert placed(drawing, two()).verdict is Verdict.IB_FABRIC

    def test_roce_before_ethernet(self):
        drawing = """
            a-01  H100 ........
            a-02  H100 ........
            b-01  H100 ........  roce:
            b-02  H100 ........  roce:
        """
        assert placed(drawing, two()).verdict is Verdict.ROCE

    def test_asked_for_ethernet_gets_ethernet(self):
        drawing = """
            a-01  H100 ........  ib:ib-a  rack=r1
            a-02  H100 ........  ib:ib-a  rack=r1
        """
        answer = placed(drawing, two(interconnect="ethernet"))
        assert answer.verdict is Verdict.ETHERNET
        assert answer.ranks[0].ports == ()

    def test_one_machine_that_asked_for_infiniband_gets_its_ports(self):
        answer = placed(
            "gpu-01  H100 ........  ib:ib-a", plain(gpus=8, machines=1, interconnect="infiniband")
        )
        assert answer.verdict is Verdict.ONE_MACHINE
        assert answer.groups[0].transport == "infiniband"
        assert len(answer.ranks[0].ports) == 8

    def test_one_machine_that_asked_for_nothing_gets_none(self):
        answer = placed("gpu-01  H100 ........  ib:ib-a", plain(gpus=8))
        assert answer.groups[0].transport == "none"
        assert answer.ranks[0].ports == ()

    def test_a_machine_on_two_fabrics_joins_either(self):
        drawing = """
            a-01  H100 ........  ib:ib-a
            a-02  H100 ........  ib:ib-ax1 ib:ib-bx1
            a-03  H100 ####....  ib:ib-b
        """
        assert placed(drawing, two()).groups[0].fabric == "ib-a"
        assert where(placed(drawing, plain(gpus=8, machines=2, interconnect="infiniband"))) == [
            "a-02",
            "a-03",
        ]

    def test_a_storage_fabric_joins_nobody(self):
        drawing = """
            a-01  H100 ........  ib:store
            a-02  H100 ........  ib:store
        """
        assert placed(drawing, two(), storage={"store"}).verdict is Verdict.ETHERNET
        assert placed(drawing, two()).verdict is Verdict.IB_FABRIC

    def test_infiniband_ports_of_unknown_fabric_join_nobody(self):
        drawing = """
            a-01  H100 ........  ib:
            a-02  H100 ........  ib:
        """
        assert placed(drawing, two()).verdict is Verdict.ETHERNET

    def test_with_any_a_slow_port_makes_ethernet_not_a_refusal(self):
        drawing = """
            a-01  H100 ........  ib:ib-a@100
            a-02  H100 ........  ib:ib-a@100
        """
        assert placed(drawing, two(min_gbps=400)).verdict is Verdict.ETHERNET
        kept = placed(drawing, two(min_gbps=400, keep_within="fabric"))
        assert kept.verdict is Verdict.ETHERNET

    def test_machines_without_a_rack_are_never_one_rack(self):
        drawing = """
            a-01  H100 ........  ib:ib-a
            a-02  H100 ........  ib:ib-a
        """
        assert placed(drawing, two()).verdict is Verdict.IB_FABRIC
        assert refused(drawing, two(keep_within="rack")).slots.counts.sum() == 0


class TestFewestMachinesAndLemons:
    def test_fewest_machines_on_the_best_network(self):
        drawing = """
            a-01  H100 ....####  ib:ib-a  rack=r1
            a-02  H100 ....####  ib:ib-a  rack=r1
            a-03  H100 ........  ib:ib-a  rack=r2
            a-04  H100 ####....  ib:ib-a  rack=r3
        """
        assert where(placed(drawing, plain(gpus=8))) == ["a-03"]
        assert where(placed(drawing, plain(gpus=8, min_nodes=2))) == ["a-01", "a-02"]

    def test_a_better_network_is_worth_more_machines(self):
        drawing = """
            a-01  H100 ........
            a-02  H100 ........
            b-01  H100 ....####  ib:ib-a  rack=r1
            b-02  H100 ....####  ib:ib-a  rack=r1
            b-03  H100 ....####  ib:ib-a  rack=r1
            b-04  H100 ....####  ib:ib-a  rack=r1
        """
        assert where(placed(drawing, plain(gpus=16))) == ["b-01", "b-02", "b-03", "b-04"]

    LEMONS = """
        a-01  H100 ........  ib:ib-a  rack=r1
        a-02  H100 ........  ib:ib-a  rack=r1
        a-03  H100 ........  ib:ib-a  rack=r2
        a-04  H100 ........  ib:ib-a  rack=r2
    """

    @pytest.mark.parametrize(
        ("avoid", "expected"),
        [
            ({}, ["a-01", "a-02"]),
            ({"a-01": 1.0}, ["a-03", "a-04"]),
            ({"a-01": 1.0, "a-04": 2.0}, ["a-01", "a-02"]),
            ({"a-01": 3.0, "a-04": 2.0}, ["a-03", "a-04"]),
            ({"gone": 9.0, "a-02": 0.0}, ["a-01", "a-02"]),
        ],
    )
    def test_machines_that_failed_before_are_used_last(self, avoid, expected):
        request = Request((GroupRequest(gpus=16, machines=2),), avoid=avoid)
        assert where(placed(self.LEMONS, request)) == expected

    def test_but_not_at_the_price_of_the_network(self):
        request = Request((GroupRequest(gpus=16, machines=2),), avoid={"a-01": 1.0, "a-03": 1.0})
        answer = placed(self.LEMONS, request)
        assert answer.verdict is Verdict.IB_RACK
        assert answer.groups[0].score.lemon == 1.0


class TestTightness:
    def test_the_fullest_rack_that_still_has_room(self):
        drawing = """
            a-01  H100 ........  ib:ib-a  rack=r1
            a-02  H100 ........  ib:ib-a  rack=r1
            a-03  H100 ........  ib:ib-a  rack=r1
            a-04  H100 ........  ib:ib-a  rack=r2
            a-05  H100 ........  ib:ib-a  rack=r2
        """
        assert where(placed(drawing, two())) == ["a-04", "a-05"]

    def test_across_racks_as_few_as_possible(self):
        drawing = """
            a-01  H100 ........  ib:ib-a  rack=r1
            a-02  H100 ........  ib:ib-a  rack=r2
            a-03  H100 ........  ib:ib-a  rack=r2
            a-04  H100 ........  ib:ib-a  rack=r3
            a-05  H100 ........  ib:ib-a  rack=r3
            a-06  H100 ........  ib:ib-a  rack=r3
        """
        four = placed(drawing, plain(gpus=32, machines=4))
        assert where(four) == ["a-04", "a-05", "a-06", "a-01"]
        assert four.groups[0].score.racks == 2
        assert where(placed(drawing, plain(gpus=40, machines=5))) == ["a-04", "a-05", "a-06", "a-02", "a-03"]

    def test_the_fabric_on_which_fewer_racks_are_enough(self):
        drawing = """
            a-01  H100 ........  ib:ib-a  rack=r1
            a-02  H100 ........  ib:ib-a  rack=r2
            a-03  H100 ........  ib:ib-a  rack=r3
            b-01  H100 ........  ib:ib-b  rack=r4
            b-02  H100 ........  ib:ib-b  rack=r4
            b-03  H100 ........  ib:ib-b  rack=r5
        """
        assert where(placed(drawing, plain(gpus=24, machines=3))) == ["b-01", "b-02", "b-03"]


class TestFragmentation:
    def test_small_runs_fill_started_machines(self):
        drawing = """
            a-01  H100 ........
            a-02  H100 ######..
            a-03  H100 ####....
        """
        assert where(placed(drawing, plain(gpus=2))) == ["a-02"]
        assert where(placed(drawing, plain(gpus=3))) == ["a-03"]
        assert where(placed(drawing, plain(gpus=5))) == ["a-01"]

    def test_a_started_machine_before_a_smaller_whole_one(self):
        drawing = """
            a-01  H100 ..
            a-02  H100 ##......
        """
        assert where(placed(drawing, plain(gpus=1))) == ["a-02"]

    def test_small_runs_leave_whole_racks_alone(self):
        drawing = """
            a-01  H100 ........  rack=r1
            a-02  H100 ........  rack=r1
            b-01  H100 ........  rack=r2
            b-02  H100 ########  rack=r2
        """
        assert where(placed(drawing, plain(gpus=8))) == ["b-01"]

    def test_runs_without_gpus_go_where_few_gpus_are_free(self):
        drawing = """
            a-01  H100 ........
            b-01  H100 ########
            c-01                 cpu=64
            d-01
        """
        request = plain(machines=1, cpu_millicores=4000)
        assert where(placed(drawing, request)) == ["c-01"]
        assert where(placed(drawing, plain(machines=3, cpu_millicores=4000))) == ["b-01", "c-01", "d-01"]

    def test_a_machine_that_has_the_image_among_equals(self):
        drawing = """
            a-01  H100 ........
            a-02  H100 ........
        """
        request = Request((GroupRequest(gpus=8),), prefer=frozenset({"a-02"}))
        assert where(placed(drawing, request)) == ["a-02"]

    def test_healthy_before_suspect_then_by_name(self):
        drawing = """
            a-01  H100 .......?
            a-02  H100 ........
            a-03  H100 ........
        """
        assert where(placed(drawing, plain(gpus=8))) == ["a-02"]


class TestRanks:
    def test_neighbours_get_neighbouring_ranks_from_the_densest_rack_on(self):
        drawing = """
            a-01  H100 ........  ib:ib-a  rack=r1
            a-02  H100 ........  ib:ib-a  rack=r2
            a-03  H100 ........  ib:ib-a  rack=r3
            a-04  H100 ........  ib:ib-a  rack=r2
            a-05  H100 ........  ib:ib-a  rack=r3
            a-06  H100 ........  ib:ib-a  rack=r2
        """
        answer = placed(drawing, plain(gpus=48, machines=6))
        assert where(answer) == ["a-02", "a-04", "a-06", "a-03", "a-05", "a-01"]

    def test_fabrics_stay_together_when_the_gang_spans_them(self):
        drawing = """
            a-01  H100 ........  ib:ib-a
            a-02  H100 ........  ib:ib-b
            a-03  H100 ........  ib:ib-a
            a-04  H100 ........  ib:ib-b
            a-05  H100 ........  ib:ib-b
        """
        answer = placed(drawing, plain(gpus=40, machines=5))
        assert where(answer) == ["a-02", "a-04", "a-05", "a-01", "a-03"]

    def test_a_rack_on_two_fabrics_counts_for_each_with_what_it_has_there(self):
        drawing = """
            a-01  H100 ........  ib:ib-a  rack=r1
            a-02  H100 ........  ib:ib-a  rack=r2
            a-03  H100 ........  ib:ib-a  rack=r2
            b-01  H100 ........  ib:ib-b  rack=r1
        """
        assert where(placed(drawing, plain(gpus=32, machines=4))) == ["a-02", "a-03", "a-01", "b-01"]


class TestGpusOfAMachine:
    @pytest.mark.parametrize(
        ("cells", "wanted", "expected"),
        [
            ("....|....", 8, (0, 1, 2, 3, 4, 5, 6, 7)),
            ("....|....", 4, (0, 1, 2, 3)),
            ("#...|....", 4, (4, 5, 6, 7)),  # one NUMA node, not one and a half
            ("#...|....", 3, (1, 2, 3)),  # the node that is started
            ("....|..##", 2, (4, 5)),  # the tighter node
            (".#..|####", 2, (2, 3)),  # an aligned pair
            ("....|####", 1, (0,)),
            ("#...|####", 1, (1,)),  # the broken pair, the whole one is kept
            ("..##|..##", 4, (0, 1, 4, 5)),  # over both nodes when one is not enough
            ("#...|#...", 5, (1, 2, 3, 6, 7)),
            ("?...|....", 4, (4, 5, 6, 7)),  # healthy first
            ("?...|####", 4, (0, 1, 2, 3)),  # suspects last, but used
            ("x...|####", 3, (1, 2, 3)),
        ],
    )
    def test_one_island_aligned_healthy_first(self, cells, wanted, expected):
        assert gpus(placed(f"gpu-01  H100 {cells}", plain(gpus=wanted, machines=1)))["gpu-01"] == expected


class TestSelection:
    POOLS = """
        a-01  H100 ........  pool=p  label=zone:a
        a-02  H100 ........  pool=q  label=zone:a  label=disk:fast
        a-03  H100 ........  pool=q
    """

    @pytest.mark.parametrize(
        ("selection", "expected"),
        [
            (Selection(pools=frozenset({"q"})), "a-02"),
            (Selection(machines=frozenset({"a-03"})), "a-03"),
            (Selection(match_labels={"zone": "a", "disk": "fast"}), "a-02"),
            (Selection(exclude_machines=frozenset({"a-01"})), "a-02"),
            (Selection(pools=frozenset({"q"}), exclude_machines=frozenset({"a-02"})), "a-03"),
        ],
    )
    def test_the_request_chooses_machines(self, selection, expected):
        assert where(placed(self.POOLS, plain(gpus=8, selection=selection))) == [expected]

    def test_policy_chooses_pools(self):
        request = Request((GroupRequest(gpus=8),), allowed_pools=frozenset({"q"}))
        assert where(placed(self.POOLS, request)) == ["a-02"]

    def test_workers_placed_one_by_one_do_not_share_a_machine(self):
        request = Request((GroupRequest(gpus=4),), occupied=frozenset({"a-01"}))
        assert where(placed(self.POOLS, request)) == ["a-02"]
