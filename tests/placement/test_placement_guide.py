"""Every row of the user guide's tables about placement, drawn: what its fields mean, its variations, its symptoms."""

import pytest

from placement import Placement, Refusal, Request, place, possible_ever, words
from tests.placement.asking import (
    GIB,
    gpus,
    headline,
    never,
    placed,
    placed_on,
    plain,
    reasons,
    reference,
    refused,
    snapshot_of,
    where,
)

TWO_RACKS = """
    gpu-01  H100 ....|....  ib:ib-a  rack=r1
    gpu-02  H100 ....|....  ib:ib-a  rack=r2
"""

ALL_PORTS = tuple(f"mlx5_{number}:1" for number in range(8))


class TestWhatEachPartDoes:
    def test_sixteen_gpus_on_two_machines_are_eight_on_each(self):
        answer = placed(TWO_RACKS, reference())
        assert gpus(answer) == {"gpu-01": tuple(range(8)), "gpu-02": tuple(range(8))}
        assert [rank.rank for rank in answer.ranks] == [0, 1]
        assert [rank.machine_id for rank in answer.ranks] == [1, 2]
        assert answer.ranks[1].gpu_ids == tuple(range(200, 208))

    def test_per_gpu_amounts_follow_the_split(self):
        for rank in placed(TWO_RACKS, reference()).ranks:
            assert (rank.cpu_millicores, rank.memory_bytes) == (96_000, 800 * GIB)

    def test_a_machine_with_too_few_cores_for_them_is_refused(self):
        drawing = """
            gpu-01  H100 ........  ib:ib-a  cpu=95.5
            gpu-02  H100 ........  ib:ib-a
        """
        assert headline(drawing, reference()) == (
            "2 machines with 8 free H100s and 96 cores on one fabric are needed; fabric ib-a has 1 (gpu-02)."
        )
        assert reasons(drawing, reference())["gpu-01"] == "95.5 cores free, 96 needed; 8 of 8 GPUs free"

    def test_a_gang_is_placed_whole_or_not_at_all(self):
        drawing = """
            gpu-01  H100 ........  ib:ib-a
            gpu-02  H100 ....####  ib:ib-a
        """
        answer = refused(drawing, reference())
        assert answer.domains[0].found == 1
        assert answer.domains[0].machines == ("gpu-01",)

    def test_infiniband_means_never_roce(self):
        drawing = """
            gpu-01  H100 ........  roce:@400
            gpu-02  H100 ........  roce:@400
        """
        assert reasons(drawing, reference()) == {
            "gpu-01": "No InfiniBand port; on no fabric that is known; 8 of 8 GPUs free",
            "gpu-02": "No InfiniBand port; on no fabric that is known; 8 of 8 GPUs free",
        }

    def test_infiniband_means_never_ethernet(self):
        drawing = """
            gpu-01  H100 ........
            gpu-02  H100 ........
        """
        assert headline(drawing, reference()) == (
            "2 machines with 8 free H100s on one fabric are needed; this cluster has no InfiniBand fabric for them."
        )

    def test_only_ports_of_min_gbps_reach_the_worker(self):
        drawing = """
            gpu-01  H100 ........  ib:ib-a@400x4  ib:ib-a@200x4
            gpu-02  H100 ........  ib:ib-a@400x3  ib:ib-a@400x1-down
        """
        answer = placed(drawing, reference())
        assert {rank.machine_name: rank.ports for rank in answer.ranks} == {
            "gpu-01": ALL_PORTS[:4],
            "gpu-02": ALL_PORTS[:3],
        }

    def test_only_ports_of_the_fabric_chosen_reach_the_worker(self):
        drawing = """
            gpu-01  H100 ........  ib:ib-a x1 ib:store@400x2 ib:ib-a@400x2
            gpu-02  H100 ........  ib:store@400x2 ib:ib-a@400x2
        """.replace(" x1", "x1")
        answer = placed(drawing, reference(), storage={"store"})
        assert answer.groups[0].fabric == "ib-a"
        assert [rank.ports for rank in answer.ranks] == [
            ("mlx5_0:1", "mlx5_3:1", "mlx5_4:1"),
            ("mlx5_2:1", "mlx5_3:1"),
        ]

    def test_without_min_gbps_the_fastest_class_of_each_machine(self):
        drawing = """
            gpu-01  H100 ........  ib:ib-a@100x1 ib:ib-a@400x2
            gpu-02  H100 ........  ib:ib-a@200x2 ib:ib-a@100x1
        """
        answer = placed(drawing, reference(min_gbps=None))
        assert [rank.ports for rank in answer.ranks] == [("mlx5_1:1", "mlx5_2:1"), ("mlx5_0:1", "mlx5_1:1")]

    def test_keep_within_fabric_waits_rather_than_joining_two(self):
        drawing = """
            gpu-01  H100 ........  ib:ib-a
            gpu-02  H100 ........  ib:ib-b
        """
        assert headline(drawing, reference()) == (
            "2 machines with 8 free H100s on one fabric are needed;"
            " fabric ib-a has 1 (gpu-01), ib-b has 1 (gpu-02)."
        )

    def test_patience_has_something_to_gain_where_the_empty_cluster_has_one_rack(self):
        drawing = """
            gpu-01  H100 ........  ib:ib-a  rack=r1
            gpu-02  H100 ########  ib:ib-a  rack=r1
            gpu-03  H100 ........  ib:ib-a  rack=r2
        """
        snapshot = snapshot_of(drawing)
        now = placed_on(snapshot, reference())
        best = placed_on(snapshot.emptied(repaired=False), reference())
        assert words.placement_sentence(now.as_data()) == "gpu-01 and gpu-03, one InfiniBand fabric"
        assert (
            words.placement_sentence(best.as_data()) == "gpu-01 and gpu-02, one rack on one InfiniBand fabric"
        )
        assert best.network < now.network

    def test_patience_has_nothing_to_gain_where_this_is_the_best_network(self):
        snapshot = snapshot_of(TWO_RACKS)
        now = placed_on(snapshot, reference())
        best = placed_on(snapshot.emptied(repaired=False), reference())
        assert not best.network < now.network

    def test_healthy_only_is_never_a_gpu_with_a_warning_sign(self):
        drawing = """
            gpu-01  H100 ....|....  ib:ib-a
            gpu-02  H100 ....|.?..  ib:ib-a
        """
        assert reasons(drawing, reference())["gpu-02"] == (
            "7 of 8 free GPUs are healthy, 8 needed; GPU 5 is suspect"
        )
        answer = placed(drawing, reference(healthy_only=False))
        assert answer.groups[0].score.suspects == 1


