"""Groups of workers that start as one gang: none may take another's machine, and together they are placed or not."""

from placement import GroupRequest, Request, Selection, Verdict, words
from tests.placement.asking import placed, refused, where


class TestGroups:
    DRAWING = """
        a-01  H100 ........  ib:ib-a
        a-02  H100 ........  ib:ib-a
        a-03  H100 ........  ib:ib-a
        b-01  H100 ....      ib:ib-b
    """

    def test_groups_are_one_gang_and_ranks_run_through_them(self):
        request = Request((GroupRequest("trainer", gpus=16, machines=2), GroupRequest("judge", gpus=4)))
        answer = placed(self.DRAWING, request)
        assert [(rank.rank, rank.group, rank.machine_name) for rank in answer.ranks] == [
            (0, 0, "a-01"),
            (1, 0, "a-02"),
            (2, 1, "b-01"),
        ]
        assert answer.verdict is Verdict.IB_FABRIC

    def test_the_group_with_the_least_choice_is_served_first(self):
        """On its own `any` would take b-01 whole; then `small` would find nothing."""
        small = GroupRequest(
            "small", gpus=4, selection=Selection(pools=frozenset({"h100"}), machines=frozenset({"b-01"}))
        )
        request = Request((GroupRequest("any", gpus=4), small))
        answer = placed(self.DRAWING, request)
        assert where(answer) == ["a-01", "b-01"]

    def test_no_group_takes_the_rack_that_another_needs_for_as_good_a_network(self):
        """`left` is placed first and would take rack 1; then `right` would be spread over racks."""
        drawing = """
            a-01  H100 ........  ib:ib-a  rack=r1  label=left:1  label=right:1
            a-02  H100 ........  ib:ib-a  rack=r1  label=left:1  label=right:1
            a-03  H100 ........  ib:ib-a  rack=r2  label=left:1
            a-04  H100 ........  ib:ib-a  rack=r2  label=left:1
            a-05  H100 ........  ib:ib-a  rack=r5  label=right:1
            a-06  H100 ........  ib:ib-a  rack=r6  label=right:1
            a-07  H100 ........  ib:ib-a  rack=r7  label=right:1
        """
        groups = tuple(
            GroupRequest(name, gpus=16, machines=2, selection=Selection(match_labels={name: "1"}))
            for name in ("left", "right")
        )
        answer = placed(drawing, Request(groups))
        assert (answer.verdict, where(answer)) == (Verdict.IB_RACK, ["a-03", "a-04", "a-01", "a-02"])

    def test_combinations_are_tried_when_one_after_the_other_fails(self):
        """Both groups prefer ib-a; only `right` on ib-b leaves room for `left`."""
        drawing = """
            a-01  H100 ........  ib:ib-a
            a-02  H100 ........  ib:ib-a
            b-01  H100 ........  ib:ib-b
            b-02  A100 ........  ib:ib-b
            b-03  A100 ........  ib:ib-b
        """
        h100, either = frozenset({"H100"}), frozenset({"H100", "A100"})
        request = Request(
            (
                GroupRequest("left", gpus=16, machines=2, models=either, interconnect="infiniband"),
                GroupRequest("right", gpus=16, machines=2, models=h100, interconnect="infiniband"),
            )
        )
        answer = placed(drawing, request)
        assert where(answer)[:2] == ["b-01", "b-02"]
        assert where(answer)[2:] == ["a-01", "a-02"]

    def test_groups_that_collide_say_so(self):
        request = Request(
            (GroupRequest("one", gpus=16, machines=2), GroupRequest("other", gpus=16, machines=2))
        )
        assert refused(self.DRAWING, request).cause.code == "groups_collide"

    def test_groups_that_collide_are_told_about_the_one_with_the_least_choice(self):
        request = Request(
            (GroupRequest("many", gpus=24, machines=3), GroupRequest("few", gpus=8, machines=1))
        )
        assert words.headline(refused(self.DRAWING, request).as_data()) == (
            "Each group of workers fits alone, but not all together: they need the same machines."
            " For group many, 3 machines with 8 free GPUs are needed; 3 are free now (a-01, a-02, a-03)."
        )

    def test_a_group_on_one_machine_keeps_its_ports_when_combinations_are_tried(self):
        """On its own `three` would take all of ib-a; it gives way, and `one` gets the ports that it asked for."""
        drawing = """
            a-01  H100 ........  ib:ib-a
            a-02  H100 ........  ib:ib-a
            a-03  H100 ........  ib:ib-a
            b-01  H100 ........  roce:
        """
        request = Request(
            (
                GroupRequest("three", gpus=3, machines=3),
                GroupRequest("one", gpus=8, machines=1, interconnect="infiniband"),
            )
        )
        three, one = placed(drawing, request).groups
        assert three.verdict is Verdict.ETHERNET
        assert "b-01" in [rank.machine_name for rank in three.ranks]
        assert (one.transport, one.fabric) == ("infiniband", "ib-a")
        assert one.ranks[0].ports == tuple(f"mlx5_{number}:1" for number in range(8))

    def test_a_gang_is_as_well_connected_as_its_worst_group(self):
        request = Request((GroupRequest("near", gpus=16, machines=2), GroupRequest("far", gpus=4)))
        answer = placed(self.DRAWING, request)
        assert [group.verdict for group in answer.groups] == [Verdict.IB_FABRIC, Verdict.ONE_MACHINE]
        assert answer.verdict is Verdict.IB_FABRIC

    def test_a_group_without_gpus_beside_one_with_all_of_them(self):
        drawing = """
            a-01  H100 ........
            a-02  H100 ........
            c-01
        """
        request = Request(
            (
                GroupRequest("trainer", gpus=16, machines=2),
                GroupRequest("data", machines=1, cpu_millicores=8000),
            )
        )
        assert where(placed(drawing, request)) == ["a-01", "a-02", "c-01"]
