"""`check` and `inventory`: what is missing or wrong on recorded machines, and what mends it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agent.check import checks_json, checks_table, machine_checks
from agent.discovery import checks as module
from agent.discovery.answers import Failure, NvmlAnswer
from agent.discovery.checks import Check, Facts, hardware_checks
from agent.discovery.machine import Discovery
from agent.discovery.ports import ports_read
from agent.discovery.sources import Sources, nvidia_devices
from agent.discovery.tree_recorded import RecordedTree
from agent.inventory import DiscoveredInventory, discovered_inventory, real_inventory
from agent.main import main
from tests.agent.recorded_machines import RECORDED, RecordedMachine, answer_of
from wire.gpu_models import short_model
from wire.inventory import Inventory


@pytest.fixture(autouse=True)
def a_machine_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixes depend on the package manager, and on whether sminfo is there."""
    monkeypatch.setattr("agent.discovery.packages.shutil.which", lambda program: program == "apt-get" or None)
    monkeypatch.setattr(module, "sminfo_program", lambda: "/usr/sbin/sminfo")


def facts_of(name: str, *, remove: tuple[str, ...] = (), **more) -> Facts:
    tree = RecordedTree.read(RECORDED / name / "tree.json")
    tree.files = {path: text for path, text in tree.files.items() if not path.startswith(remove or "\0")}
    facts = Facts(tree=tree, ports=ports_read(tree), nvidia_devices=nvidia_devices(tree))
    return replace(facts, **more)


def rows(facts: Facts) -> list[Check]:
    return list(hardware_checks(facts))


def not_ok(facts: Facts) -> list[Check]:
    return [check for check in rows(facts) if check.verdict != "ok"]


def test_a_machine_on_which_all_is_well() -> None:
    assert rows(facts_of("ndr-8", answer=answer_of("ndr-8"))) == [
        Check("GPU driver", "ok", "535.129.03, CUDA 12.2"),
        Check("GPUs", "ok", "8 GPUs without signs of trouble"),
        Check("fabric manager", "ok", "runs"),
        Check("GPUDirect RDMA", "ok", "by nvidia-peermem"),
        Check("RDMA ports", "ok", "8 of 8 active, 400 Gb/s"),
    ]


def test_an_nvlink_domain_and_dma_buf() -> None:
    assert rows(facts_of("gb200", answer=answer_of("gb200"))) == [
        Check("GPU driver", "ok", "570.124.06, CUDA 12.8"),
        Check("GPUs", "ok", "4 GPUs without signs of trouble"),
        Check("fabric manager", "ok", "not needed: no NVLink switches here"),
        Check("GPUDirect RDMA", "ok", "by DMA-BUF"),
        Check("IMEX daemon", "ok", "runs, channel 0 is there"),
        Check("RDMA ports", "ok", "4 of 4 active, 400 Gb/s"),
    ]


def test_a_machine_without_gpus_and_ports() -> None:
    assert rows(Facts(tree=RecordedTree({}))) == [
        Check("GPU driver", "ok", "this machine has no NVIDIA GPU"),
        Check("fabric manager", "ok", "not needed: no NVLink switches here"),
        Check("GPUDirect RDMA", "ok", "not needed: no GPUs with RDMA ports here"),
        Check("RDMA ports", "ok", "none"),
    ]


def test_gpus_without_a_driver() -> None:
    facts = facts_of("ndr-8", remove=("proc/driver",))
    assert not_ok(facts)[0] == Check(
        "GPU driver", "missing", "8 NVIDIA GPUs, no driver is loaded", "apt-get install nvidia-open"
    )
    assert isinstance(facts.tree, RecordedTree)
    facts.tree.files["lib/modules/5.15.0-122-generic/updates/dkms/nvidia.ko.zst"] = ""
    assert not_ok(facts)[0].fix == "modprobe nvidia"


@pytest.mark.parametrize(
    ("code", "verdict", "found", "fix"),
    [
        (
            18,
            "wrong",
            (
                "Driver/library version mismatch: the GPUs' driver was upgraded while it was loaded. "
                "Reboot this machine."
            ),
            "reboot",
        ),
        (9, "missing", "No driver is loaded for this machine's NVIDIA GPUs.", "apt-get install nvidia-open"),
        (12, "missing", "The driver's library libnvidia-ml.so.1 is missing.", "apt-get install nvidia-open"),
        (999, "wrong", "NVML doesn't work: Unknown Error", "nvidia-smi"),
    ],
)
def test_a_driver_that_does_not_work(code: int, verdict: str, found: str, fix: str) -> None:
    answer = NvmlAnswer(failure=Failure(code=code, message="Unknown Error"))
    check = not_ok(facts_of("ndr-8", answer=answer))[0]
    assert (check.what, check.verdict, check.found, check.fix) == ("GPU driver", verdict, found, fix)
    assert check.failed


