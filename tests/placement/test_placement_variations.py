"""The user guide's "Variations", drawn."""

import pytest

from placement import words
from tests.placement.asking import (
    headline,
    placed,
    placed_on,
    plain,
    reasons,
    refused,
    snapshot_of,
    where,
)

TWO_RACKS = """
    gpu-01  H100 ....|....  ib:ib-a  rack=r1
    gpu-02  H100 ....|....  ib:ib-a  rack=r2
"""


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

    def test_it_changes_its_mind_while_nothing_has_started(self):
        """The same request, asked again in the next pass: one of 16 once there is one, else two of 8."""
        request = plain(gpus=16, min_per_machine=8)
        now = snapshot_of(TWO_RACKS + "big-01  H100 #...............  ib:ib-a")
        later = snapshot_of(TWO_RACKS + "big-01  H100 ................  ib:ib-a")
        assert where(placed_on(now, request)) == ["gpu-01", "gpu-02"]
        assert where(placed_on(later, request)) == ["big-01"]

    def test_the_best_network_with_room_before_the_fewest_machines(self):
        drawing = """
            a-01  H100 ........  rack=r1
            a-02  H100 ........  rack=r1
            b-01  H100 ....####  ib:ib-a  rack=r2
            b-02  H100 ....####  ib:ib-a  rack=r2
            b-03  H100 ....####  ib:ib-a  rack=r2
            b-04  H100 ....####  ib:ib-a  rack=r2
        """
        assert where(placed(drawing, plain(gpus=16, min_per_machine=8))) == ["a-01", "a-02"]
        assert where(placed(drawing, plain(gpus=16, min_per_machine=4))) == ["b-01", "b-02", "b-03", "b-04"]

    def test_a_range_without_room_tells_all_the_shapes(self):
        drawing = """
            gpu-01  H100 ........
            gpu-02  H100 ........
        """
        assert headline(drawing, plain(gpus=32, min_nodes=2, max_nodes=4)) == (
            "4 machines with 8 free GPUs are needed; 2 are free now (gpu-01, gpu-02)."
        )

    def test_a_worker_of_several_in_one_nvlink_domain_is_told_its_domain(self):
        """What gives each worker IMEX channel 0: a domain, and several machines in it."""
        several = placed(self.NVL, plain(gpus=8, machines=2, interconnect="nvlink")).groups[0]
        alone = placed(self.NVL, plain(gpus=4, machines=1, interconnect="nvlink")).groups[0]
        assert (several.transport, several.nvlink_domain, several.shape.machines) == ("nvlink", "d2", 2)
        assert (alone.transport, alone.shape.machines) == ("none", 1)

    def test_interconnect_nvlink_never_leaves_the_domain_for_infiniband(self):
        data = refused(self.NVL, plain(gpus=12, machines=3, interconnect="nvlink")).as_data()
        assert words.worker_reason(data) == (
            "No NVLink domain has room: 3 machines with 4 free GPUs in one NVLink domain are needed;"
            " NVLink domain d2 has 2 (gb-02, gb-03), d1 has 1 (gb-01)."
        )

    def test_spread_over_fabrics(self):
        drawing = """
            gpu-01  H100 ........  ib:ib-a
            gpu-02  H100 ........  ib:ib-a
            gpu-03  H100 ........  ib:ib-b
            gpu-04  H100 ........
        """
        assert where(placed(drawing, plain(gpus=16, machines=2, spread="fabric"))) == ["gpu-01", "gpu-03"]
        assert headline(drawing, plain(gpus=24, machines=3, spread="fabric")) == (
            "3 machines with 8 free GPUs on different fabrics are needed; the usable ones stand in 2 fabrics."
        )
        assert reasons(drawing, plain(gpus=24, machines=3, spread="fabric"))["gpu-04"] == (
            "On no fabric that is known; 8 of 8 GPUs free"
        )

    def test_spread_over_machines_is_what_every_gang_is(self):
        assert where(placed(TWO_RACKS, plain(gpus=16, machines=2, spread="machine"))) == ["gpu-01", "gpu-02"]

    def test_a_drive_on_one_machine_holds_a_run_there(self):
        drawing = """
            gpu-01  H100 ........
            gpu-02  H100 ........  drive=scratch
        """
        request = plain(gpus=8, drives=frozenset({"scratch"}))
        assert where(placed(drawing, request)) == ["gpu-02"]

    def test_a_drive_on_a_shared_filesystem_serves_a_gang(self):
        drawing = """
            gpu-01  H100 ........
            gpu-02  H100 ........  drive=imagenet  drive=checkpoints
            gpu-03  H100 ........  drive=imagenet  drive=checkpoints
        """
        request = plain(gpus=16, machines=2, drives=frozenset({"imagenet", "checkpoints"}))
        assert where(placed(drawing, request)) == ["gpu-02", "gpu-03"]
        assert reasons(drawing, plain(gpus=24, machines=3, drives=request.groups[0].drives))["gpu-01"] == (
            "Cannot mount drive checkpoints and imagenet; 8 of 8 GPUs free"
        )

    def test_rdma_keeps_infiniband_and_roce_apart(self):
        drawing = """
            gpu-01  H100 ........  ib:ib-a
            gpu-02  H100 ........  roce:
        """
        assert headline(drawing, plain(gpus=16, machines=2, interconnect="rdma")) == (
            "2 machines with 8 free GPUs on one fabric are needed;"
            " fabric of RoCE ports without a fabric has 1 (gpu-02), ib-a has 1 (gpu-01)."
        )
