"""Reading real files below a root: what isn't there, vanishes while it is read, refuses, or holds garbage."""

from pathlib import Path

import pytest

from agent.discovery.host import host_read
from agent.discovery.ports import CLASS, ports_read
from agent.discovery.subnet_manager import guid_of
from agent.discovery.tree import Tree
from agent.discovery.tree_recorded import RecordedTree, TreeRecorder
from tests.agent.recorded_machines import RECORDED

BASE = f"{CLASS}/mlx5_3/ports/1"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The machine with eight NDR ports, as files."""
    for path, text in RecordedTree.read(RECORDED / "ndr-8/tree.json").files.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    return tmp_path


def devices(root: Path) -> list[str]:
    return [port.device for port in ports_read(Tree(root))]


ALL = [f"mlx5_{n}" for n in range(8)]
OTHERS = [name for name in ALL if name != "mlx5_3"]


def test_files_and_a_recording_of_them_are_the_same_machine(root: Path) -> None:
    recorder = TreeRecorder(root)
    ports, host = ports_read(recorder), host_read(recorder)
    assert len(ports) == 8
    played = RecordedTree(recorder.files)
    assert (ports_read(played), host_read(played)) == (ports, host)


def test_what_other_processes_are_called_is_not_recorded(root: Path) -> None:
    recorder = TreeRecorder(root)
    assert recorder.names("proc") == ["4242", "cpuinfo", "driver", "sys"]
    assert recorder.text("proc/4242/comm") == "nv-fabricmanage"
    assert recorder.files == {}


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\xff\xfe\x00\x80", b"4", b"ACTIVE", b"x: ?", b"4: " + b"A" * 4000, b"\n\n"],
)
def test_a_state_that_cannot_be_understood_costs_that_port_only(root: Path, garbage: bytes) -> None:
    (root / BASE / "state").write_bytes(garbage)
    assert devices(root) == OTHERS


@pytest.mark.parametrize("name", ["state", "link_layer"])
def test_a_file_that_vanished_costs_that_port_only(root: Path, name: str) -> None:
    (root / BASE / name).unlink()
    assert devices(root) == OTHERS


def test_a_file_that_became_a_directory_or_a_loop(root: Path) -> None:
    (root / BASE / "state").unlink()
    (root / BASE / "state").mkdir()
    assert devices(root) == OTHERS
    loop = root / CLASS / "mlx5_4/ports/1/link_layer"
    loop.unlink()
    loop.symlink_to(loop)
    assert devices(root) == [name for name in OTHERS if name != "mlx5_4"]


@pytest.mark.parametrize(
    ("name", "garbage", "field", "expected"),
    [
        ("rate", "fast", "rate_gbps", 0.0),
        ("rate", "99999999999 Gb/sec", "rate_gbps", 1_000_000.0),
        ("lid", "0xzz", "lid", 0),
        ("sm_lid", "-5", "sm_lid", 0),
        ("sm_lid", "0x1ffffffffffffffff", "sm_lid", 0),
        ("phys_state", "?", "physical_state", ""),
        ("gids/0", "not a gid", "subnet_prefix", ""),
        ("gids/0", "not a gid", "guid", "0xb8cef60300aa0003"),
        ("counters/link_downed", "many", "downs", None),
        ("../../device/numa_node", "-1", "numa_node", None),
        ("../../device/numa_node", "99999", "numa_node", None),
    ],
)
def test_what_cannot_be_understood_is_left_out(
    root: Path, name: str, garbage: str, field: str, expected: object
) -> None:
    (root / BASE / name).write_text(garbage)
    port = ports_read(Tree(root))[3]
    assert (port.device, getattr(port, field), port.state) == ("mlx5_3", expected, "ACTIVE")


def test_directories_that_are_no_ports(root: Path) -> None:
    for name in ("0", "256", "x", "-1", "01x"):
        (root / CLASS / "mlx5_3/ports" / name).mkdir()
    (root / CLASS / "empty").mkdir()
    assert devices(root) == ALL


def test_a_machine_of_which_nothing_can_be_read(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "nowhere")
    assert ports_read(tree) == ()
    host = host_read(tree)
    assert (host.cpu_product, host.sockets, host.numa_nodes, host.disks) == ("", 0, (), ())
    assert (host.driver_version, host.system) == ("", "")


def test_garbage_in_the_rest_of_the_machine(root: Path) -> None:
    for path in (
        "proc/cpuinfo",
        "etc/os-release",
        "sys/devices/system/node/node0/meminfo",
        "proc/driver/nvidia/version",
    ):
        (root / path).write_bytes(b"\x00\xff garbage")
    (root / "sys/block/sda/size").write_text("-1")
    (root / "sys/devices/system/cpu/cpu0/topology/physical_package_id").write_text("?")
    (root / "sys/devices/system/node/node99999").mkdir()
    host = host_read(Tree(root))
    assert (host.cpu_product, host.sockets, host.system, host.driver_version) == ("", 1, "", "")
    assert [node.memory_bytes for node in host.numa_nodes] == [0, 1056954232 * 1024]
    assert [disk.name for disk in host.disks] == ["nvme0n1", "nvme1n1"]


@pytest.mark.parametrize(
    ("said", "guid"),
    [
        (
            "sminfo: sm lid 1 sm guid 0x248a0703002e6a6a, activity count 4 priority 14 state 3 SMINFO_MASTER",
            "0x248a0703002e6a6a",
        ),
        ("sminfo: sm lid 9 sm guid 0x2c903000aa, activity count 1", "0x0000002c903000aa"),
        ("sminfo: sm lid 0 sm guid 0x0, activity count 0 priority 0 state 0 SMINFO_NOTACT", None),
        ("ibwarn: [7] mad_rpc_open_port: can't open UMAD port ((null):0)", None),
        ("sm guid 0x248a0703002e6a6a248a0703002e6a6a", None),
        ("", None),
    ],
)
def test_what_sminfo_says(said: str, guid: str | None) -> None:
    assert guid_of(said) == guid
