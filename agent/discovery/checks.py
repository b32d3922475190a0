"""What of a GPU machine's hardware and daemons is present, missing or wrong, and what mends it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from agent.discovery.answers import Failure, GpuAnswer, NvmlAnswer
from agent.discovery.gpu_ward import failure_words, nvlink_domain
from agent.discovery.health import Rule, Sign
from agent.discovery.host import driver_is_open
from agent.discovery.nvml import Code
from agent.discovery.packages import install
from agent.discovery.ports import Port
from agent.discovery.signs import gpu_signs
from agent.discovery.subnet_manager import sminfo_program
from agent.discovery.tree import Tree

Verdict = Literal["ok", "warning", "missing", "wrong"]
"""Fine; works with a drawback; not there though it is needed; there and broken."""

_DMA_BUF_KERNEL = (5, 12)
_COMM_LENGTH = 15  # the kernel keeps so much of a process's name
_CHANNEL = "dev/nvidia-caps-imex-channels/channel0"
_FABRIC_MANAGER, _GPUDIRECT, _IMEX = "fabric manager", "GPUDirect RDMA", "IMEX daemon"
_MODULES = ("updates/dkms", "updates", "extra", "kernel/drivers/video", "kernel/drivers/video/nvidia")
_DAEMON = Rule("suspect", leave=60.0)


@dataclass(frozen=True)
class Check:
    """One line of the table; `fix` is a command or a sentence, empty when nothing is to be done."""

    what: str
    verdict: Verdict
    found: str
    fix: str = ""

    @property
    def failed(self) -> bool:
        return self.verdict in ("missing", "wrong")


@dataclass(frozen=True)
class Facts:
    """What was found, for checks to look at."""

    tree: Tree
    ports: tuple[Port, ...] = ()
    answer: NvmlAnswer | None = None
    """None: the library hasn't answered, `problem` says why."""
    problem: str = ""
    nvidia_devices: int = 0
    """On the PCI bus, whether or not they have a driver."""

    @property
    def gpus(self) -> tuple[GpuAnswer, ...]:
        return self.answer.gpus if self.answer else ()

    @property
    def failure(self) -> Failure | None:
        return self.answer.failure if self.answer else None


def hardware_checks(facts: Facts) -> Iterator[Check]:
    yield _driver(facts)
    yield from _gpus(facts)
    yield from daemon_checks(facts)
    yield from _ports(facts)


def daemon_checks(facts: Facts) -> Iterator[Check]:
    """Those that also count for the machine's health."""
    yield _fabric_manager(facts)
    yield _gpudirect(facts)
    yield from _imex(facts)


def daemon_signs(facts: Facts) -> Iterator[Sign]:
    for check in daemon_checks(facts):
        if check.verdict != "ok":
            yield Sign(check.what, f"{check.what}: {check.found}", _DAEMON)


def _driver(facts: Facts) -> Check:
    if facts.problem:
        return Check("GPU driver", "wrong", facts.problem, "dmesg | grep -i nvrm; a reboot mends most of it")
    if facts.failure is not None:
        return _driver_failure(facts, facts.failure)
    if facts.answer is None:
        if facts.nvidia_devices:
            count = f"{facts.nvidia_devices} NVIDIA GPU{'' if facts.nvidia_devices == 1 else 's'}"
            return Check("GPU driver", "missing", f"{count}, no driver is loaded", _driver_fix(facts.tree))
        return Check("GPU driver", "ok", "this machine has no NVIDIA GPU")
    if facts.answer.problems:
        return Check("GPU driver", "wrong", "; ".join(facts.answer.problems), "dmesg | grep -i nvrm")
    cuda = f", CUDA {facts.answer.cuda_version}" if facts.answer.cuda_version else ""
    return Check("GPU driver", "ok", f"{facts.answer.driver_version}{cuda}")


def _driver_failure(facts: Facts, failure: Failure) -> Check:
    said = failure_words(failure)
    if failure.code == Code.VERSION_MISMATCH:
        return Check("GPU driver", "wrong", said, "reboot")
    if failure.code == Code.DRIVER_NOT_LOADED:
        return Check("GPU driver", "missing", said, _driver_fix(facts.tree))
    if failure.code == Code.LIBRARY_NOT_FOUND:
        return Check("GPU driver", "missing", said, install("nvidia-open"))
    return Check("GPU driver", "wrong", said, "nvidia-smi")


def _driver_fix(tree: Tree) -> str:
    """Its module may be there and not be loaded."""
    release = tree.text("proc/sys/kernel/osrelease") or ""
    names = (name for place in _MODULES for name in tree.names(f"lib/modules/{release}/{place}"))
    return (
        "modprobe nvidia" if any(name.startswith("nvidia.ko") for name in names) else install("nvidia-open")
    )