class TestVariations:
    def test_astraeus_chooses_two_machines_of_eight(self):
        answer = placed(TWO_RACKS, plain(gpus=16, min_per_machine=8))
        assert (answer.groups[0].shape.machines, answer.groups[0].shape.gpus) == (2, 8)

    def test_or_one_machine_of_sixteen(self):
        drawing = TWO_RACKS + "big-01  H100 ................  ib:ib-a  rack=r3\n"
        answer = placed(drawing, plain(gpus=16, min_per_machine=8))
        assert where(answer) == ["big-01"]
        assert words.verdict_words(answer.verdict.code) == "one machine"

    def test_never_a_smaller_slice_than_min_per_machine(self):
        drawing = """
            gpu-01  H100 ....####  ib:ib-a
            gpu-02  H100 ....####  ib:ib-a
            gpu-03  H100 ....####  ib:ib-a
            gpu-04  H100 ....####  ib:ib-a
        """
        assert headline(drawing, plain(gpus=16, min_per_machine=8)) == (
            "2 machines with 8 free GPUs are needed; none is free now; "
            "nearest is gpu-01: 4 of 8 GPUs free, 8 needed; 4 held."
        )
        answer = placed(drawing, plain(gpus=16, min_per_machine=4))
        assert answer.groups[0].shape.machines == 4

    def test_the_cores_follow_the_shape_chosen(self):
        request = plain(gpus=16, min_per_machine=8, cpu_millicores_per_gpu=10_000)
        assert {rank.cpu_millicores for rank in placed(TWO_RACKS, request).ranks} == {80_000}

    @pytest.mark.parametrize(
        ("free", "machines", "split"),
        [("................", 2, 16), ("........########", 4, 8)],
    )
    def test_a_range_of_machines_takes_the_fewest_that_split_evenly(self, free, machines, split):
        drawing = "\n".join(f"gpu-{number:02d}  H100 {free}  ib:ib-a" for number in range(1, 5))
        answer = placed(drawing, plain(gpus=32, min_nodes=2, max_nodes=4))
        assert (answer.groups[0].shape.machines, answer.groups[0].shape.gpus) == (machines, split)

    def test_three_machines_do_not_split_thirty_two_gpus(self):
        drawing = "\n".join(f"gpu-{number:02d}  H100 {'.' * 11}#####  ib:ib-a" for number in range(1, 4))
        answer = refused(drawing, plain(gpus=32, min_nodes=2, max_nodes=4))
        assert {(shape.machines, shape.gpus) for shape in (answer.shape, *answer.other_shapes)} == {
            (2, 16),
            (4, 8),
        }

    NVL = """
        gb-01  GB200 ....  ib:ib-a  nvl=d1  rack=r1
        gb-02  GB200 ....  ib:ib-a  nvl=d2  rack=r1
        gb-03  GB200 ....  ib:ib-a  nvl=d2  rack=r2
        gb-04  GB200 ....  ib:ib-a
    """

    def test_keep_within_one_nvlink_domain(self):
        answer = placed(self.NVL, plain(gpus=8, machines=2, keep_within="nvlink_domain"))
        assert where(answer) == ["gb-02", "gb-03"]
        assert answer.groups[0].nvlink_domain == "d2"
        assert words.verdict_words(answer.verdict.code) == "one NVLink domain"
        assert answer.groups[0].transport == "nvlink"

    def test_no_nvlink_domain_has_room(self):
        data = refused(self.NVL, plain(gpus=12, machines=3, keep_within="nvlink_domain")).as_data()
        assert words.worker_reason(data) == (
            "No NVLink domain has room: 3 machines with 4 free GPUs in one NVLink domain are needed;"
            " NVLink domain d2 has 2 (gb-02, gb-03), d1 has 1 (gb-01)."
        )

    def test_interconnect_nvlink_is_one_machine_or_one_domain(self):
        # Rack r1 has two whole machines and stays whole.
        assert where(placed(self.NVL, plain(gpus=4, interconnect="nvlink"))) == ["gb-03"]
        assert where(placed(self.NVL, plain(gpus=8, interconnect="nvlink"))) == ["gb-02", "gb-03"]
        assert reasons(self.NVL, plain(gpus=12, machines=3, interconnect="nvlink"))["gb-04"] == (
            "In no NVLink domain; 4 of 4 GPUs free"
        )

    def test_rdma_takes_infiniband_before_roce(self):
        drawing = """
            a-01  H100 ........  roce:
            a-02  H100 ........  roce:
            b-01  H100 ........  ib:ib-a
            b-02  H100 ........  ib:ib-a
        """
        assert where(placed(drawing, plain(gpus=16, machines=2, interconnect="rdma"))) == ["b-01", "b-02"]

    def test_rdma_takes_roce_where_there_is_no_infiniband(self):
        drawing = """
            a-01  H100 ........  roce:@200x2  rack=r1
            a-02  H100 ........  roce:@200x2  rack=r1
            a-03  H100 ........  roce:@200x2  rack=r2
            b-01  H100 ........  ib:ib-a      rack=r1
        """
        answer = placed(drawing, plain(gpus=16, machines=2, interconnect="rdma"))
        assert where(answer) == ["a-01", "a-02"]
        assert words.verdict_words(answer.verdict.code) == "RoCE in one rack"
        assert answer.groups[0].transport == "roce"
        assert answer.ranks[0].ports == ("mlx5_0:1", "mlx5_1:1")
        three = placed(drawing, plain(gpus=24, machines=3, interconnect="rdma"))
        assert words.verdict_words(three.verdict.code) == "RoCE"

    def test_rdma_is_never_plain_ethernet(self):
        drawing = """
            a-01  H100 ........  roce:
            c-01  H100 ........
        """
        assert headline(drawing, plain(gpus=16, machines=2, interconnect="rdma")) == (
            "2 machines with 8 free GPUs on one fabric are needed; fabric of RoCE ports without a fabric has 1 (a-01)."
        )
        assert reasons(drawing, plain(gpus=16, machines=2, interconnect="rdma"))["c-01"] == (
            "No RDMA port; 8 of 8 GPUs free"
        )

    def test_spread_puts_each_worker_in_another_rack(self):
        drawing = """
            gpu-01  H100 ........  rack=r1
            gpu-02  H100 ........  rack=r1
            gpu-03  H100 ........  rack=r2
            gpu-04  H100 ........
        """
        assert where(placed(drawing, plain(gpus=16, machines=2, spread="rack"))) == ["gpu-01", "gpu-03"]
        assert headline(drawing, plain(gpus=24, machines=3, spread="rack")) == (
            "3 machines with 8 free GPUs in different racks are needed; the usable ones stand in 2 racks."
        )
        assert reasons(drawing, plain(gpus=24, machines=3, spread="rack"))["gpu-04"] == (
            "Rack not known; 8 of 8 GPUs free"
        )

    def test_training_data_must_be_within_reach_of_every_machine(self):
        drawing = """
            gpu-01  H100 ........  drive=imagenet
            gpu-02  H100 ........
        """
        request = plain(gpus=16, machines=2, drives=frozenset({"imagenet"}))
        assert reasons(drawing, request)["gpu-02"] == "Cannot mount drive imagenet; 8 of 8 GPUs free"


