"""`requested_resources`: GPUs, cores, memory, network and place of one group of workers."""

from typing import Annotated, Final, Literal

from pydantic import Field

from wire.names import check_line
from wire.quantities import GIB, MIB
from wire.spec.base import LabelKey, LabelValue, MachineName, Part, Slug, checked
from wire.spec.shapes import MAX_GPUS, MAX_MACHINES, Shape, candidate_shapes, default_max_nodes

MAX_CORES: Final = 4096
MAX_MEMORY: Final = 2**50
MAX_PATIENCE: Final = 7 * 86_400
DEFAULT_CORES: Final = 1
DEFAULT_MEMORY: Final = 2 * GIB

Interconnect = Literal["any", "ethernet", "rdma", "infiniband", "nvlink"]
Preflight = Literal["none", "links", "allreduce"]
KeepWithin = Literal["nvlink_domain", "rack", "fabric"]
Spread = Literal["machine", "rack", "fabric"]
SelectionMode = Literal["Any", "Pools", "Machines", "Labels"]

Model = Annotated[str, Field(max_length=64), checked("bad_text", check_line)]


class GpuRequests(Part):
    """Which GPUs, and how many in the whole group."""

    count: int = Field(
        ge=1,
        le=MAX_GPUS,
        title="GPUs",
        description="GPUs of the whole group, split evenly over its machines. A run without GPUs leaves "
        "`gpu_requests` out.",
    )
    models: tuple[Model, ...] = Field(
        default=(),
        strict=False,
        max_length=32,
        title="GPU models",
        description="Any of these, by the product's short name: `H100` is every H100, never a GH200. Empty: "
        "any model.",
    )
    healthy_only: bool = Field(
        default=False,
        title="Only healthy GPUs",
        description="Never a GPU showing signs of a coming fault. Otherwise such GPUs are used last.",
    )
    min_per_machine: int | None = Field(
        default=None,
        ge=1,
        le=MAX_GPUS,
        title="GPUs per machine at least",
        description="The smallest slice: Astraeus never chooses a split with fewer GPUs than this on one "
        "machine.",
    )
    min_memory_bytes: int | None = Field(
        default=None,
        ge=MIB,
        le=MAX_MEMORY,
        title="GPU memory at least",
        description="Only GPUs with at least so many bytes of memory of their own.",
    )


class PerGpu(Part):
    """Cores and memory that come with each GPU; a worker's follow the shape chosen."""

    cpu_cores: int = Field(ge=1, le=MAX_CORES, title="Cores per GPU", description="CPU cores with each GPU.")
    memory_bytes: int = Field(
        ge=MIB, le=MAX_MEMORY, title="Memory per GPU", description="Bytes of main memory with each GPU."
    )


class Network(Part):
    """What must lie between the workers."""

    interconnect: Interconnect = Field(
        default="any",
        title="Network between workers",
        description="`any`: the best there is. `ethernet`. `rdma`: InfiniBand or RoCE, never plain Ethernet. "
        "`infiniband`: one InfiniBand fabric. `nvlink`: one machine or one NVLink domain.",
    )
    min_gbps: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        title="RDMA port speed at least",
        description="Ports slower than so many Gb/s don't count. With `any` it only decides which ports NCCL "
        "gets.",
    )
    preflight: Preflight | None = Field(
        default=None,
        title="Checks before the start",
        description="`links`: libraries, devices, ports and the leader's address are checked on every "
        "machine before the "
        "worker is ready; the default when an interconnect is asked for. `allreduce`: also a short "
        "all-reduce over the "
        "machines. `none`: no check.",
    )

    @property
    def effective_preflight(self) -> Preflight:
        """The checks that will run, the default applied."""
        if self.preflight is not None:
            return self.preflight
        return "none" if self.interconnect == "any" else "links"


class Topology(Part):
    """Where the workers may be relative to each other, and how long to wait for a better place."""

    keep_within: KeepWithin | None = Field(
        default=None,
        title="Never leave",
        description="All workers in one NVLink domain, one rack or on one InfiniBand fabric, or the run "
        "waits.",
    )
    spread: Spread | None = Field(
        default=None,
        title="Spread",
        description="Each worker in another rack (or fabric). For replicas that must not fail together, not "
        "for training.",
    )
    patience_seconds: int = Field(
        default=0,
        ge=0,
        le=MAX_PATIENCE,
        title="Wait for a better network",
        description="Wait up to so long for a tighter placement than the one free now. It never relaxes a "
        "rule.",
    )
    min_nodes: int | None = Field(
        default=None,
        ge=1,
        le=MAX_MACHINES,
        title="Machines at least",
        description="The lower end of a range of machines, one worker on each, instead of `machines`.",
    )
    max_nodes: int | None = Field(
        default=None,
        ge=1,
        le=MAX_MACHINES,
        title="Machines at most",
        description="The upper end of the range. The GPUs must split evenly over the number chosen.",
    )


