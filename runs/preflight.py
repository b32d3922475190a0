"""The checks before a gang's start, as its agents get them: fixed when the gang is placed."""

import uuid
from collections.abc import Collection, Mapping
from typing import Any

from machines.models import Machine, RdmaPort
from placement import Placement, Rank
from runs.models import RunAttempt
from wire.assignments import Preflight
from wire.spec import RunDocument

Preflights = Mapping[int, Mapping[str, Any]]
"""Rank → the stored part of `wire.assignments.Preflight`; empty where nothing is checked."""


def preflights_of(
    document: RunDocument, placement: Placement, machines: Mapping[int, Machine], attempt: RunAttempt
) -> Preflights:
    """All members do what any group asks for: a check over half a gang would say nothing of the other half."""
    asked = {group.template.requested_resources.network.effective_preflight for group in document.groups()}
    kind = next((each for each in ("allreduce", "links") if each in asked), None)
    if kind is None:
        return {}
    rates, names = _rates(machines), tuple(machines[rank.machine_id].name for rank in placement.ranks)
    shared = Preflight(
        kind=kind,
        meets=_meets(kind, machines.values()),
        machines=names,
        rank=0,
        address=attempt.leader_address,
        port=attempt.master_port,
        token=uuid.uuid4().hex,
    )
    return {
        rank.rank: shared.model_copy(
            update={"rank": rank.rank, "rdma_ports": _ports(rank, rates)}
        ).model_dump(mode="json")
        for rank in placement.ranks
    }


def _meets(kind: str, machines: Collection[Machine]) -> bool:
    """Whether the members check together. Of machines that only pretend to have links, none is tried."""
    return kind == "allreduce" or (len(machines) > 1 and not all(machine.simulated for machine in machines))


def _rates(machines: Collection[int]) -> dict[tuple[int, str], float]:
    """(Machine id, "mlx5_0:1") → Gb/s."""
    ports = RdmaPort.objects.filter(machine__in=machines).order_by()
    rows = ports.values_list("machine_id", "device", "port", "rate_gbps")
    return {(machine, f"{device}:{port}"): rate for machine, device, port, rate in rows}


def _ports(rank: Rank, rates: Mapping[tuple[int, str], float]) -> dict[str, float]:
    return {name: rates.get((rank.machine_id, name), 0.0) for name in rank.ports}
