"""What the worker will find where it runs: RDMA libraries and devices, GPU devices, shared and locked memory."""

from __future__ import annotations

import ctypes
import os
import re
import resource
from collections.abc import Sequence
from pathlib import Path

from agent.preflight.within.answers import Json, failed, passed

_IPC_LOCK = 14
_SHM, _SHM_SHARE = "/dev/shm", 0.9  # noqa: S108 - it is looked at, nothing is written


def look(job: Json) -> Json:
    flaws = [*rdma_flaws(job["rdma_devices"]), *gpu_flaws(job["gpus"]), *shm_flaws(job["shm_bytes"])]
    if flaws:
        return failed("; ".join(flaws), [])
    found = ["libibverbs opens " + ", ".join(job["rdma_devices"])] if job["rdma_devices"] else []
    found += [f"{job['gpus']} GPU devices"] if job["gpus"] else []
    return passed(", ".join(found))


def rdma_flaws(devices: Sequence[str]) -> list[str]:
    if not devices:
        return []
    try:
        verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
    except OSError:
        return ["the image has no libibverbs; use one with the RDMA libraries, such as NVIDIA's NGC images"]
    names = verbs_devices(verbs)
    flaws = [
        f"libibverbs can't open {device}: {names.get(device, 'it has no device or no provider for it')}"
        for device in devices
        if names.get(device) != ""
    ]
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft != resource.RLIM_INFINITY and not holds_capability(_IPC_LOCK):
        flaws.append(f"locked memory is limited to {soft >> 10} KiB, with which RDMA can't work")
    return flaws


def verbs_devices(verbs: ctypes.CDLL) -> dict[str, str]:
    """Name of a device -> why it can't be opened; empty for one that can."""
    verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
    verbs.ibv_get_device_name.restype = ctypes.c_char_p
    verbs.ibv_get_device_name.argtypes = verbs.ibv_open_device.argtypes = [ctypes.c_void_p]
    verbs.ibv_open_device.restype = ctypes.c_void_p
    verbs.ibv_close_device.argtypes = [ctypes.c_void_p]
    count, found = ctypes.c_int(0), {}
    listed = verbs.ibv_get_device_list(ctypes.byref(count))
    for number in range(count.value):
        opened = verbs.ibv_open_device(listed[number])
        found[verbs.ibv_get_device_name(listed[number]).decode()] = (
            "" if opened else os.strerror(ctypes.get_errno())
        )
        if opened:
            verbs.ibv_close_device(opened)
    return found


def holds_capability(number: int) -> bool:
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next(line.split()[1] for line in lines if line.startswith("CapEff:"))
    return bool(int(effective, 16) >> number & 1)


def gpu_flaws(gpus: int) -> list[str]:
    there = sum(bool(re.fullmatch(r"nvidia[0-9]+", node.name)) for node in Path("/dev").iterdir())
    return [f"{there} of {gpus} GPU devices are there"] if there < gpus else []


def shm_flaws(wanted: int) -> list[str]:
    found = os.statvfs(_SHM)
    size = found.f_blocks * found.f_frsize
    if size >= wanted * _SHM_SHARE:
        return []
    return [f"{_SHM} has {size / (1 << 30):.1f} GiB in place of {wanted / (1 << 30):.1f} GiB"]
