"""The user guide's table "What each part does", drawn: each row that says something about placement."""

import pytest

from placement import Placement, place, words
from tests.placement.asking import (
    GIB,
    gpus,
    headline,
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

    def test_healthy_only_waits_where_the_other_machines_have_warning_signs(self):
        drawing = """
            gpu-01  H100 ....|....  ib:ib-a
            gpu-02  H100 ....|.?..  ib:ib-a
            gpu-03  H100 ....|x...  ib:ib-a
        """
        assert headline(drawing, reference()) == (
            "2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-01)."
        )
        assert reasons(drawing, reference())["gpu-03"] == (
            "7 of 8 GPUs are sound, 8 needed; GPU 4 is faulty; 7 of 8 GPUs free"
        )

    def test_a_count_that_does_not_divide_is_never_placed(self):
        assert headline(TWO_RACKS, reference(gpus=15)) == ("15 GPUs can't be split evenly over 2 machines.")

    def test_a_third_machine_does_not_change_the_split(self):
        drawing = TWO_RACKS + "    gpu-03  H100 ....|....  ib:ib-a  rack=r3"
        assert gpus(placed(drawing, reference())) == {"gpu-01": tuple(range(8)), "gpu-02": tuple(range(8))}

    @pytest.mark.parametrize(
        ("amounts", "cores", "memory"),
        [
            ({"cpu_millicores_per_gpu": 12_000, "memory_bytes_per_gpu": 100 * GIB}, 96_000, 800 * GIB),
            ({"cpu_millicores": 64_000, "memory_bytes": 512 * GIB}, 64_000, 512 * GIB),
            ({}, 128_000, 2048 * GIB),  # the GPUs' share of the machine: all of it
        ],
    )
    def test_either_per_gpu_or_per_worker_or_the_share_of_the_machine(self, amounts, cores, memory):
        for rank in placed(TWO_RACKS, plain(gpus=16, machines=2, **amounts)).ranks:
            assert (rank.cpu_millicores, rank.memory_bytes) == (cores, memory)

    def test_half_the_gpus_are_half_of_the_machine(self):
        (rank,) = placed("gpu-01  H100 ....|....", plain(gpus=4, machines=1)).ranks
        assert (rank.cpu_millicores, rank.memory_bytes) == (64_000, 1024 * GIB)

    def test_too_little_memory_for_what_each_gpu_brings(self):
        drawing = """
            gpu-01  H100 ........  ib:ib-a  mem=799
            gpu-02  H100 ........  ib:ib-a
        """
        assert headline(drawing, reference()) == (
            "2 machines with 8 free H100s and 800 GiB of memory on one fabric are needed;"
            " fabric ib-a has 1 (gpu-02)."
        )
        assert reasons(drawing, reference())["gpu-01"] == (
            "799 GiB of memory free, 800 GiB needed; 8 of 8 GPUs free"
        )

    def test_patience_has_a_tighter_rack_to_wait_for_only_while_it_exists(self):
        """A machine that is cordoned is not waited for; one that is busy is."""
        drawing = """
            gpu-01  H100 ........  ib:ib-a  rack=r1
            gpu-02  H100 ........  ib:ib-a  rack=r1  state=ready,cordoned
            gpu-03  H100 ........  ib:ib-a  rack=r2
        """
        snapshot = snapshot_of(drawing)
        now, best = (placed_on(one, reference()) for one in (snapshot, snapshot.emptied(repaired=False)))
        assert where(now) == where(best) == ["gpu-01", "gpu-03"]
        assert not best.network < now.network

    def test_fabrics_are_known_by_name_whatever_the_machines_are_called(self):
        drawing = """
            a-01  H100 ........  ib:ib-b
            a-02  H100 ........  ib:ib-a
            b-01  H100 ........  ib:ib-b
        """
        answer = placed(drawing, reference())
        assert where(answer) == ["a-01", "b-01"]
        assert answer.groups[0].fabric == "ib-b"

    def test_a_gang_waits_as_a_whole_until_its_last_machine_is_free(self):
        snapshot = snapshot_of(TWO_RACKS)
        other = placed_on(snapshot, plain(gpus=1, machines=1))
        assert where(other) == ["gpu-01"]
        answer = refused_on(snapshot.take(other), reference())
        assert words.headline(answer.as_data()) == (
            "2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-02)."
        )
        assert isinstance(place(snapshot.take(other).give_back(other), reference()), Placement)
