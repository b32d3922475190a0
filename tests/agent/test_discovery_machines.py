"""Whole machines, recorded: what discovery makes of their files and their driver's answers."""

from pathlib import Path

import pytest

from agent.discovery.answers import Failure, NvmlAnswer
from agent.discovery.gpus import GpuReader
from agent.discovery.nvml import Code, NvmlError
from agent.discovery.nvml_process import Ended, Silent
from agent.discovery.nvml_recorded import Recorder, Replay
from tests.agent.recorded_machines import RECORDED, RecordedMachine, answer_of, nvml_calls
from wire.gpu_models import short_model

MIB = 1 << 20
SM_A, SM_B = "0x248a0703002e6a6a", "0x248a0703002e7b7b"


def machine(name: str, state: Path, **more) -> RecordedMachine:
    return RecordedMachine(name, state, **more)


# --- One H200, as a real machine answered


def test_a_machine_with_one_h200(tmp_path: Path) -> None:
    found = machine("h200", tmp_path).look(hears=answer_of("h200"))

    assert [(gpu.index, gpu.product, gpu.memory_bytes, gpu.pci_bus) for gpu in found.gpus] == [
        (0, "NVIDIA H200", 150_754_820_096, "0000:00:06.0")
    ]
    assert found.gpus[0].uuid == "GPU-0a53eb3c-2955-712c-f9fe-c87bd1e296fa"
    assert (found.gpus[0].health, found.gpus[0].nvlink_domain, found.gpus[0].numa_node) == (
        "healthy",
        None,
        None,
    )
    assert (found.ports, found.verdict.health, found.limits, found.events) == ((), "healthy", (), ())
    assert short_model(found.gpus[0].product) == "H200"


# --- Eight NDR ports


