"""Asking NVML about all GPUs. What a GPU doesn't support, or answers with nonsense, is left out; the rest counts."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from pydantic import ValidationError

from agent.discovery.answers import GpuAnswer, MigInstance, NvFabric, NvLink, NvmlAnswer, Pcie
from agent.discovery.nvml import Code, Nvml, NvmlError

_MOST_GPUS = 1024
_MOST_LINKS = 36
"""NVML_NVLINK_MAX_LINKS"""
_UNCORRECTED, _VOLATILE = 1, 0
_REPLAY, _RECOVERY = 0, 1
_RECOVERY_ACTION_FIELD = 230
_REPLAYS_FIELD, _RECOVERIES_FIELD = 219, 214
"""Since Blackwell: effective errors, and recoveries that failed, of one link."""
_BUS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])", re.IGNORECASE)
_LOST = (Code.GPU_IS_LOST, Code.RESET_REQUIRED)
_CUDA_MAJOR, _CUDA_MINOR = 1000, 10

Value = TypeVar("Value")


class GpuReader:
    """Remembers who is who, so that a GPU that is lost can still be named."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._known: dict[int, GpuAnswer] = {}

    def read(self) -> NvmlAnswer:
        """Raises NvmlError when not even the number of GPUs can be had."""
        count = min(int(self._nvml.call("nvmlDeviceGetCount")), _MOST_GPUS)
        gpus: list[GpuAnswer] = []
        problems: list[str] = []
        for index in range(count):
            try:
                gpus.append(self._gpu(index))
            except NvmlError as error:
                known = self._known.get(index)
                if known is None:
                    problems.append(f"GPU {index} can't be asked: {error}")
                else:
                    gpus.append(known.model_copy(update={"error": str(error), "lost": error.code in _LOST}))
        return NvmlAnswer(
            driver_version=self._text("nvmlSystemGetDriverVersion"),
            cuda_version=self._cuda(),
            gpus=tuple(gpus),
            problems=tuple(problems[:64]),
        )

    def busy(self, index: int) -> bool | None:
        """Whether a GPU works just now; None when it doesn't say, as in MIG mode."""
        rates = self._maybe(lambda: self._nvml.call("nvmlDeviceGetUtilizationRates", f"gpu{index}"))
        return None if rates is None else bool(rates["gpu"])

    def _gpu(self, index: int) -> GpuAnswer:
        """Raises NvmlError when it can't even be identified."""
        gpu = f"gpu{index}"
        identity = GpuAnswer(
            index=index,
            uuid=str(self._nvml.call("nvmlDeviceGetUUID", gpu)),
            product=str(self._nvml.call("nvmlDeviceGetName", gpu)),
            memory_bytes=self._memory(gpu),
            pci_bus=self._bus(gpu),
        )
        self._known[index] = identity
        try:
            return identity.model_copy(update=self._state(index, gpu))
        except NvmlError as error:  # lost between two questions
            return identity.model_copy(update={"error": str(error), "lost": True})

    def _state(self, index: int, gpu: str) -> dict[str, Any]:
        mig = self._maybe(lambda: int(self._nvml.call("nvmlDeviceGetMigMode", gpu)[0]) == 1) or False
        rows = self._numbers("nvmlDeviceGetRemappedRows", gpu, count=4) or [0, 0, 0, 0]
        return {
            "busy": self.busy(index),
            "throttle": self._throttle(gpu),
            "ecc_uncorrected": self._number("nvmlDeviceGetTotalEccErrors", gpu, _UNCORRECTED, _VOLATILE) or 0,
            "sram_worn": self._sram_worn(gpu),
            "rows_pending": bool(rows[2]),
            "rows_failed": bool(rows[3]),
            "pages_pending": bool(self._number("nvmlDeviceGetRetiredPagesPendingStatus", gpu)),
            "recovery": self._number("nvmlDeviceGetFieldValue", gpu, _RECOVERY_ACTION_FIELD) or 0,
            "pcie": self._pcie(gpu),
            "links": tuple(self._links(gpu)),
            "fabric": self._maybe(lambda: self._fabric(gpu)),
            "mig": mig,
            "instances": tuple(self._instances(gpu)) if mig else (),
        }

    def _memory(self, gpu: str) -> int:
        """GPUs that share the machine's memory have none of their own."""
        return self._maybe(lambda: int(self._nvml.call("nvmlDeviceGetMemoryInfo", gpu)["total"])) or 0

    def _bus(self, gpu: str) -> str:
        said = self._maybe(lambda: str(self._nvml.call("nvmlDeviceGetPciInfo_v3", gpu)["busId"])) or ""
        found = _BUS.fullmatch(said)
        return f"{found[1][-4:]}:{found[2]}".lower() if found else ""

    def _throttle(self, gpu: str) -> int:
        """Drivers before 535 know the question by another name."""
        reasons = self._number("nvmlDeviceGetCurrentClocksEventReasons", gpu)
        if reasons is None:
            reasons = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", gpu)
        return reasons or 0

    def _sram_worn(self, gpu: str) -> bool:
        status = self._maybe(
            lambda: self._nvml.call("nvmlDeviceGetSramEccErrorStatus", gpu)["bThresholdExceeded"]
        )
        return bool(status)

    def _pcie(self, gpu: str) -> Pcie | None:
        names = ("CurrPcieLinkGeneration", "CurrPcieLinkWidth", "MaxPcieLinkGeneration", "MaxPcieLinkWidth")
        found = [self._number(f"nvmlDeviceGet{name}", gpu) for name in names]
        if not all(found):
            return None
        generation, width, max_generation, max_width = (int(each or 0) for each in found)
        return Pcie(generation=generation, width=width, max_generation=max_generation, max_width=max_width)

    def _links(self, gpu: str) -> Iterator[NvLink]:
        for link in range(_MOST_LINKS):
            state = self._number("nvmlDeviceGetNvLinkState", gpu, link)
            if state is None:
                continue
            yield NvLink(
                link=link,
                active=state == 1,
                recoveries=self._counter(gpu, link, _RECOVERY, _RECOVERIES_FIELD) if state else None,
                replays=self._counter(gpu, link, _REPLAY, _REPLAYS_FIELD) if state else None,
            )

    def _counter(self, gpu: str, link: int, counter: int, field: int) -> int | None:
        known = self._number("nvmlDeviceGetNvLinkErrorCounter", gpu, link, counter)
        return self._number("nvmlDeviceGetFieldValue", gpu, field, link) if known is None else known

    def _fabric(self, gpu: str) -> NvFabric:
        info = self._nvml.call("nvmlDeviceGetGpuFabricInfoV", gpu)
        digits = bytes(info["clusterUuid"]).hex()
        return NvFabric(
            state=info["state"],
            status=info["status"],
            cluster_uuid="-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])),
            clique=info["cliqueId"],
            health=info.get("healthMask", 0),
        )

    def _instances(self, gpu: str) -> Iterator[MigInstance]:
        for index in range(self._number("nvmlDeviceGetMaxMigDeviceCount", gpu) or 0):
            instance = self._maybe(partial(self._instance, f"{gpu}/mig{index}"))
            if instance is not None:
                yield instance

    def _instance(self, name: str) -> MigInstance:
        return MigInstance(
            uuid=str(self._nvml.call("nvmlDeviceGetUUID", name)),
            product=str(self._nvml.call("nvmlDeviceGetName", name)),
            memory_bytes=self._memory(name),
        )

    def _cuda(self) -> str:
        number = self._number("nvmlSystemGetCudaDriverVersion_v2") or 0
        return f"{number // _CUDA_MAJOR}.{number % _CUDA_MAJOR // _CUDA_MINOR}" if number > 0 else ""

    def _text(self, name: str) -> str:
        return self._maybe(lambda: str(self._nvml.call(name))) or ""

    def _number(self, name: str, *arguments: str | int) -> int | None:
        return self._maybe(lambda: int(self._nvml.call(name, *arguments)))

    def _numbers(self, name: str, *arguments: str | int, count: int) -> list[int] | None:
        found = self._maybe(lambda: [int(each) for each in self._nvml.call(name, *arguments)])
        return found if found is not None and len(found) >= count else None

    def _maybe(self, ask: Callable[[], Value]) -> Value | None:
        """None when it isn't supported, or makes no sense. Raises NvmlError for a GPU that is lost."""
        try:
            return ask()
        except NvmlError as error:
            if error.code in _LOST:
                raise
            return None
        except (KeyError, TypeError, ValueError, ValidationError, IndexError):
            return None
