"""What a machine has, as its agent finds it: what placement goes by, and the state of it."""

from typing import Annotated, Literal

from pydantic import Field

from wire.machine_facts import CheckReport, Health, HealthEvent, HostReport, SplitGpu
from wire.message import Epoch, Message, Text


class GpuReport(Message):
    index: int = Field(ge=0, lt=1024)
    uuid: Text = Field(min_length=1, max_length=96)
    product: Text = Field(max_length=128)
    memory_bytes: int = Field(ge=0, lt=2**50)
    numa_node: int | None = Field(default=None, ge=-1, lt=2**15)
    nvlink_domain: Text | None = Field(default=None, max_length=80)
    """Cluster UUID and clique of a multi-node NVLink domain; None on machines that have none."""
    health: Health = "healthy"
    evidence: Text = ""
    pci_bus: Text = Field(default="", max_length=32)


class PortReport(Message):
    device: Text = Field(min_length=1, max_length=64)
    port: int = Field(ge=1, le=255)
    link_layer: Literal["InfiniBand", "Ethernet"]
    """Ethernet means RoCE: a plain network card is no RDMA port."""
    state: Text = Field(max_length=32)
    """As sysfs says: ACTIVE, DOWN, INIT, ARMED."""
    rate_gbps: float = Field(ge=0, le=1_000_000)
    subnet_manager: Text | None = Field(default=None, max_length=80)
    """Identity of the fabric: the subnet manager's port GUID, or a guess such as "fe80…/lid 1"."""
    guessed: bool = False
    netdev: Text | None = Field(default=None, max_length=32)
    physical_state: Text = Field(default="", max_length=32)
    """As sysfs says: LinkUp, Disabled, Polling."""
    guid: Text = Field(default="", max_length=40)
    lid: int = Field(default=0, ge=0, lt=2**32)
    sm_lid: int = Field(default=0, ge=0, lt=2**32)
    """0 for both: none was given."""
    subnet_prefix: Text = Field(default="", max_length=40)
    """The upper half of an InfiniBand port's first GID; separate fabrics often share the default one."""
    gids: tuple[Annotated[Text, Field(max_length=64)], ...] = Field(default=(), max_length=64)
    """Of RoCE ports with their kind: "fe80:…:0001 (RoCE v2)"."""
    numa_node: int | None = Field(default=None, ge=-1, lt=2**15)
    health: Health = "healthy"
    evidence: Text = Field(default="", max_length=300)


FoundLabels = Annotated[
    dict[
        Annotated[Text, Field(min_length=1, max_length=253)],
        Annotated[Text, Field(max_length=63)],
    ],
    Field(max_length=64),
]


class Inventory(Message):
    cpu_cores: int = Field(ge=1, le=1_000_000)
    memory_bytes: int = Field(ge=1, lt=2**56)
    gpus: tuple[GpuReport, ...] = Field(default=(), max_length=1024)
    rdma_ports: tuple[PortReport, ...] = Field(default=(), max_length=1024)
    labels: FoundLabels = Field(default_factory=dict)
    """Labels of a simulated machine; a real agent sends none, administrators set them."""
    kernel: Text = ""
    runtime_version: Text = ""
    limits: tuple[Annotated[Text, Field(max_length=500)], ...] = Field(default=(), max_length=32)
    """What the runtime can't enforce on this machine, a sentence each."""
    features: tuple[Annotated[Text, Field(max_length=40)], ...] = Field(default=(), max_length=64)
    """The `Feature`s that this agent carries out, and perhaps newer ones. Older agents send none."""
    host: HostReport = HostReport()
    split_gpus: tuple[SplitGpu, ...] = Field(default=(), max_length=1024)
    """GPUs in MIG mode; they are not among `gpus`."""
    gpus_as_of: Epoch | None = None
    """The GPUs' driver doesn't answer: what is said of GPUs is so old. None: it is current."""
    health: Health = "healthy"
    """Of the machine as a whole: its driver, its daemons. GPUs and ports have their own."""
    evidence: Text = Field(default="", max_length=300)
    health_events: tuple[HealthEvent, ...] = Field(default=(), max_length=64)
    """The newest ones, oldest first; they stay in the list, so that one lost message loses none."""
    checks: tuple[CheckReport, ...] = Field(default=(), max_length=64)
