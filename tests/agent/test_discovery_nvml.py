"""The driver's library as calls by name: handles, structures, fields, errors. Its own functions are stood in for."""

from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from agent.discovery import helper
from agent.discovery.answers import Failure, NvmlAnswer, Xid
from agent.discovery.gpus import GpuReader
from agent.discovery.nvml import Code, Library, NvmlError
from agent.discovery.nvml_recorded import Recorder, Replay
from tests.agent.recorded_machines import RECORDED, answer_of

Stand = Callable[..., None]


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    """Puts functions in the place of the library's."""

    def stand(**functions: Any) -> None:
        for name, function in functions.items():
            monkeypatch.setattr(pynvml, name, function)

    return stand


@pytest.fixture
def library(stand: Stand) -> Library:
    """A GPU's handle is its index plus 100, an instance's its own plus 1000."""
    stand(
        nvmlDeviceGetHandleByIndex=lambda index: 100 + index,
        nvmlDeviceGetMigDeviceHandleByIndex=lambda parent, index: 1000 + 10 * parent + index,
        nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}".encode(),
    )
    return Library()


def refuse(code: int) -> Callable[..., Any]:
    def refuse(*_: Any) -> Any:
        raise pynvml.NVMLError(code)

    return refuse


def test_devices_are_named(library: Library) -> None:
    assert library.call("nvmlDeviceGetUUID", "gpu3") == "GPU-103"
    assert library.call("nvmlDeviceGetUUID", "gpu3/mig2") == "GPU-2032"
    with pytest.raises(NvmlError):
        library.call("nvmlDeviceGetUUID", "gpu-3")


def test_errors_keep_their_number(library: Library, stand: Stand) -> None:
    stand(nvmlDeviceGetName=refuse(pynvml.NVML_ERROR_GPU_IS_LOST))
    with pytest.raises(NvmlError, match="GPU is lost") as refused:
        library.call("nvmlDeviceGetName", "gpu0")
    assert refused.value.code == Code.GPU_IS_LOST


def test_a_function_that_the_library_lacks_is_an_error_like_others(library: Library) -> None:
    with pytest.raises(NvmlError) as refused:
        library.call("nvmlDeviceGetSomethingNew", "gpu0")
    assert refused.value.code == Code.FUNCTION_NOT_FOUND


def test_structures_become_dictionaries(library: Library, stand: Stand) -> None:
    memory = pynvml.c_nvmlMemory_t()
    memory.total, memory.free, memory.used = 80, 60, 20
    stand(nvmlDeviceGetMemoryInfo=lambda _handle: memory, nvmlDeviceGetMigMode=lambda _handle: [1, 0])
    assert library.call("nvmlDeviceGetMemoryInfo", "gpu0") == {"total": 80, "free": 60, "used": 20}
    assert library.call("nvmlDeviceGetMigMode", "gpu0") == [1, 0]


def test_structures_that_are_filled_in(library: Library, stand: Stand) -> None:
    def fabric(handle: int, reference: Any) -> int:
        info = reference._obj
        info.state, info.cliqueId = 3, 7
        info.clusterUuid[0] = 0xB7
        return 0

    def sram(handle: int, reference: Any) -> int:
        reference._obj.bThresholdExceeded = 1
        return 0

    stand(nvmlDeviceGetGpuFabricInfoV=fabric, nvmlDeviceGetSramEccErrorStatus=sram)
    info = library.call("nvmlDeviceGetGpuFabricInfoV", "gpu0")
    assert (info["state"], info["cliqueId"], info["clusterUuid"]) == (3, 7, [0xB7] + [0] * 15)
    assert info["version"] == pynvml.nvmlGpuFabricInfo_v2
    assert library.call("nvmlDeviceGetSramEccErrorStatus", "gpu0")["bThresholdExceeded"] == 1


@pytest.mark.parametrize(
    ("kind", "member", "value"),
    [
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, "uiVal", 2),
        (pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "ullVal", 2**40),
    ],
)
def test_fields(library: Library, stand: Stand, kind: int, member: str, value: int) -> None:
    asked = []

    def fields(handle: int, ids: list[tuple[int, int]]) -> Any:
        asked.append(ids)
        found = pynvml.c_nvmlFieldValue_t()
        found.valueType, found.nvmlReturn = kind, 0 if ids[0][1] == 5 else pynvml.NVML_ERROR_NOT_SUPPORTED
        setattr(found.value, member, value)
        return [found]

    stand(nvmlDeviceGetFieldValues=fields)
    assert library.call("nvmlDeviceGetFieldValue", "gpu0", 214, 5) == value
    with pytest.raises(NvmlError) as refused:
        library.call("nvmlDeviceGetFieldValue", "gpu0", 230)
    assert refused.value.code == Code.NOT_SUPPORTED
    assert asked == [[(214, 5)], [(230, 0)]]


