"""What an agent finds on its machine beyond what placement needs: part of `wire.inventory.Inventory`."""

from typing import Literal

from pydantic import Field

from wire.message import Epoch, Message, Text

Health = Literal["healthy", "suspect", "faulty"]


class NumaNode(Message):
    node: int = Field(ge=0, lt=2**15)
    cpus: Text = Field(default="", max_length=1000)
    """As the kernel writes it: "0-47,96-143"; empty for a node that has memory only."""
    memory_bytes: int = Field(default=0, ge=0, lt=2**56)


class Disk(Message):
    name: Text = Field(min_length=1, max_length=64)
    size_bytes: int = Field(ge=0, lt=2**62)
    kind: Literal["nvme", "ssd", "hdd", "virtual"]
    product: Text = Field(default="", max_length=128)


class HostReport(Message):
    """The machine without its GPUs and ports. Empty: not known, or not there."""

    cpu_product: Text = Field(default="", max_length=128)
    sockets: int = Field(default=0, ge=0, le=4096)
    numa_nodes: tuple[NumaNode, ...] = Field(default=(), max_length=1024)
    disks: tuple[Disk, ...] = Field(default=(), max_length=256)
    system: Text = Field(default="", max_length=128)
    """The distribution, such as "Ubuntu 24.04.1 LTS"."""
    driver_version: Text = Field(default="", max_length=40)
    """Of the GPUs' kernel driver."""
    cuda_version: Text = Field(default="", max_length=20)
    """The newest CUDA that this driver runs."""
    container_toolkit: Text = Field(default="", max_length=40)


class GpuInstance(Message):
    """A slice of a GPU in MIG mode."""

    uuid: Text = Field(min_length=1, max_length=96)
    product: Text = Field(max_length=128)
    memory_bytes: int = Field(default=0, ge=0, lt=2**50)


class SplitGpu(Message):
    """A GPU in MIG mode: shown, and never placed as a whole GPU."""

    index: int = Field(ge=0, lt=1024)
    uuid: Text = Field(min_length=1, max_length=96)
    product: Text = Field(max_length=128)
    memory_bytes: int = Field(ge=0, lt=2**50)
    pci_bus: Text = Field(default="", max_length=32)
    instances: tuple[GpuInstance, ...] = Field(default=(), max_length=64)


class HealthEvent(Message):
    """The health of a GPU, a port or the machine has changed."""

    id: Text = Field(min_length=1, max_length=40)
    """Never used twice: the console stores each event once, however often it is reported."""
    at: Epoch
    subject: Text = Field(min_length=1, max_length=100)
    """"machine", "driver" (of its GPUs), "gpu <UUID>" or "port <device>:<port>"."""
    name: Text = Field(max_length=100)
    """For people: "GPU 3", "mlx5_0:1", "this machine"."""
    was: Health
    health: Health
    evidence: Text = Field(default="", max_length=300)


class CheckReport(Message):
    """One line of `astraeus-agent check`."""

    what: Text = Field(max_length=40)
    verdict: Literal["ok", "warning", "missing", "wrong"]
    found: Text = Field(default="", max_length=500)
    fix: Text = Field(default="", max_length=500)
    """A command or a sentence; empty when nothing is to be done."""