def test_a_driver_that_hangs() -> None:
    check = not_ok(facts_of("ndr-8", problem="NVML has not answered for 60 s"))[0]
    assert (check.verdict, check.found) == ("wrong", "NVML has not answered for 60 s")
    assert check.fix == "dmesg | grep -i nvrm; a reboot mends most of it"


def test_a_gpu_with_signs_of_trouble() -> None:
    answer = answer_of("ndr-8", **{"nvmlDeviceGetRemappedRows(gpu3)": [0, 1, 1, 0]})
    found = [check for check in rows(facts_of("ndr-8", answer=answer)) if check.what.startswith("GPU")]
    assert found[1:3] == [
        Check("GPU 3", "warning", "a memory row waits to be remapped: reset the GPU", "nvidia-smi -q -i 3"),
        Check("GPUs", "ok", "7 GPUs without signs of trouble"),
    ]


def test_gpus_in_mig_mode() -> None:
    assert rows(facts_of("mig", answer=answer_of("mig")))[1] == Check(
        "GPUs", "ok", "2 GPUs without signs of trouble, 1 in MIG mode: not used as whole GPUs"
    )


def test_daemons_and_modules_that_are_missing() -> None:
    away = ("proc/4242", "sys/module/nvidia_peermem", "dev/infiniband")
    assert not_ok(facts_of("ndr-8", remove=away, answer=answer_of("ndr-8"))) == [
        Check(
            "fabric manager",
            "missing",
            "there are NVLink switches, and it doesn't run",
            "systemctl enable --now nvidia-fabricmanager",
        ),
        Check("GPUDirect RDMA", "warning", "neither nvidia-peermem nor DMA-BUF", "modprobe nvidia-peermem"),
        Check("RDMA devices", "missing", "no /dev/infiniband/uverbs*", "modprobe ib_uverbs"),
    ]


def test_gpus_that_wait_for_the_fabric_manager() -> None:
    waiting = answer_of("ndr-8").gpus[0].fabric.model_copy(update={"state": 2})
    answer = answer_of("ndr-8")
    gpus = tuple(gpu.model_copy(update={"fabric": waiting}) for gpu in answer.gpus[:2]) + answer.gpus[2:]
    checks = {
        check.what: check
        for check in rows(facts_of("ndr-8", answer=answer.model_copy(update={"gpus": gpus})))
    }
    assert checks["fabric manager"].found == "GPUs 0, 1 wait for it"
    assert checks["fabric manager"].verdict == "wrong"


@pytest.mark.parametrize(
    ("away", "found", "fix"),
    [
        ("proc/900", "in an NVLink domain, and it doesn't run", "systemctl enable --now nvidia-imex"),
        ("dev/nvidia-caps-imex-channels", "runs, and channel 0 isn't there", "nvidia-modprobe -c 0"),
    ],
)
def test_an_imex_daemon_that_is_missing(away: str, found: str, fix: str) -> None:
    assert not_ok(facts_of("gb200", remove=(away,), answer=answer_of("gb200"))) == [
        Check("IMEX daemon", "missing", found, fix)
    ]


def test_ports_that_are_down_and_no_sminfo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "sminfo_program", lambda: None)
    tree = RecordedTree.read(RECORDED / "two-fabrics-lid-1/tree.json")
    base = "sys/class/infiniband/{}/ports/1/{}"
    tree.files |= {
        base.format("mlx5_0", "state"): "1: DOWN",
        base.format("mlx5_0", "phys_state"): "2: Polling",
    }
    tree.files[base.format("mlx5_1", "state")] = "2: INIT"
    assert not_ok(Facts(tree=tree, ports=ports_read(tree))) == [
        Check("RDMA ports", "warning", "0 of 2 active", "check cables and switches"),
        Check("port mlx5_0:1", "warning", "DOWN (Polling)", "check its cable"),
        Check(
            "port mlx5_1:1",
            "warning",
            "INIT: no subnet manager takes care of it",
            "start a subnet manager in its fabric: on a switch, or opensm on one machine",
        ),
        Check(
            "subnet manager",
            "warning",
            "sminfo isn't there: which fabric a port is in is guessed",
            "apt-get install infiniband-diags",
        ),
    ]


def test_a_roce_port_that_is_down() -> None:
    tree = RecordedTree.read(RECORDED / "roce-4/tree.json")
    tree.files["sys/class/infiniband/mlx5_2/ports/1/state"] = "1: DOWN"
    tree.files["sys/class/infiniband/mlx5_2/ports/1/phys_state"] = "3: Disabled"
    (check,) = not_ok(Facts(tree=tree, ports=ports_read(tree)))
    assert (check.what, check.found, check.fix) == (
        "port mlx5_2:1",
        "DOWN (Disabled)",
        "ip link set enp67s0f0np0 up",
    )


