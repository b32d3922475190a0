"""The machine itself: processors, memory, NUMA nodes, disks, system, driver."""

import re
import subprocess
from collections.abc import Iterator
from typing import Literal

from agent.discovery.tree import Tree
from wire.machine_facts import Disk, HostReport, NumaNode

DRIVER = "proc/driver/nvidia/version"
_SECTOR = 512  # bytes; sysfs counts in these whatever the disk does
_NODE = re.compile(r"node([0-9]{1,5})")
_DISK = re.compile(r"(nvme[0-9]+n[0-9]+|sd[a-z]+|vd[a-z]+|xvd[a-z]+)")
_DRIVER_VERSION = re.compile(r"\b([0-9]{3,4}\.[0-9]+(?:\.[0-9]+)?)\b")
_TOOLKIT_VERSION = re.compile(r"version (\S+)")
_TOOLKITS = ("usr/bin/nvidia-ctk", "usr/bin/nvidia-container-runtime", "usr/local/nvidia/toolkit/nvidia-ctk")


def host_read(tree: Tree, *, cuda_version: str = "", toolkit_version: str = "") -> HostReport:
    return HostReport(
        cpu_product=_cpu_product(tree)[:128],
        sockets=_sockets(tree),
        numa_nodes=tuple(_numa_nodes(tree)),
        disks=tuple(_disks(tree))[:256],
        system=dict(tree.pairs("etc/os-release", "=")).get("PRETTY_NAME", "")[:128],
        driver_version=driver_version(tree),
        cuda_version=cuda_version,
        container_toolkit=toolkit_version,
    )


def driver_version(tree: Tree) -> str:
    """Of the kernel module that is loaded; empty without one."""
    first = (tree.text(DRIVER) or "").partition("\n")[0]
    found = _DRIVER_VERSION.search(first)
    return found[1] if found else ""


def driver_is_open(tree: Tree) -> bool:
    """The open kernel modules lend GPU memory to other devices by DMA-BUF, without nvidia-peermem."""
    return "open kernel module" in (tree.text(DRIVER) or "").lower()


def toolkit_version(tree: Tree) -> str:
    """Of the NVIDIA Container Toolkit; empty when it isn't there. "installed" when it doesn't say."""
    program = next((tree.root / path for path in _TOOLKITS if tree.exists(path)), None)
    if program is None:
        return ""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return "installed"
    found = _TOOLKIT_VERSION.search(done.stdout)
    return found[1][:40] if found else "installed"


def _cpu_product(tree: Tree) -> str:
    """Arm machines name no product in /proc/cpuinfo; their firmware does."""
    named = dict(tree.pairs("proc/cpuinfo")).get("model name")
    return named or tree.text("sys/firmware/devicetree/base/model") or ""


def _sockets(tree: Tree) -> int:
    base = "sys/devices/system/cpu"
    names = (name for name in tree.names(base) if re.fullmatch(r"cpu[0-9]+", name))
    found = {tree.number(f"{base}/{name}/topology/physical_package_id") for name in names}
    return len({number for number in found if number is not None})


def _numa_nodes(tree: Tree) -> Iterator[NumaNode]:
    base = "sys/devices/system/node"
    numbers = sorted(int(found[1]) for name in tree.names(base) if (found := _NODE.fullmatch(name)))
    for number in numbers:
        if number < 2**15:
            cpus = tree.text(f"{base}/node{number}/cpulist") or ""
            yield NumaNode(
                node=number, cpus=cpus[:1000], memory_bytes=_node_memory(tree, f"{base}/node{number}")
            )


def _node_memory(tree: Tree, base: str) -> int:
    found = re.search(r"MemTotal:\s+([0-9]{1,15}) kB", tree.text(f"{base}/meminfo") or "")
    return int(found[1]) * 1024 if found else 0


def _disks(tree: Tree) -> Iterator[Disk]:
    for name in tree.names("sys/block"):
        base = f"sys/block/{name}"
        sectors = tree.number(f"{base}/size")
        if _DISK.fullmatch(name) and sectors and 0 < sectors < 2**52:
            product = (tree.text(f"{base}/device/model") or "")[:128]
            yield Disk(name=name, size_bytes=sectors * _SECTOR, kind=_disk_kind(tree, name), product=product)


def _disk_kind(tree: Tree, name: str) -> Literal["nvme", "ssd", "hdd", "virtual"]:
    if name.startswith("nvme"):
        return "nvme"
    if name.startswith(("vd", "xvd")):
        return "virtual"  # what is behind it only its host knows
    return "hdd" if tree.number(f"sys/block/{name}/queue/rotational") else "ssd"