def test_a_machine_with_eight_gpus_and_eight_ndr_ports(tmp_path: Path) -> None:
    here = machine("ndr-8", tmp_path, managers={f"mlx5_{n}:1": SM_A for n in range(8)})
    found = here.look(hears=answer_of("ndr-8"))

    assert [(gpu.index, gpu.product, gpu.memory_bytes // MIB) for gpu in found.gpus] == [
        (index, "NVIDIA H100 80GB HBM3", 81559) for index in range(8)
    ]
    assert [gpu.numa_node for gpu in found.gpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert found.gpus[0].uuid == "GPU-5a000000-1b2c-4d3e-8f90-012345678900"
    assert found.gpus[0].pci_bus == "0000:1b:00.0"
    assert {gpu.nvlink_domain for gpu in found.gpus} == {None}, "its switches connect no other machine"
    assert {(port.link_layer, port.state, port.rate_gbps, port.health) for port in found.ports} == {
        ("InfiniBand", "ACTIVE", 400.0, "healthy")
    }
    first = found.ports[0]
    assert (first.device, first.port, first.lid, first.sm_lid) == ("mlx5_0", 1, 0x20, 1)
    assert (first.guid, first.subnet_prefix) == ("0xb8cef60300aa0000", "fe80:0000:0000:0000")
    assert (first.netdev, first.numa_node, first.physical_state) == ("ibp24s0", 0, "LinkUp")
    assert {(port.subnet_manager, port.guessed) for port in found.ports} == {(SM_A, False)}
    assert (found.verdict.health, found.limits, found.events) == ("healthy", (), ())


def test_the_rest_of_the_machine(tmp_path: Path) -> None:
    here = machine("ndr-8", tmp_path)
    here.look(hears=answer_of("ndr-8"))
    host = here.look(after=60).host

    assert host.cpu_product == "Intel(R) Xeon(R) Platinum 8480C"
    assert (host.sockets, host.system) == (2, "Ubuntu 22.04.5 LTS")
    assert (host.driver_version, host.cuda_version) == ("535.129.03", "12.2")
    assert [(node.node, node.cpus, node.memory_bytes) for node in host.numa_nodes] == [
        (0, "0-55,112-167", 1056501732 * 1024),
        (1, "56-111,168-223", 1056954232 * 1024),
    ]
    assert [(disk.name, disk.kind, disk.size_bytes, disk.product) for disk in host.disks] == [
        ("nvme0n1", "nvme", 3750748848 * 512, "SAMSUNG MZQL21T9HCJR-00A07"),
        ("nvme1n1", "nvme", 7501476528 * 512, "SAMSUNG MZQL23T8HCLS-00A07"),
        ("sda", "ssd", 937703088 * 512, "Micron_5400"),
    ]


def test_a_port_down(tmp_path: Path) -> None:
    here = machine("ndr-8", tmp_path, managers={f"mlx5_{n}:1": SM_A for n in range(8)})
    here.port("mlx5_6")(state="1: DOWN", phys_state="3: Disabled", sm_lid="0x0", lid="0xffff")
    found = here.look(hears=answer_of("ndr-8"))
    assert (found.ports[6].state, found.ports[6].physical_state) == ("DOWN", "Disabled")
    assert (found.ports[6].health, found.ports[6].subnet_manager) == ("healthy", None), "it never was in use"
    assert [port.state for port in found.ports].count("ACTIVE") == 7

    here.port("mlx5_7")(state="1: DOWN", phys_state="2: Polling")
    found = here.look()
    assert (found.ports[7].health, found.ports[7].evidence) == ("faulty", "the link has gone down")
    assert [event.subject for event in found.events] == ["port mlx5_7:1"]

    here.port("mlx5_7")(state="4: ACTIVE", phys_state="5: LinkUp")
    assert here.look().ports[7].health == "faulty", "not believed at once"
    assert here.look(after=60).ports[7].health == "healthy"


# --- Other networks


def test_a_roce_machine(tmp_path: Path) -> None:
    here = machine("roce-4", tmp_path)
    found = here.look()

    assert [(port.device, port.link_layer, port.rate_gbps, port.netdev) for port in found.ports] == [
        (f"mlx5_{n}", "Ethernet", 200.0, f"enp{65 + n}s0f0np0") for n in range(4)
    ], "rxe0 is software"
    assert found.ports[1].gids == (
        "fe80:0000:0000:0000:b8ce:f6ff:fe2a:1144 (IB/RoCE v1)",
        "fe80:0000:0000:0000:b8ce:f6ff:fe2a:1144 (RoCE v2)",
        "0000:0000:0000:0000:0000:ffff:0a14:010b (IB/RoCE v1)",
        "0000:0000:0000:0000:0000:ffff:0a14:010b (RoCE v2)",
    )
    assert {(port.subnet_manager, port.guessed, port.subnet_prefix) for port in found.ports} == {
        (None, False, "")
    }
    assert (found.gpus, here.asked, found.limits) == ((), [], ())


def test_compute_and_storage_fabrics_are_kept_apart_per_port(tmp_path: Path) -> None:
    compute = {f"mlx5_{n}:1": SM_A for n in range(4)}
    here = machine("compute-and-storage", tmp_path, managers=compute | {"mlx5_10:1": SM_B, "mlx5_11:1": SM_B})
    assert [(port.device, port.subnet_manager, port.rate_gbps) for port in here.look().ports] == [
        ("mlx5_0", SM_A, 400),
        ("mlx5_1", SM_A, 400),
        ("mlx5_10", SM_B, 200),
        ("mlx5_11", SM_B, 200),
        ("mlx5_2", SM_A, 400),
        ("mlx5_3", SM_A, 400),
    ]


def test_two_fabrics_that_both_use_lid_1(tmp_path: Path) -> None:
    here = machine("two-fabrics-lid-1", tmp_path, managers={"mlx5_0:1": SM_A, "mlx5_1:1": SM_B})
    assert [(port.subnet_manager, port.guessed) for port in here.look().ports] == [
        (SM_A, False),
        (SM_B, False),
    ]


def test_without_sminfo_a_fabric_is_a_guess_and_says_so(tmp_path: Path) -> None:
    found = machine("two-fabrics-lid-1", tmp_path).look()

    assert {(port.subnet_manager, port.guessed) for port in found.ports} == {
        ("fe80:0000:0000:0000/lid 1", True)
    }
    (limit,) = found.limits
    assert limit == (
        "Fabrics of InfiniBand ports are guessed from subnet prefix and manager LID (mlx5_0, mlx5_1): "
        "sminfo (package infiniband-diags, as root) tells them for sure."
    )


def test_subnet_managers_are_asked_when_addresses_change_and_now_and_then(tmp_path: Path) -> None:
    managers = {"mlx5_0:1": SM_A, "mlx5_1:1": SM_B}
    here = machine("two-fabrics-lid-1", tmp_path, managers=managers)
    here.look()
    here.look()
    assert sorted(here.asked) == ["mlx5_0:1", "mlx5_1:1"]

    managers["mlx5_0:1"] = "0x00000000000000aa"
    here.port("mlx5_0")(sm_lid="0x9")
    assert here.look().ports[0].subnet_manager == "0x00000000000000aa"
    assert here.asked[2:] == ["mlx5_0:1"]

    managers.clear()
    ports = here.look(after=300).ports
    assert sorted(here.asked[3:]) == ["mlx5_0:1", "mlx5_1:1"]
    assert [port.subnet_manager for port in ports] == ["0x00000000000000aa", SM_B], "what was known stays"


# --- One NVLink domain over several machines


def test_a_gb200_domain(tmp_path: Path) -> None:
    here = machine("gb200", tmp_path)
    found = here.look(hears=answer_of("gb200"))

    assert [(gpu.index, gpu.product, gpu.nvlink_domain) for gpu in found.gpus] == [
        (index, "NVIDIA GB200", "b78daa1c-2f4e-4d2b-9c3d-e5f60718293a.32766") for index in range(4)
    ]
    assert {gpu.health for gpu in found.gpus} == {"healthy"}
    assert (found.verdict.health, here.discovery.found.host.cpu_product) == ("healthy", "NVIDIA GB200 NVL")


def test_a_gpu_that_its_switches_have_not_taken_in(tmp_path: Path) -> None:
    fabric = nvml_calls("gb200")["nvmlDeviceGetGpuFabricInfoV(gpu2)"]["value"] | {"state": 2}
    waiting = answer_of("gb200", **{"nvmlDeviceGetGpuFabricInfoV(gpu2)": fabric})
    here = machine("gb200", tmp_path)
    here.look(hears=waiting)
    assert here.look(hears=waiting).gpus[2].health == "healthy", "so for a moment at every start"
    gpu = here.look(after=60, hears=waiting).gpus[2]

    assert (gpu.nvlink_domain, gpu.health) == (None, "faulty")
    assert gpu.evidence == "it waits for its NVLink switches: is the fabric manager running?"


# --- MIG


def test_a_gpu_in_mig_mode_is_shown_and_is_no_gpu_to_place_on(tmp_path: Path) -> None:
    found = machine("mig", tmp_path).look(hears=answer_of("mig"))

    assert [(gpu.index, gpu.product) for gpu in found.gpus] == [(1, "NVIDIA H100 PCIe")]
    (split,) = found.split_gpus
    assert (split.index, split.product, split.pci_bus) == (0, "NVIDIA H100 PCIe", "0000:3b:00.0")
    assert [(each.product, each.memory_bytes >> 30) for each in split.instances] == [
        ("NVIDIA H100 PCIe MIG 3g.40gb", 40),
        ("NVIDIA H100 PCIe MIG 1g.10gb", 10),
    ]
    assert found.events == ()


# --- A driver in trouble


MISMATCH = NvmlAnswer(failure=Failure(code=18, message="RM has detected an NVML/RM version mismatch."))
SAID = (
    "Driver/library version mismatch: the GPUs' driver was upgraded while it was loaded. Reboot this machine."
)


def test_a_driver_of_another_version(tmp_path: Path) -> None:
    here = machine("ndr-8", tmp_path)
    found = here.look(hears=MISMATCH)

    assert found.gpus == ()
    assert SAID in found.limits
    assert (found.verdict.health, found.verdict.evidence) == ("faulty", SAID.removesuffix("."))
    assert len(found.ports) == 8, "the rest of the machine is as it was"


def test_gpus_that_were_known_stay_when_the_driver_is_upgraded_under_them(tmp_path: Path) -> None:
    here = machine("ndr-8", tmp_path)
    here.look(hears=answer_of("ndr-8"))
    found = here.look(hears=MISMATCH)

    assert len(found.gpus) == 8
    assert found.gpus_as_of == 1.8e9
    assert {(gpu.health, gpu.evidence) for gpu in found.gpus} == {("faulty", SAID.removesuffix("."))}


def test_a_driver_that_hangs_is_a_health_event_and_the_inventory_stays_with_its_age(tmp_path: Path) -> None:
    here = machine("ndr-8", tmp_path)
    before = here.look(hears=answer_of("ndr-8"))
    assert before.gpus_as_of is None
    found = here.look(hears=Silent(20.0))

    assert [gpu.uuid for gpu in found.gpus] == [gpu.uuid for gpu in before.gpus]
    assert {(gpu.health, gpu.evidence) for gpu in found.gpus} == {
        ("suspect", "NVML has not answered for 20 s")
    }
    assert found.gpus_as_of == 1.8e9
    assert "NVML has not answered for 20 s." in found.limits
    (event,) = found.events
    assert (event.subject, event.was, event.health) == ("driver", "healthy", "suspect")
    assert event.evidence == "NVML has not answered for 20 s"

    here.look(hears=answer_of("ndr-8"))
    found = here.look(after=60, hears=answer_of("ndr-8"))
    assert {gpu.health for gpu in found.gpus} == {"healthy"}
    assert (found.gpus_as_of, len(found.events)) == (None, 2)


def test_a_helper_that_crashed(tmp_path: Path) -> None:
    found = machine("ndr-8", tmp_path).look(hears=Ended(-11))
    assert found.verdict.evidence == "NVML's helper process ended with signal 11"


# --- GPUs that break and vanish


def test_a_gpu_that_vanishes_is_told_and_missed_until_the_next_boot(tmp_path: Path) -> None:
    here = machine("ndr-8", tmp_path)
    here.look(hears=answer_of("ndr-8"))
    whole = answer_of("ndr-8")
    seven = whole.model_copy(update={"gpus": whole.gpus[:3] + whole.gpus[4:]})
    found = here.look(hears=seven)

    assert [(gpu.index, gpu.health) for gpu in found.gpus if gpu.health != "healthy"] == [(3, "faulty")]
    assert found.gpus[3].evidence == "the driver no longer finds it: it has fallen off the bus"
    assert [(event.name, event.health) for event in found.events] == [("GPU 3", "faulty")]

    here.restarted()
    found = here.look(hears=seven)
    assert [gpu.index for gpu in found.gpus if gpu.health == "faulty"] == [3], "another agent, the same boot"

    here.restarted(boot_id="another")
    found = here.look(hears=seven)
    assert [gpu.index for gpu in found.gpus] == [0, 1, 2, 4, 5, 6, 7]
    assert len(found.events) == 1, "the events of earlier boots stay"


def test_a_gpu_that_is_lost_between_two_questions_keeps_its_name() -> None:
    replay = Replay.read(RECORDED / "ndr-8/nvml.json")
    reader = GpuReader(replay)
    before = reader.read()
    lost = {"error": int(Code.GPU_IS_LOST), "message": "GPU is lost"}
    replay.calls |= {call: lost for call in replay.calls if "(gpu3" in call}
    after = reader.read()

    assert (after.gpus[3].uuid, after.gpus[3].lost, after.gpus[3].error) == (
        before.gpus[3].uuid,
        True,
        "GPU is lost",
    )
    assert after.gpus[:3] + after.gpus[4:] == before.gpus[:3] + before.gpus[4:]


def test_a_gpu_that_never_answered_is_a_limit(tmp_path: Path) -> None:
    replay = Replay.read(RECORDED / "ndr-8/nvml.json")
    replay.calls["nvmlDeviceGetUUID(gpu5)"] = {"error": 999, "message": "Unknown Error"}
    found = machine("ndr-8", tmp_path).look(hears=GpuReader(replay).read())

    assert [gpu.index for gpu in found.gpus] == [0, 1, 2, 3, 4, 6, 7]
    assert "GPU 5 can't be asked: Unknown Error." in found.limits


def test_answers_that_make_no_sense_cost_that_answer_only() -> None:
    nonsense = {
        "nvmlDeviceGetMemoryInfo(gpu0)": {},
        "nvmlDeviceGetRemappedRows(gpu0)": [1],
        "nvmlDeviceGetPciInfo_v3(gpu0)": {"busId": "?"},
        "nvmlDeviceGetMigMode(gpu0)": [],
        "nvmlDeviceGetGpuFabricInfoV(gpu0)": {"clusterUuid": [999]},
        "nvmlDeviceGetCurrPcieLinkWidth(gpu0)": "wide",
        "nvmlSystemGetCudaDriverVersion_v2()": None,
    }
    answer = answer_of("ndr-8", **nonsense)
    gpu = answer.gpus[0]
    assert (gpu.memory_bytes, gpu.pci_bus, gpu.mig, gpu.fabric, gpu.pcie) == (0, "", False, None, None)
    assert (gpu.error, gpu.rows_pending, len(gpu.links), answer.cuda_version) == ("", False, 18, "")
    assert answer.gpus[1:] == answer_of("ndr-8").gpus[1:]


def test_what_is_recorded_plays_back_the_same() -> None:
    replay = Replay.read(RECORDED / "mig/nvml.json")
    recorder = Recorder(replay)
    answer = GpuReader(recorder).read()

    assert GpuReader(Replay(recorder.calls)).read() == answer
    with pytest.raises(NvmlError) as refused:
        Replay({}).call("nvmlDeviceGetCount")
    assert refused.value.code == Code.NOT_SUPPORTED


# --- Whether GPUs work


def test_whether_gpus_work(tmp_path: Path) -> None:
    busy = {"nvmlDeviceGetUtilizationRates(gpu1)": {"gpu": 97, "memory": 40}}
    here = machine("ndr-8", tmp_path)
    uuids = [f"GPU-5a{n:06x}-1b2c-4d3e-8f90-0123456789{n:02x}" for n in range(2)]
    assert here.discovery.busy(uuids) is None, "nobody has asked yet"
    assert here.discovery.busy([]) is False

    here.look(hears=answer_of("ndr-8", **busy))
    assert here.discovery.busy(uuids[:1]) is False
    assert here.discovery.busy(uuids) is True
    assert here.discovery.busy(["GPU-unknown"]) is None
    here.clock.now += 31
    assert here.discovery.busy(uuids) is None, "that was then"
