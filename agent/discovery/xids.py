"""What the driver's error numbers mean for a GPU.

Source: NVIDIA's catalog, https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, by its "immediate
action": what wants the GPU reset or the machine restarted is a fault; what wants only the program restarted is the
program's; what it says to ignore, and has no consequence, is nothing. All others are signs. Where we differ, and why:

* 32 is mostly the PCIe link's quality, as the catalog says itself, and 94 leaves memory that a reset must mend: signs.
* 109 wants a reset, but a program can cause it, and NVIDIA's device plugin for Kubernetes passes over it
  (https://github.com/NVIDIA/k8s-device-plugin, DP_DISABLE_HEALTHCHECKS): a sign.
* 155 wants a reset, but links that are put to sleep on purpose cause it too: a sign.
* 63, 92 and 157 are to be ignored, and tell of memory that gets worse: signs.
* 48 has a workflow of its own, all ways of which reset the GPU: a fault. 171 and 172 only come along with it.
"""

from typing import Literal

Meaning = Literal["fault", "sign", "program", "nothing"]
"""The GPU is out of order; there may be something; a program did something wrong; it has no consequence."""

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
    136: "NVLink training failed",
    140: "unrecovered ECC error",
    143: "it can't be initialized",
    156: "a defective part is retired by a reset",
    158: "fatal time-out",
}
_SIGNS = {
    32: "commands arrive damaged: mostly its PCIe link",
    54: "its auxiliary power is not connected",
    61: "its micro-controller has stopped at a breakpoint",
    63: "a memory row is to be remapped",
    74: "NVLink error",
    92: "many corrected ECC errors",
    94: "contained memory error",
    109: "context switch time-out",
    144: "NVLink error (SAW)",
    145: "NVLink error (RLW)",
    146: "NVLink error (TLW)",
    147: "NVLink error (TREX)",
    148: "NVLink error (NVLPW_CTRL)",
    149: "NVLink error (NETIR)",
    150: "NVLink error (MSE)",
    154: "the driver asks for a recovery",
    155: "NVLink error (software)",
    157: "a defective part can't be retired",
    159: "error on the link to the processor (CHI)",
    163: "its power smoothing was switched off",
    164: "its power smoothing wears out",
    165: "its power smoothing is worn out",
    167: "fatal time-out on PCIe",
    168: "it has less memory: errors in a protected region",
    169: "its security processor (SEC2) has halted",
    171: "uncorrectable error in its memory",
    172: "uncorrectable error in its on-chip memory",
}
_PROGRAMS = {
    8: "time-out of a program",
    11: "invalid commands of a program",
    13: "exception in a program's kernel",
    25: "invalid commands of a program",
    31: "invalid memory access of a program",
    43: "a program was stopped",
    45: "a program was cleaned up after",
    60: "exception in video processing",
    69: "exception of the graphics engine",
    80: "damaged commands of a program",
    137: "invalid NVLink access of a program",
}
_COPYING = frozenset({39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)})
"""Exceptions of its copy engines."""
_MEDIA = frozenset({68, 82, 83, 84, 86, 88, 89, *range(96, 106), 139})
"""Exceptions of its engines for video, pictures and optical flow."""
_NOTHING = frozenset({14, 37, 38, 44, 66, 67, 93, 106, 107, 108, 121, 141, 152, 153, 160, 161, 162})
"""Tests, corrected errors, and what the driver gets over by itself."""


def meaning(number: int) -> tuple[Meaning, str]:
    """With words for people; numbers that aren't in the tables may mean something."""
    if number in _FAULTS:
        return "fault", _FAULTS[number]
    if number in _PROGRAMS:
        return "program", _PROGRAMS[number]
    if number in _COPYING:
        return "program", "exception in copying"
    if number in _MEDIA:
        return "program", "exception in video, pictures or optical flow"
    if number in _NOTHING:
        return "nothing", "of no consequence"
    return "sign", _SIGNS.get(number, "an error of the driver")