def _gpus(facts: Facts) -> Iterator[Check]:
    """One line for all that are well, and one for each that isn't."""
    well = 0
    for gpu in facts.gpus:
        said = [sign.evidence for sign in gpu_signs(gpu, None, facts.gpus, ())]
        well += not said
        if said:
            verdict: Verdict = "wrong" if gpu.error else "warning"
            yield Check(f"GPU {gpu.index}", verdict, "; ".join(said), f"nvidia-smi -q -i {gpu.index}")
    if well:
        word = "GPU" if well == 1 else "GPUs"
        split = sum(gpu.mig for gpu in facts.gpus)
        mig = f", {split} in MIG mode: not used as whole GPUs" if split else ""
        yield Check("GPUs", "ok", f"{well} {word} without signs of trouble{mig}")


def _fabric_manager(facts: Facts) -> Check:
    """On machines whose GPUs are connected by NVLink switches, CUDA starts only once it has set them up."""
    waiting = [gpu.index for gpu in facts.gpus if gpu.fabric and gpu.fabric.waits]
    start = "systemctl enable --now nvidia-fabricmanager"
    if waiting:
        return Check(_FABRIC_MANAGER, "wrong", f"GPUs {_listed(waiting)} wait for it", start)
    if not any(name.startswith("nvidia-nvswitch") for name in facts.tree.names("dev")):
        return Check(_FABRIC_MANAGER, "ok", "not needed: no NVLink switches here")
    if not _runs(facts.tree, "nv-fabricmanager"):
        return Check(_FABRIC_MANAGER, "missing", "there are NVLink switches, and it doesn't run", start)
    return Check(_FABRIC_MANAGER, "ok", "runs")


def _gpudirect(facts: Facts) -> Check:
    """Network cards that read and write GPU memory themselves; else all goes through the processor's memory."""
    if not facts.gpus or not facts.ports:
        return Check(_GPUDIRECT, "ok", "not needed: no GPUs with RDMA ports here")
    if facts.tree.exists("sys/module/nvidia_peermem"):
        return Check(_GPUDIRECT, "ok", "by nvidia-peermem")
    if driver_is_open(facts.tree) and _kernel(facts.tree) >= _DMA_BUF_KERNEL:
        return Check(_GPUDIRECT, "ok", "by DMA-BUF")
    return Check(_GPUDIRECT, "warning", "neither nvidia-peermem nor DMA-BUF", "modprobe nvidia-peermem")


def _imex(facts: Facts) -> Iterator[Check]:
    if not any(nvlink_domain(gpu) for gpu in facts.gpus):
        return
    if not _runs(facts.tree, "nvidia-imex"):
        yield Check(
            _IMEX, "missing", "in an NVLink domain, and it doesn't run", "systemctl enable --now nvidia-imex"
        )
    elif not facts.tree.exists(_CHANNEL):
        yield Check(_IMEX, "missing", "runs, and channel 0 isn't there", "nvidia-modprobe -c 0")
    else:
        yield Check(_IMEX, "ok", "runs, channel 0 is there")


def _ports(facts: Facts) -> Iterator[Check]:
    if not facts.ports:
        yield Check("RDMA ports", "ok", "none")
        return
    active = sum(port.active for port in facts.ports)
    rates = ", ".join(
        f"{rate:g} Gb/s" for rate in sorted({port.rate_gbps for port in facts.ports if port.active})
    )
    found = f"{active} of {len(facts.ports)} active" + (f", {rates}" if rates else "")
    yield Check(
        "RDMA ports", "ok" if active else "warning", found, "" if active else "check cables and switches"
    )
    for port in facts.ports:
        if not port.active:
            yield _port_down(port)
    if not any(name.startswith("uverbs") for name in facts.tree.names("dev/infiniband")):
        yield Check("RDMA devices", "missing", "no /dev/infiniband/uverbs*", "modprobe ib_uverbs")
    if any(port.link_layer == "InfiniBand" for port in facts.ports) and sminfo_program() is None:
        found = "sminfo isn't there: which fabric a port is in is guessed"
        yield Check("subnet manager", "warning", found, install("infiniband-diags"))


def _port_down(port: Port) -> Check:
    what, physical = f"port {port.name}", f" ({port.physical_state})" if port.physical_state else ""
    if port.physical_state == "LinkUp" and port.link_layer == "InfiniBand":
        fix = "start a subnet manager in its fabric: on a switch, or opensm on one machine"
        return Check(what, "warning", f"{port.state}: no subnet manager takes care of it", fix)
    fix = (
        f"ip link set {port.netdev} up"
        if port.link_layer == "Ethernet" and port.netdev
        else "check its cable"
    )
    return Check(what, "warning", f"{port.state}{physical}", fix)


def _runs(tree: Tree, program: str) -> bool:
    comm = program[:_COMM_LENGTH]
    return any(tree.text(f"proc/{name}/comm") == comm for name in tree.names("proc") if name.isdecimal())


def _kernel(tree: Tree) -> tuple[int, ...]:
    found = re.match(r"([0-9]+)\.([0-9]+)", tree.text("proc/sys/kernel/osrelease") or "")
    return (int(found[1]), int(found[2])) if found else ()


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
