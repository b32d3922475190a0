"""Which device nodes of this machine a worker gets."""

from collections.abc import Collection, Iterator
from pathlib import Path

_NVIDIA_COMMON = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
IMEX_CHANNEL = "nvidia-caps-imex-channels/channel0"


def device_nodes(
    *, gpu_uuids: Collection[str], rdma: bool, imex: bool, root: Path = Path("/")
) -> tuple[str, ...]:
    """Paths of the nodes that exist, as they are called on the machine. `root` stands for / in tests."""
    names: list[str] = []
    if gpu_uuids:
        minors = _nvidia_minors(root)
        names += [f"nvidia{minors[uuid]}" for uuid in gpu_uuids if uuid in minors]
        names += _NVIDIA_COMMON
    if imex:
        names.append(IMEX_CHANNEL)
    if rdma:
        names += sorted(f"infiniband/{node.name}" for node in (root / "dev/infiniband").glob("*"))
    return tuple(f"/dev/{name}" for name in names if (root / "dev" / name).exists())


def _nvidia_minors(root: Path) -> dict[str, int]:
    """GPU UUID -> number of its node /dev/nvidia<n>, as the driver tells it in /proc."""
    return dict(_facts(path) for path in (root / "proc/driver/nvidia/gpus").glob("*/information"))


def _facts(path: Path) -> tuple[str, int]:
    facts = dict(_pairs(path.read_text()))
    return facts.get("GPU UUID", ""), int(facts.get("Device Minor", "-1"))


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        key, _, value = line.partition(":")
        yield key.strip(), value.strip()
