"""Clusters, requests and answers as bytes and plain data, so that a decision can be looked at later.

A dumped snapshot is a head of JSON (names, and which arrays follow) and the arrays themselves, byte planes first,
compressed. Loading never runs code from the bytes. The same cluster gives the same bytes.
"""

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from placement.arrays import Longs, read_only
from placement.holdings import Hold
from placement.outcome import Placement, Refusal
from placement.request import GroupRequest, Request, Selection
from placement.snapshot import Snapshot, from_gpu_state
from placement.topology import Fabrics, Ports, Topology, members_of, port_sums_of

VERSION = 1
"""Of everything written here; what another version wrote is refused."""

_MAGIC = b"astraeus-cluster"
_FASTEST, _SMALLEST = 1, 9

_Arrays = Mapping[str, npt.NDArray[Any]]
_Part = TypeVar("_Part", GroupRequest, Request, Selection)

_TABLES = ("names", "pools", "models", "racks", "nvlink_domains", "drive_names")
_ARRAYS = (
    "ids",
    "pool",
    "model",
    "rack",
    "nvlink_domain",
    "labels",
    "drives",
    "cpu_total",
    "memory_total",
    "gpus_total",
    "gpu_memory_min",
    "gpu_index",
    "gpu_id",
    "gpu_model",
    "gpu_memory",
    "gpu_island",
)
"""Fields of `Topology` kept as they are; what follows from the ports is worked out again."""
_PORTS = ("start", "link", "up", "gbps", "fabric")
_FABRICS = ("link", "storage")
_STATE = ("state", "gpu_state", "cpu_free", "memory_free")
"""Fields of `Snapshot` kept; the counts of GPUs follow from `gpu_state`."""


def topology_dump(topology: Topology) -> bytes:
    """The fixed part of a cluster."""
    layouts = [list(names) for names in topology.port_layouts]
    head = {
        **{table: list(getattr(topology, table)) for table in _TABLES},
        "label_pairs": [list(pair) for pair in topology.label_pairs],
        "fabrics": list(topology.fabrics.names),
        "port_layouts": layouts,
    }
    arrays = {
        **{name: getattr(topology, name) for name in _ARRAYS},
        **{f"ports.{name}": getattr(topology.ports, name) for name in _PORTS},
        **{f"fabrics.{name}": getattr(topology.fabrics, name) for name in _FABRICS},
        "port_layout": topology.port_layout,
    }
    return _packed("topology", head, arrays, _SMALLEST)


def topology_load(data: bytes) -> Topology:
    """What `topology_dump` wrote. Raises ValueError for anything else."""
    head, arrays = _unpacked("topology", data)
    layouts = head["port_layouts"]
    names = tuple(name for layout in arrays["port_layout"].tolist() for name in layouts[layout])
    ports = Ports(names=names, **{name: arrays[f"ports.{name}"] for name in _PORTS})
    fabrics = Fabrics(names=tuple(head["fabrics"]), **{name: arrays[f"fabrics.{name}"] for name in _FABRICS})
    parts: dict[str, Any] = {
        **{table: tuple(head[table]) for table in _TABLES},
        **{name: arrays[name] for name in _ARRAYS},
        "label_pairs": tuple((key, value) for key, value in head["label_pairs"]),
        "port_sums": port_sums_of(ports, fabrics),
        "members": members_of(ports, fabrics),
    }
    return Topology(ports=ports, fabrics=fabrics, **parts)


def topology_digest(data: bytes) -> str:
    """Name of a dumped topology: the same bytes, the same name."""
    return hashlib.sha256(data).hexdigest()


def state_dump(snapshot: Snapshot) -> bytes:
    """What changes from pass to pass; says nothing without the topology."""
    return _packed("state", {}, {name: getattr(snapshot, name) for name in _STATE}, _FASTEST)


def snapshot_load(topology: bytes | Topology, state: bytes) -> Snapshot:
    """The snapshot again. A topology that was loaded before may be given as such.

    Raises ValueError when the bytes are not of this version, or not of one cluster.
    """
    fixed = topology if isinstance(topology, Topology) else topology_load(topology)
    arrays = _unpacked("state", state)[1]
    if arrays["gpu_state"].shape != fixed.gpu_index.shape:
        raise ValueError("This state is of another cluster: it has other machines or GPUs than the topology.")
    return from_gpu_state(fixed, **{name: arrays[name] for name in _STATE})


def request_data(request: Request) -> dict[str, Any]:
    """JSON-serialisable; what is at its default is left out."""
    return {"version": VERSION, **_part_data(request)}


def request_of_data(data: Mapping[str, Any]) -> Request:
    """What `request_data` wrote. Raises ValueError for another version or a field that requests do not have."""
    _check_version(data.get("version"), "request")
    given = {name: value for name, value in data.items() if name != "version"}
    groups = tuple(_group_of_data(group) for group in given.pop("groups", ()))
    return _part_of_data(Request, {**given, "groups": groups})