class TestTroubleshooting:
    NO_FABRIC_FREE = """
        gpu-01  H100 ........  ib:ib-a
        gpu-02  H100 ........  ib:ib-b
    """

    def test_without_a_network_rule_and_without_room_on_a_fabric_it_is_ethernet(self):
        answer = placed(self.NO_FABRIC_FREE, plain(gpus=16, machines=2))
        assert words.verdict_words(answer.verdict.code) == "Ethernet"
        assert answer.groups[0].transport == "ethernet"
        assert [rank.ports for rank in answer.ranks] == [(), ()]

    def test_asked_for_infiniband_it_waits_for_a_fabric(self):
        data = refused(self.NO_FABRIC_FREE, plain(gpus=16, machines=2, interconnect="infiniband")).as_data()
        assert words.worker_reason(data).startswith(
            "No fabric has room: 2 machines with 8 free GPUs on one fabric"
        )

    def test_ports_down_or_slow_are_named_and_a_lower_speed_helps(self):
        drawing = """
            gpu-01  H100 ........  ib:ib-a
            gpu-02  H100 ........  ib:ib-a@200
            gpu-03  H100 ........  ib:ib-a@200
            gpu-04  H100 ........  ib:ib-a@400x1-down
        """
        assert headline(drawing, reference()) == (
            "2 machines with 8 free H100s and a port of at least 400 Gb/s on one fabric are needed;"
            " fabric ib-a has 1 (gpu-01)."
        )
        assert reasons(drawing, reference()) == {
            "gpu-01": "8 of 8 GPUs free",
            "gpu-02": "8 ports on ib-a at 200 Gb/s, 400 needed; 8 of 8 GPUs free",
            "gpu-03": "8 ports on ib-a at 200 Gb/s, 400 needed; 8 of 8 GPUs free",
            "gpu-04": "mlx5_0 down; before that 400 Gb/s; 8 of 8 GPUs free",
        }
        assert where(placed(drawing, reference(min_gbps=200))) == ["gpu-01", "gpu-02"]

    def test_keep_within_fabric_with_too_few_free_machines_says_that_no_fabric_has_room(self):
        drawing = """
            gpu-01  H100 ........  ib:ib-a
            gpu-02  H100 ....####  ib:ib-a
            gpu-03  H100 .....?..  ib:ib-a
            gpu-04  H100 ........  ib:ib-a  state=ready,cordoned
            gpu-09  H100 ########  ib:ib-b
            gpu-21  A100 ........  ib:ib-b
        """
        assert words.worker_reason(refused(drawing, reference()).as_data()) == (
            "No fabric has room: 2 machines with 8 free H100s on one fabric are needed;"
            " fabric ib-a has 1 (gpu-01), ib-b has 0."
        )
        assert list(reasons(drawing, reference(), holders=["eval-3", "llm-7"]).items()) == [
            ("gpu-01", "8 of 8 GPUs free"),
            ("gpu-04", "Cordoned; 8 of 8 GPUs free"),
            ("gpu-03", "7 of 8 free GPUs are healthy, 8 needed; GPU 5 is suspect"),
            ("gpu-02", "4 of 8 GPUs free, 8 needed; 4 held by eval-3, llm-7"),
            ("gpu-09", "0 of 8 GPUs free, 8 needed; 8 held by eval-3, llm-7"),
            ("gpu-21", "A100; H100 is asked"),
        ]

    def test_dropping_the_rule_places_it(self):
        request = reference(keep_within=None, interconnect="any")
        assert words.verdict_words(placed(self.NO_FABRIC_FREE, request).verdict.code) == "Ethernet"


