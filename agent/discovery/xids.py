"""What the driver's error numbers mean for a GPU.

Source: NVIDIA's catalog, https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, by its "immediate
action": what wants the GPU reset, the machine restarted or the vendor is a fault of the hardware; what wants only the
program restarted is the program's. NVIDIA's device plugin for Kubernetes passes over the same program's errors
(https://github.com/NVIDIA/k8s-device-plugin#configuration-option-details, DP_DISABLE_HEALTHCHECKS).
"""

from typing import Literal

Meaning = Literal["fault", "sign", "program"]
"""The GPU is out of order; there may be something; a program did something wrong."""

_FAULTS = {
    46: "it stopped processing",
    48: "double bit ECC error",
    62: "its micro-controller has halted",
    64: "a memory row can't be remapped",
    79: "it has fallen off the bus",
    95: "uncontained memory error",
    110: "security fault",
    119: "its system processor (GSP) doesn't answer",
    120: "its system processor (GSP) has failed",
    123: "its power management doesn't answer",
    136: "NVLink training failed",
    140: "unrecovered ECC error",
    143: "it can't be initialized",
    157: "a defective part can't be retired",
    158: "fatal time-out",
}
_SIGNS = {
    61: "its micro-controller has stopped at a breakpoint",
    63: "a memory row is to be remapped",
    74: "NVLink error",
    92: "many corrected ECC errors",
    94: "contained memory error",
    121: "error on the link to the processor (C2C)",
    144: "NVLink error (SAW)",
    145: "NVLink error (RLW)",
    146: "NVLink error (TLW)",
    147: "NVLink error (TREX)",
    148: "NVLink error (NVLPW_CTRL)",
    149: "NVLink error (NETIR)",
    150: "NVLink error (MSE)",
    154: "the driver asks for a recovery",
    155: "NVLink error (software)",
    156: "a defective part was retired",
}
_PROGRAMS = {
    8: "time-out of a program",
    13: "exception in a program's kernel",
    31: "invalid memory access of a program",
    32: "invalid command of a program",
    43: "a program was stopped",
    45: "a program was cleaned up after",
    68: "exception in video decoding",
    69: "exception of the graphics engine",
    109: "context switch time-out",
    137: "invalid NVLink access of a program",
}


def meaning(number: int) -> tuple[Meaning, str]:
    """With words for people; numbers that aren't in the table may mean something."""
    if number in _FAULTS:
        return "fault", _FAULTS[number]
    if number in _PROGRAMS:
        return "program", _PROGRAMS[number]
    return "sign", _SIGNS.get(number, "an error of the driver")