def ranks_data(placement: Placement) -> list[dict[str, Any]]:
    """What each worker of a placement takes, JSON-serialisable: what `Snapshot.held` needs to repeat it."""
    return [
        {
            "machine": rank.machine_name,
            "gpus": list(rank.gpus),
            "cpu_millicores": rank.cpu_millicores,
            "memory_bytes": rank.memory_bytes,
        }
        for rank in placement.ranks
    ]


def hold_of_data(data: Mapping[str, Any]) -> Hold:
    """One item of `ranks_data`."""
    return Hold(data["machine"], tuple(data["gpus"]), data["cpu_millicores"], data["memory_bytes"])


def answer_digest(answer: Placement | Refusal) -> str:
    """Equal for answers that say the same: SHA-256 of the headline as canonical JSON and of every rule's word on every
    machine. A pass that places a thousand runs makes as many: the rows of `as_data` would cost ten times more."""
    text = json.dumps(answer.as_headline(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(text.encode())
    for outcome in answer.outcomes:
        digest.update(outcome.bits.astype("<u4").tobytes())
    return digest.hexdigest()


def _packed(kind: str, head: Mapping[str, Any], arrays: _Arrays, level: int) -> bytes:
    layout = [[name, array.dtype.newbyteorder("<").str, list(array.shape)] for name, array in arrays.items()]
    text = json.dumps({**head, "arrays": layout}, separators=(",", ":")).encode()
    body = b"".join([len(text).to_bytes(8, "little"), text, *(_planes(array) for array in arrays.values())])
    return _prefix(kind) + zlib.compress(body, level)


def _unpacked(kind: str, data: bytes) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    _check_prefix(kind, data)
    try:
        body = zlib.decompress(memoryview(data)[len(_prefix(kind)) :])
    except zlib.error as error:
        raise ValueError(f"A recorded {kind} is damaged: {error}.") from error
    end = 8 + int.from_bytes(body[:8], "little")
    head = json.loads(body[8:end])
    arrays = {}
    for name, dtype, shape in head.pop("arrays"):
        array = _of_planes(body, end, np.dtype(dtype), tuple(shape))
        arrays[name] = read_only(array)
        end += array.nbytes
    return head, arrays


def _prefix(kind: str) -> bytes:
    return _MAGIC + b" %d " % VERSION + kind.encode() + b"\n"


def _check_prefix(kind: str, data: bytes) -> None:
    """Raises ValueError, naming what the bytes are instead."""
    words = bytes(data[:64]).partition(b"\n")[0].split(b" ")
    if len(words) != len((_MAGIC, VERSION, kind)) or words[0] != _MAGIC:
        raise ValueError(f"These bytes are no recorded {kind}.")
    _check_version(int(words[1]) if words[1].isdigit() else None, kind)
    if words[2] != kind.encode():
        raise ValueError(f"These bytes are a recorded {words[2].decode(errors='replace')}, not a {kind}.")


def _check_version(version: object, what: str) -> None:
    if version != VERSION:
        raise ValueError(
            f"A recorded {what} of version {version} cannot be read; this release reads version {VERSION}."
        )


def _planes(array: npt.NDArray[Any]) -> bytes:
    """The array's bytes, all first bytes before all second ones: high bytes hardly differ and compress to nothing."""
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return little.view(np.uint8).reshape(-1, array.dtype.itemsize).T.tobytes()


def _of_planes(body: bytes, start: int, dtype: "np.dtype[Any]", shape: tuple[int, ...]) -> npt.NDArray[Any]:
    count = int(np.prod(shape, dtype=np.int64))
    planes = np.frombuffer(body, dtype=np.uint8, count=count * dtype.itemsize, offset=start)
    flat: Longs = np.ascontiguousarray(planes.reshape(dtype.itemsize, count).T).reshape(-1).view(dtype)
    return flat.reshape(shape)


def _part_data(part: Request | GroupRequest | Selection) -> dict[str, Any]:
    told = ((field, getattr(part, field.name)) for field in fields(part))
    return {field.name: _plain(value) for field, value in told if value != _default(field)}


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, GroupRequest | Selection):
        return _part_data(value)
    if isinstance(value, tuple):
        return [_part_data(group) for group in value]
    return dict(value) if isinstance(value, Mapping) else value


def _group_of_data(data: Mapping[str, Any]) -> GroupRequest:
    selection = _part_of_data(Selection, data.get("selection", {}))
    return _part_of_data(GroupRequest, {**data, "selection": selection})


def _part_of_data(kind: type[_Part], data: Mapping[str, Any]) -> _Part:
    _check_fields(data.keys() - {field.name for field in fields(kind)})
    # The only lists in a request are sets of names.
    made: dict[str, Any] = {
        name: frozenset(value) if isinstance(value, list) else value for name, value in data.items()
    }
    return kind(**made)


def _check_fields(unknown: Iterable[str]) -> None:
    for name in sorted(unknown):
        raise ValueError(
            f"A recorded request has a field {name!r} that requests of this release do not have."
        )