class TestNeverPossible:
    def test_the_largest_rack_is_too_small_even_when_empty(self):
        drawing = "\n".join(
            f"gpu-{number:02d}  H100 ...#####  ib:ib-a  rack=r{1 + number // 4}" for number in range(20)
        )
        ever = never(snapshot_of(drawing), reference(gpus=64, machines=8, keep_within="rack"))
        assert words.headline(ever.as_data()) == (
            "8 machines with 8 H100s in one rack are needed; the largest rack (r1 on ib-a) has 4,"
            " even when all are free."
        )
        assert [(change.field, change.would_fit) for change in ever.changes] == [
            ("machines", {"machines": 4, "gpus": 32}),
            ("topology.keep_within", "fabric"),
        ]

    def test_a_busy_broken_cordoned_cluster_is_no_reason(self):
        drawing = """
            gpu-01  H100 ####xx??  ib:ib-a@400x1-down  state=ready,cordoned
            gpu-02  H100 ........  ib:ib-a             state=unreachable
        """
        assert isinstance(place(snapshot_of(drawing), reference()), Refusal)
        assert isinstance(possible_ever(snapshot_of(drawing), reference()), Placement)

    @pytest.mark.parametrize(
        ("changes", "field", "would_fit"),
        [
            ({"models": frozenset({"B200"})}, "gpu_requests.models", ["H100"]),
            ({"min_memory_bytes": 100 * GIB}, "gpu_requests.min_memory_bytes", 80 * GIB),
            ({"min_gbps": 800}, "network.min_gbps", 400),
            ({"cpu_millicores_per_gpu": 20_000}, "per_gpu.cpu_millicores", 16_000),
            ({"memory_bytes_per_gpu": 300 * GIB}, "per_gpu.memory_bytes", 256 * GIB),
            ({"spread": "fabric"}, "topology.spread", None),
            ({"gpus": 32}, "gpu_requests.count", 16),
        ],
    )
    def test_the_number_that_would_have_to_change(self, changes, field, would_fit):
        ever = never(snapshot_of(TWO_RACKS), reference(**changes))
        assert (field, would_fit) in [(change.field, change.would_fit) for change in ever.changes]

    def test_policy_is_not_waived(self):
        request = Request(reference().groups, allowed_pools=frozenset({"a100"}))
        ever = never(snapshot_of(TWO_RACKS), request)
        assert words.headline(ever.as_data()) == (
            "No machine of this cluster may take this run: pool not open to this workspace (2)."
        )