class NodeSelection(Part):
    """Which machines may be used at all."""

    mode: SelectionMode = Field(
        default="Any",
        title="Machines to choose from",
        description="`Any`: all of the workspace's pools. `Pools`, `Machines`: those named. `Labels`: those "
        "with the labels.",
    )
    pools: tuple[Slug, ...] = Field(
        default=(), strict=False, max_length=256, title="Pools", description="With mode `Pools`: their names."
    )
    machines: tuple[MachineName, ...] = Field(
        default=(),
        strict=False,
        max_length=MAX_MACHINES,
        title="Machines by name",
        description="With mode `Machines`: their names.",
    )
    match_labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict,
        max_length=64,
        title="Labels",
        description="With mode `Labels`: a machine must have every one of these labels with this value.",
    )
    exclude_machines: tuple[MachineName, ...] = Field(
        default=(),
        strict=False,
        max_length=MAX_MACHINES,
        title="Machines to leave out",
        description="Never these machines, in every mode.",
    )


class RequestedResources(Part):
    """What one group of workers needs; an empty object is one worker with 1 core and 2 GiB."""

    gpu_requests: GpuRequests | None = Field(
        default=None, title="GPUs", description="Leave it out for a run without GPUs."
    )
    machines: int | None = Field(
        default=None,
        ge=1,
        le=MAX_MACHINES,
        title="Machines exactly",
        description="Exactly so many machines, one worker on each; the GPUs must split evenly over them. "
        "Without it (and without a range) Astraeus chooses.",
    )
    per_gpu: PerGpu | None = Field(
        default=None,
        title="With each GPU",
        description="Cores and memory with each GPU, instead of `cpu_cores` and `memory_bytes`. Neither "
        "given: the GPUs' "
        "share of the machine.",
    )
    cpu_cores: int | None = Field(
        default=None,
        ge=1,
        le=MAX_CORES,
        title="Cores per worker",
        description="CPU cores of each worker. 1 in a run without GPUs.",
    )
    memory_bytes: int | None = Field(
        default=None,
        ge=MIB,
        le=MAX_MEMORY,
        title="Memory per worker",
        description="Bytes of main memory of each worker; more than this and it is killed. 2 GiB in a run "
        "without GPUs.",
    )
    network: Network = Field(
        default_factory=Network, title="Network", description="What must lie between the workers."
    )
    topology: Topology = Field(
        default_factory=Topology,
        title="Topology",
        description="Where the workers may be relative to each other; a range of machines.",
    )
    node_selection: NodeSelection = Field(
        default_factory=NodeSelection,
        title="Which machines",
        description="Which machines may be used at all.",
    )

    @property
    def gpu_count(self) -> int:
        """GPUs of the whole group; 0 without `gpu_requests`."""
        return self.gpu_requests.count if self.gpu_requests else 0

    def shapes(self) -> tuple[Shape, ...]:
        """Every split that the request allows, fewest machines first; never empty in a valid document."""
        return candidate_shapes(
            self.gpu_count,
            machines=self.machines,
            min_nodes=self.topology.min_nodes,
            max_nodes=self.topology.max_nodes,
            min_per_machine=(self.gpu_requests.min_per_machine or 1) if self.gpu_requests else 1,
        )

    def amounts(self, shape: Shape) -> tuple[int, int] | None:
        """(cores, bytes of memory) of each worker of `shape`; None: the GPUs' share of the machine."""
        if self.per_gpu is not None:
            gpus = shape.gpus_per_machine
            return self.per_gpu.cpu_cores * gpus, self.per_gpu.memory_bytes * gpus
        if self.cpu_cores is None and self.memory_bytes is None and self.gpu_count:
            return None
        return self.cpu_cores or DEFAULT_CORES, self.memory_bytes or DEFAULT_MEMORY

    def filled(self) -> "RequestedResources":
        """The same request with every default that depends on other fields written out."""
        network = self.network.model_copy(update={"preflight": self.network.effective_preflight})
        changes: dict[str, object] = {"network": network, "topology": self._filled_topology()}
        if not self.gpu_count:
            cores, memory = self.amounts(Shape(1, 0)) or (DEFAULT_CORES, DEFAULT_MEMORY)
            changes |= {"cpu_cores": cores, "memory_bytes": memory}
        return self.model_copy(update=changes)

    def _filled_topology(self) -> Topology:
        topology = self.topology
        if topology.min_nodes is None and topology.max_nodes is None:
            return topology
        return topology.model_copy(
            update={
                "min_nodes": topology.min_nodes or 1,
                "max_nodes": topology.max_nodes or default_max_nodes(self.gpu_count),
            }
        )
