"""What a machine had to do with the end of an attempt: pure, from the attempt's reason."""

import re
from collections.abc import Mapping
from typing import Any

from runs.reasons import exit_words
from runs.states import Fault

_KINDS = {
    "lost": Fault.LOST,
    "hung": Fault.HUNG,
    "not_prepared": Fault.PREPARE,
    "not_started": Fault.PREPARE,
    "exited": Fault.PROGRAM,
    "probe_failed": Fault.PROGRAM,
    "preflight_failed": Fault.NETWORK,
}
"""By kind of exit. What was stopped, cut off or ran out of time is nobody's fault."""
_DEVICE = re.compile(
    r"uncorrectable|no CUDA-capable device|fallen off the bus|GPU is lost|busy or unavailable|not yet initialized"
    r"|hardware stack error|driver version is insufficient|CUDA error: unknown error",
    re.IGNORECASE,
)
"""Of errors of CUDA those that no program makes: an illegal access or too little memory is its own doing."""
_NETWORK = re.compile(r"\bNCCL WARN\b|\bnccl(?:System|Remote|Internal)Error\b|collective operation timeout")


def fault_of(reason: Mapping[str, Any]) -> Fault | None:
    """Of a reason for which machines are to be avoided; None when they had nothing to do with it."""
    if reason["code"] == "barrier_timeout":
        return Fault.SLOW
    exit_ = reason.get("exit", {})
    kind = _KINDS.get(exit_.get("kind", ""))
    if kind != Fault.PROGRAM or exit_.get("out_of_memory"):
        return kind
    cause = exit_.get("cause", "")
    if _DEVICE.search(cause):
        return Fault.DEVICE
    return Fault.NETWORK if _NETWORK.search(cause) else Fault.PROGRAM


def fault_words(reason: Mapping[str, Any]) -> str:
    """What is told of it on the machine's page; the name of the run stands before it."""
    if "exit" not in reason:
        return str(Fault.SLOW.label)
    return f"{reason['worker']}: {exit_words(reason['exit'], memory_bytes=reason.get('memory_bytes', 0))}"[
        :500
    ]
