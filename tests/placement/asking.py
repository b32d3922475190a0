"""The requests that the drawn tests ask, and how they read the answers."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from placement import (
    GroupRequest,
    Impossible,
    Placement,
    Refusal,
    Request,
    Snapshot,
    build_snapshot,
    place,
    possible_ever,
    words,
)
from tests.placement.drawing import machines

GIB = 1 << 30

REFERENCE = GroupRequest(
    gpus=16,
    machines=2,
    models=frozenset({"H100"}),
    healthy_only=True,
    cpu_millicores_per_gpu=12_000,
    memory_bytes_per_gpu=100 * GIB,
    interconnect="infiniband",
    min_gbps=400,
    keep_within="fabric",
)
"""The request of the user guide's run.json."""


def reference(**changes: Any) -> Request:
    """The user guide's request with some fields changed."""
    return Request((replace(REFERENCE, **changes),))


def plain(**fields: Any) -> Request:
    """A request of one group that asks for nothing but what is given."""
    return Request((GroupRequest(**fields),))


def snapshot_of(drawing: str, storage: Collection[str] = ()) -> Snapshot:
    return build_snapshot(machines(drawing), storage_fabrics=storage)


def placed_on(snapshot: Snapshot, request: Request) -> Placement:
    answer = place(snapshot, request)
    assert isinstance(answer, Placement), words.headline(answer.as_data())
    return answer


def refused_on(snapshot: Snapshot, request: Request) -> Refusal:
    answer = place(snapshot, request)
    assert isinstance(answer, Refusal), words.placement_sentence(answer.as_data())
    return answer


def never(snapshot: Snapshot, request: Request) -> Impossible:
    answer = possible_ever(snapshot, request)
    assert isinstance(answer, Impossible), words.placement_sentence(answer.as_data())
    return answer


def placed(drawing: str, request: Request, storage: Collection[str] = ()) -> Placement:
    return placed_on(snapshot_of(drawing, storage), request)


def refused(drawing: str, request: Request, storage: Collection[str] = ()) -> Refusal:
    return refused_on(snapshot_of(drawing, storage), request)


def where(answer: Placement) -> list[str]:
    """Machines in rank order."""
    return [rank.machine_name for rank in answer.ranks]


def gpus(answer: Placement) -> dict[str, tuple[int, ...]]:
    return {rank.machine_name: rank.gpus for rank in answer.ranks}


def headline(drawing: str, request: Request, storage: Collection[str] = ()) -> str:
    return words.headline(refused(drawing, request, storage).as_data())


def reasons(
    drawing: str, request: Request, storage: Collection[str] = (), holders: Collection[str] = ()
) -> dict[str, str]:
    """Machine name → its sentence, in the order in which the page lists machines."""
    data = place(snapshot_of(drawing, storage), request).as_data()
    part = data if data["kind"] == "refusal" else data["groups"][0]
    return {
        name: words.machine_sentence(row, part["asked"], holders)
        for row in part["rows"]
        for name in row["machines"]
    }
