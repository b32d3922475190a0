"""`inventory`: what would be told to the console of this machine, looked up anew."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from agent.check import machine_checks
from agent.daemon import boot_id_read
from agent.discovery.machine import Discovery
from agent.discovery.nvml_process import ask_once
from agent.discovery.sources import Sources, driver_loaded, nvidia_devices
from agent.discovery.tree_recorded import TreeRecorder
from agent.inventory import discovered_inventory, real_inventory
from wire.gpu_models import short_model
from wire.inventory import GpuReport, Inventory, PortReport

_GIB = 1 << 30


def inventory_now(record: Path | None) -> Inventory:
    """`record`: a directory that gets what the driver answered (nvml.json) and the files that were read (tree.json):
    together they drive a test. Raises OSError when it can't be written."""
    tree = TreeRecorder()
    if record is not None:
        record.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as state:
        sources = Sources(tree=tree, helper=())
        discovery = Discovery(Path(state), boot_id_read(), check=machine_checks, sources=sources)
        if driver_loaded(tree) or nvidia_devices(tree):
            discovery.hear(ask_once(record=record / "nvml.json" if record else None))
        discovery.look()
        found = discovery.look()  # now with the checks, which wait for everything else
    if record is not None:
        (record / "tree.json").write_text(tree.text_of_all())
    return discovered_inventory(real_inventory("", ()), found)


def inventory_text(inventory: Inventory) -> str:
    return "\n".join(_lines(inventory))


def _lines(inventory: Inventory) -> Iterator[str]:
    host = inventory.host
    yield f"system     {host.system}, kernel {inventory.kernel}"
    yield f"processor  {inventory.cpu_cores} threads, {host.sockets or 1} × {host.cpu_product or 'unknown'}"
    yield f"memory     {inventory.memory_bytes / _GIB:.0f} GiB, {len(host.numa_nodes) or 1} NUMA nodes"
    if host.driver_version:
        yield f"driver     {host.driver_version}, CUDA {host.cuda_version or 'unknown'}"
    for disk in host.disks:
        yield f"disk       {disk.name}: {disk.size_bytes / _GIB:.0f} GiB, {disk.kind} {disk.product}".rstrip()
    yield from map(_gpu_line, inventory.gpus)
    for split in inventory.split_gpus:
        yield f"GPU {split.index}      {short_model(split.product)} in MIG mode, {len(split.instances)} instances"
    yield from map(_port_line, inventory.rdma_ports)
    yield from (f"limit      {limit}" for limit in inventory.limits)
    yield f"health     {_health(inventory.health, inventory.evidence)}"


def _gpu_line(gpu: GpuReport) -> str:
    domain = f", NVLink domain {gpu.nvlink_domain}" if gpu.nvlink_domain else ""
    memory = f"{gpu.memory_bytes / _GIB:.0f} GiB"
    what = f"{short_model(gpu.product)} ({gpu.product}), {memory}, {gpu.pci_bus}, {gpu.uuid}{domain}"
    return f"GPU {gpu.index}      {what}: {_health(gpu.health, gpu.evidence)}"


def _port_line(port: PortReport) -> str:
    manager = f", subnet manager {port.subnet_manager}" if port.subnet_manager else ""
    guess = " (guessed)" if port.guessed else ""
    what = (
        f"{port.device}:{port.port} {port.link_layer} {port.state}, {port.rate_gbps:g} Gb/s{manager}{guess}"
    )
    return f"RDMA port  {what}: {_health(port.health, port.evidence)}"


def _health(health: str, evidence: str) -> str:
    return f"{health}, {evidence}" if evidence else health
