"""The user guide's "Troubleshooting", drawn: each symptom about placement and its fix; and what no waiting will fix."""

import pytest

from placement import Placement, Refusal, Request, place, possible_ever, words
from tests.placement.asking import (
    GIB,
    headline,
    never,
    placed,
    placed_on,
    plain,
    reasons,
    reference,
    refused,
    refused_on,
    snapshot_of,
    where,
)

TWO_RACKS = """
    gpu-01  H100 ....|....  ib:ib-a  rack=r1
    gpu-02  H100 ....|....  ib:ib-a  rack=r2
"""


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

    def test_freeing_machines_places_it(self):
        """ "Wait, free machines, or drop the rule": the run that holds the other machine of the fabric ends."""
        snapshot = snapshot_of("""
            gpu-01  H100 ........  ib:ib-a
            gpu-02  H100 ........  ib:ib-a
            gpu-09  H100 ........  ib:ib-b
        """)
        eval_3 = placed_on(snapshot, plain(gpus=8, machines=1))
        assert where(eval_3) == ["gpu-01"]
        busy = snapshot.take(eval_3)
        assert words.worker_reason(refused_on(busy, reference()).as_data()) == (
            "No fabric has room: 2 machines with 8 free H100s on one fabric are needed;"
            " fabric ib-a has 1 (gpu-02), ib-b has 1 (gpu-09)."
        )
        assert where(placed_on(busy.give_back(eval_3), reference())) == ["gpu-01", "gpu-02"]

    def test_patience_never_relaxes_a_rule(self):
        """It weighs the network that is free now against a better one; where nothing is free it plays no part."""
        snapshot = snapshot_of(self.NO_FABRIC_FREE)
        assert isinstance(place(snapshot, reference()), Refusal)
        assert isinstance(place(snapshot.emptied(repaired=False), reference()), Refusal)

    def test_all_ports_down_is_told_with_their_names_and_last_speed(self):
        drawing = """
            gpu-01  H100 ..  ib:ib-a@400x2-down
            gpu-02  H100 ..  ib:ib-a@0x1-down
        """
        request = plain(gpus=4, machines=2, interconnect="infiniband")
        assert reasons(drawing, request) == {
            "gpu-01": "mlx5_0 and mlx5_1 down; before that 400 Gb/s; 2 of 2 GPUs free",
            "gpu-02": "mlx5_0 down; 2 of 2 GPUs free",
        }
        assert words.worker_reason(refused(drawing, request).as_data()) == (
            "No fabric has room: 2 machines with 2 free GPUs and a port that is up on one fabric are needed;"
            " fabric ib-a has 0."
        )

    def test_without_a_network_rule_slow_ports_make_it_ethernet(self):
        drawing = """
            gpu-01  H100 ........  ib:ib-a@200
            gpu-02  H100 ........  ib:ib-a@200
        """
        answer = placed(drawing, plain(gpus=16, machines=2, min_gbps=400))
        assert words.verdict_words(answer.verdict.code) == "Ethernet"
        assert [rank.ports for rank in answer.ranks] == [(), ()]

    def test_machines_without_rdma_are_named_where_a_fabric_is_asked_for(self):
        drawing = """
            gpu-01  H100 ........  ib:ib-a
            gpu-02  H100 ........
        """
        assert reasons(drawing, reference())["gpu-02"] == (
            "No InfiniBand port; on no fabric that is known; 8 of 8 GPUs free"
        )


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
