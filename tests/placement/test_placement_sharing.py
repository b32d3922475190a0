"""Which gangs a change of the cluster tears apart: told before a label is changed."""

from dataclasses import replace

import pytest

from placement import GroupRequest, MachineFacts, PortFacts, Request, build_snapshot
from placement.sharing import Gang, Split, splits

MACHINES = {
    "a": MachineFacts("a", rack="r1", nvlink_domain="d1", ports=(PortFacts("m:1", fabric="ib-a"),)),
    "b": MachineFacts("b", rack="r1", nvlink_domain="d1", ports=(PortFacts("m:1", fabric="ib-a"),)),
    "c": MachineFacts("c", rack="r2", ports=(PortFacts("m:1", fabric="ib-b"),)),
}


def cluster(**changed: MachineFacts):
    return build_snapshot((MACHINES | changed).values())


def gang(*machines: str, **asked) -> Gang:
    return Gang(7, Request((GroupRequest(gpus=8, **asked),)), 0, machines or ("a", "b"))


def torn(one: Gang, **changed: MachineFacts) -> list[Split]:
    return list(splits(cluster(), cluster(**changed), [one]))


def test_a_rack_is_left():
    one = gang(keep_within="rack")
    assert torn(one, b=replace(MACHINES["b"], rack="r7")) == [Split(one, "rack", ("r1",), ("r1", "r7"), ())]


def test_a_rack_is_no_longer_known():
    one = gang(keep_within="rack")
    assert torn(one, b=replace(MACHINES["b"], rack=None)) == [Split(one, "rack", ("r1",), ("r1",), ("b",))]


def test_an_nvlink_domain_is_left():
    one = gang(interconnect="nvlink")
    after = replace(MACHINES["a"], nvlink_domain="d2")
    assert torn(one, a=after) == [Split(one, "nvlink_domain", ("d1",), ("d1", "d2"), ())]


@pytest.mark.parametrize(
    "asked", [{"interconnect": "infiniband"}, {"interconnect": "rdma"}, {"keep_within": "fabric"}]
)
def test_a_fabric_is_left(asked):
    one = gang(**asked)
    after = replace(MACHINES["a"], ports=(PortFacts("m:1", fabric="ib-z"),))
    assert torn(one, a=after) == [Split(one, "fabric", ("ib-a",), ("ib-a", "ib-z"), ())]


def test_the_narrowest_level_that_changes_is_told():
    one = gang(keep_within="rack", interconnect="infiniband")
    after = replace(MACHINES["a"], rack="r9", ports=(PortFacts("m:1", fabric="ib-z"),))
    assert [split.level for split in torn(one, a=after)] == ["rack"]
    moved = replace(MACHINES["a"], ports=(PortFacts("m:1", fabric="ib-z"),))
    assert [split.level for split in torn(one, a=moved)] == ["fabric"]


def test_all_machines_move_together():
    moved = {name: replace(MACHINES[name], rack="r9") for name in ("a", "b")}
    assert torn(gang(keep_within="rack"), **moved) == []


def test_what_nobody_asked_for_may_change():
    assert torn(gang(), b=replace(MACHINES["b"], rack="r7")) == []


def test_one_machine_shares_everything_with_itself():
    assert torn(gang("a", keep_within="rack"), a=replace(MACHINES["a"], rack=None)) == []


def test_a_gang_that_was_apart_before_is_not_told_again():
    assert torn(gang("a", "c", keep_within="rack"), c=replace(MACHINES["c"], rack="r3")) == []
