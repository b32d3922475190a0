"""Where discovery gets its facts from: this machine, or in tests a recorded one."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agent.discovery.host import DRIVER
from agent.discovery.nvml_process import COMMAND, Deadlines
from agent.discovery.subnet_manager import AskSm, sminfo
from agent.discovery.tree import Tree

_DISPLAY = "0x03"
_NVIDIA = "0x10de"


def boottime() -> float:
    """Seconds since the machine started, sleep included: goes on over agents' restarts, and never back."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Sources:
    tree: Tree = field(default_factory=Tree)
    ask_sm: AskSm = sminfo
    helper: Sequence[str] = COMMAND
    """What asks the GPUs' driver; empty: somebody else tells `Discovery.hear`."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    clock: Callable[[], float] = boottime
    epoch: Callable[[], float] = time.time


def nvidia_devices(tree: Tree) -> int:
    """How many GPUs the PCI bus has, whether or not they have a driver."""
    base = "sys/bus/pci/devices"
    return sum(
        tree.text(f"{base}/{name}/vendor") == _NVIDIA
        and (tree.text(f"{base}/{name}/class") or "").startswith(_DISPLAY)
        for name in tree.names(base)
    )


def driver_loaded(tree: Tree) -> bool:
    return tree.exists(DRIVER)
