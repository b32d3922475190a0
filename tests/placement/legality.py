"""Does a placement keep every rule? Asked of the facts and the request, the naive way."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from tests.placement.reference import ACCEPTED, Reference
from tests.placement.reference_rules import INFINIBAND, LINKS, ROCE

if TYPE_CHECKING:
    from placement import GpuFacts, GroupPlacement, GroupRequest, MachineFacts, Placement, Rank, Request

SEVERAL = {
    "nvlink_domain": "nvlink",
    "ib_rack": "infiniband",
    "ib_fabric": "infiniband",
    "roce_rack": "roce",
    "roce": "roce",
    "ethernet": "ethernet",
}
"""Verdict → what NCCL is told to use between several machines."""


def assert_legal(
    machines: "Iterable[MachineFacts]",
    request: "Request",
    placement: "Placement",
    storage: frozenset[str] = frozenset(),
) -> None:
    naive = Reference(machines, request, storage)
    names = [rank.machine_name for rank in placement.ranks]
    assert len(set(names)) == len(names), "two workers on one machine"
    assert [rank.rank for rank in placement.ranks] == list(range(len(names)))
    assert len(placement.groups) == len(request.groups)
    assert placement.verdict == max(group.verdict for group in placement.groups)
    for number, (group, asked) in enumerate(zip(placement.groups, request.groups, strict=True)):
        assert group.name == asked.name
        assert {rank.group for rank in group.ranks} == {number}
        _assert_group(naive, group, asked)


def _assert_group(naive: Reference, group: "GroupPlacement", asked: "GroupRequest") -> None:
    by_name = {one.name: one for one in naive.machines}
    members = [by_name[rank.machine_name] for rank in group.ranks]
    count, split = group.shape.machines, group.shape.gpus
    assert (count, split) in naive.shapes(asked)
    assert len(members) == count
    assert sum(len(rank.gpus) for rank in group.ranks) == asked.gpus
    seats = [naive.seat(one, asked, split) for one in members]
    assert group.verdict.code in naive.verdicts(seats, asked)
    assert group.verdict.code in ACCEPTED[asked.interconnect]
    assert group.rack == _shared(seat.rack for seat in seats)
    assert group.nvlink_domain == _shared(seat.nvlink_domain for seat in seats)
    assert group.transport == _transport(group, asked)
    _assert_neighbours(naive, members)
    for rank, one in zip(group.ranks, members, strict=True):
        assert not naive.failed(one, asked, count, split)
        _assert_worker(naive, one, asked, rank, group)


def _shared(places: Iterable[str | None]) -> str | None:
    different = set(places)
    return different.pop() if len(different) == 1 else None


def _transport(group: "GroupPlacement", asked: "GroupRequest") -> str:
    """On one machine what was asked for: RDMA by the fabric chosen, which `_assert_worker` checks."""
    if group.verdict.code != "one_machine":
        return SEVERAL[group.verdict.code]
    if asked.interconnect in LINKS:
        assert group.transport in ("infiniband", "roce")
        return group.transport
    return "ethernet" if asked.interconnect == "ethernet" else "none"


def _assert_neighbours(naive: Reference, members: "Sequence[MachineFacts]") -> None:
    """Workers on one fabric, and in one rack of it, follow each other; the largest such set begins."""
    homes = [naive.home(one) for one in members]
    racks = [(naive.home(one), one.rack or (one.name,)) for one in members]
    for places in (homes, racks):
        runs = [place for place, _ in groupby(places)]
        assert len(runs) == len(set(runs)), "neighbours are parted"
    assert homes.count(homes[0]) == max(map(homes.count, homes))
    at_home = [place for place in racks if place[0] == homes[0]]
    assert racks.count(racks[0]) == max(map(at_home.count, at_home))


def _assert_worker(
    naive: Reference, one: "MachineFacts", asked: "GroupRequest", rank: "Rank", group: "GroupPlacement"
) -> None:
    split = group.shape.gpus
    by_index = {gpu.index: gpu for gpu in one.gpus}
    chosen = [by_index[index] for index in rank.gpus]
    assert rank.machine_id == one.id
    assert list(rank.gpus) == sorted(set(rank.gpus))
    assert len(chosen) == split
    assert rank.gpu_ids == tuple(gpu.id for gpu in chosen)
    _assert_gpus(naive.right_gpus(one, asked), chosen)
    assert rank.cpu_millicores == naive.cores(one, asked, split)
    assert rank.memory_bytes == naive.memory(one, asked, split)
    assert rank.ports == _ports(naive, one, asked, group)


def _assert_gpus(right: "Sequence[GpuFacts]", chosen: "Sequence[GpuFacts]") -> None:
    """Free, sound, of the kind asked for; suspects last; healthy ones from as few NVLink islands as possible."""
    assert all(gpu in right and not gpu.held and not gpu.faulty for gpu in chosen)
    healthy = [gpu for gpu in right if not (gpu.held or gpu.faulty or gpu.suspect)]
    assert sum(gpu.suspect for gpu in chosen) == max(0, len(chosen) - len(healthy))
    if len(healthy) >= len(chosen):
        sizes = sorted(
            (len(list(inside)) for _, inside in groupby(sorted(map(_island, healthy)))), reverse=True
        )
        fewest = next(number for number in range(len(sizes) + 1) if sum(sizes[:number]) >= len(chosen))
        assert len(set(map(_island, chosen))) == fewest


def _island(gpu: "GpuFacts") -> tuple[int, int]:
    return (0, gpu.island) if gpu.island >= 0 else (1, gpu.numa)


def _ports(
    naive: Reference, one: "MachineFacts", asked: "GroupRequest", group: "GroupPlacement"
) -> tuple[str, ...]:
    """For NCCL_IB_HCA: on the fabric of the placement, up, fast enough; without min_gbps the fastest class."""
    if group.transport not in ("infiniband", "roce"):
        assert group.fabric is None
        return ()
    assert group.fabric or asked.keep_within != "fabric", "kept within a network that is no fabric"
    link = INFINIBAND if group.transport == "infiniband" else ROCE
    good = [
        port for port in naive.good_ports(one, asked, [link]) if naive.fabric_of(port) == (link, group.fabric)
    ]
    assert good, "a member without a port on the fabric"
    fastest = max(port.gbps for port in good)
    return tuple(port.name for port in good if asked.min_gbps or port.gbps == fastest)