def test_as_a_table_and_as_json() -> None:
    checks = [Check("GPUs", "ok", "8"), Check("GPU driver", "wrong", "hangs", "reboot")]
    assert checks_table(checks).splitlines() == [
        "what               found  to do",
        "GPUs        ok     8",
        "GPU driver  wrong  hangs  reboot",
    ]
    assert json.loads(checks_json(checks)) == {
        "checks": [
            {"what": "GPUs", "verdict": "ok", "found": "8", "fix": ""},
            {"what": "GPU driver", "verdict": "wrong", "found": "hangs", "fix": "reboot"},
        ]
    }


# --- On this machine


def test_check_as_json_ends_with_1_when_something_needed_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "agent.json").write_text("{")
    assert main(["check", "--json", "--state-dir", str(tmp_path)]) == 1
    checks = {check["what"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["joined"]["verdict"] == "wrong"
    assert {"GPU driver", "RDMA ports", "/dev/shm", "locked memory", "sandbox"} <= checks.keys()


def test_inventory_is_what_the_console_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = tmp_path / "record"
    assert main(["inventory", "--json", "--record", str(record)]) == 0
    inventory = Inventory.model_validate_json(capsys.readouterr().out)
    assert inventory.cpu_cores == real_inventory("", ()).cpu_cores
    assert inventory.checks, "what `check` says is part of it"
    assert ports_read(RecordedTree.read(record / "tree.json")) is not None

    assert main(["inventory"]) == 0
    assert f"kernel {inventory.kernel}" in capsys.readouterr().out
    (tmp_path / "file").touch()
    assert main(["inventory", "--record", str(tmp_path / "file/below")]) == 1
    assert capsys.readouterr().err.startswith(f"astraeus-agent: {tmp_path}/file/below can't be written: ")


# --- What the console is told


@pytest.mark.parametrize("name", sorted(path.parent.name for path in RECORDED.glob("*/nvml.json")))
def test_every_recorded_machine_makes_an_inventory(name: str, tmp_path: Path) -> None:
    found = RecordedMachine(name, tmp_path).look(hears=answer_of(name))
    inventory = discovered_inventory(real_inventory("bubblewrap 0.8", ("A limit.",)), found)
    assert Inventory.model_validate_json(inventory.model_dump_json()) == inventory
    assert inventory.limits[0] == "A limit."
    assert inventory.gpus
    assert {gpu.health for gpu in inventory.gpus} == {"healthy"}
    for gpu in inventory.gpus:
        assert short_model(gpu.product) in {"H100", "H200", "GB200"}
        assert gpu.memory_bytes > 64 << 30
        assert gpu.uuid.startswith("GPU-")
        assert gpu.pci_bus


def test_an_inventory_is_put_together_once_a_look(tmp_path: Path) -> None:
    here = RecordedMachine("ndr-8", tmp_path)
    source = DiscoveredInventory(real_inventory("", ()), here.discovery)
    here.look(hears=answer_of("ndr-8"))
    first = source()
    assert source() is first
    here.look(hears=answer_of("ndr-8"))
    assert source() is not first
    assert source() == first, "nothing has changed: the console isn't told again"


def test_two_agents_share_a_machine_s_gpus(tmp_path: Path) -> None:
    here = RecordedMachine("ndr-8", tmp_path)
    here.look(hears=answer_of("ndr-8"))
    base = real_inventory("", ("A limit.",))
    uuids = [gpu.uuid for gpu in DiscoveredInventory(base, here.discovery)().gpus]
    halves = [
        DiscoveredInventory(base, here.discovery, half)() for half in (uuids[:4], [*uuids[4:], "GPU-other"])
    ]
    assert [[gpu.uuid for gpu in half.gpus] for half in halves] == [uuids[:4], uuids[4:]]
    assert halves[0].limits[-1] == "This agent offers 4 of the machine's 8 GPUs and leaves the others alone."
    assert halves[1].limits[-1] == "Named with --gpu, but not on this machine as a whole GPU: GPU-other."


def test_the_page_gets_what_check_says(tmp_path: Path) -> None:
    tree = RecordedTree.read(RECORDED / "roce-4/tree.json")
    discovery = Discovery(
        tmp_path,
        "boot",
        check=machine_checks,
        sources=Sources(tree=tree, ask_sm=lambda _port: None, helper=()),
    )
    assert discovery.look().checks == (), "the console doesn't wait for it"
    checks = {check.what: check for check in discovery.look().checks}
    assert (checks["RDMA ports"].verdict, checks["RDMA ports"].found) == ("ok", "4 of 4 active, 200 Gb/s")