def test_errors_of_gpus_are_listened_for(library: Library, stand: Stand) -> None:
    registered = []

    def register(handle: int, kind: int, events: str) -> None:
        if handle == 101:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        registered.append((handle, kind, events))

    event = pynvml.c_nvmlEventData_t()
    event.eventData = 79
    stand(
        nvmlEventSetCreate=lambda: "events",
        nvmlDeviceRegisterEvents=register,
        nvmlEventSetWait_v2=lambda _events, _milliseconds: event,
        nvmlDeviceGetUUID=lambda _handle: "GPU-7",
    )
    library.watch(3)
    assert registered == [(100, 8, "events"), (102, 8, "events")]
    assert library.wait(5) == Xid(uuid="GPU-7", number=79)

    stand(nvmlEventSetWait_v2=refuse(pynvml.NVML_ERROR_TIMEOUT))
    assert library.wait(5) is None
    stand(nvmlEventSetWait_v2=refuse(pynvml.NVML_ERROR_GPU_IS_LOST))
    with pytest.raises(NvmlError):
        library.wait(5)


# --- The helper


def test_the_numbers_of_this_module_are_the_librarys() -> None:
    assert {code.name: code.value for code in Code} == {
        "NOT_SUPPORTED": pynvml.NVML_ERROR_NOT_SUPPORTED,
        "NOT_FOUND": pynvml.NVML_ERROR_NOT_FOUND,
        "DRIVER_NOT_LOADED": pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        "TIMEOUT": pynvml.NVML_ERROR_TIMEOUT,
        "LIBRARY_NOT_FOUND": pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        "FUNCTION_NOT_FOUND": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        "GPU_IS_LOST": pynvml.NVML_ERROR_GPU_IS_LOST,
        "RESET_REQUIRED": pynvml.NVML_ERROR_RESET_REQUIRED,
        "VERSION_MISMATCH": pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        "UNKNOWN": pynvml.NVML_ERROR_UNKNOWN,
    }
    assert pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION == 230
    assert pynvml.NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS == 219
    assert pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS == 214
    assert (pynvml.NVML_NVLINK_ERROR_DL_REPLAY, pynvml.NVML_NVLINK_ERROR_DL_RECOVERY) == (0, 1)
    assert (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC) == (1, 0)
    assert pynvml.NVML_NVLINK_MAX_LINKS == 36
    thermal = pynvml.nvmlClocksEventReasonSwThermalSlowdown, pynvml.nvmlClocksEventReasonHwThermalSlowdown
    assert thermal == (0x20, 0x40)


class FakeLibrary(Replay):
    """A recorded machine with errors to come."""

    def __init__(self, xids: list[Xid | None]) -> None:
        super().__init__(Replay.read(RECORDED / "ndr-8/nvml.json").calls)
        self.xids = xids

    def wait(self, _milliseconds: int) -> Xid | None:
        return self.xids.pop(0) if self.xids else None


def test_an_error_is_told_at_once_with_the_rest_of_its_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper, "_LOOK_SECONDS", 0.01)
    first, second, late = (Xid(uuid="GPU-1", number=number) for number in (79, 119, 48))
    fake: Any = FakeLibrary([None, first, second, None, late])
    fake.calls["nvmlDeviceGetUtilizationRates(gpu6)"] = {"value": {"gpu": 3, "memory": 0}}
    assert helper._listen(fake, GpuReader(fake), 8) == ({6}, [first, second, late])


def test_what_the_helper_says_is_what_it_has_read(capsys: pytest.CaptureFixture[str]) -> None:
    helper._say(answer_of("gb200"))
    assert NvmlAnswer.model_validate_json(capsys.readouterr().out) == answer_of("gb200")
    failure = NvmlAnswer(failure=Failure(code=18, message="mismatch"))
    helper._say(failure)
    assert NvmlAnswer.model_validate_json(capsys.readouterr().out) == failure


def test_a_recording_of_the_library_keeps_errors(library: Library, stand: Stand) -> None:
    stand(nvmlDeviceGetCount=lambda: 1, nvmlDeviceGetName=lambda _handle: "NVIDIA H200")
    recorder = Recorder(library)
    answer = GpuReader(recorder).read()
    assert (answer.gpus[0].uuid, answer.gpus[0].product) == ("GPU-100", "NVIDIA H200")
    assert GpuReader(Replay(recorder.calls)).read() == answer
    assert recorder.calls["nvmlDeviceGetUUID(gpu0)"] == {"value": "GPU-100"}
    assert recorder.calls["nvmlDeviceGetMemoryInfo(gpu0)"]["error"] == pynvml.NVML_ERROR_UNINITIALIZED
