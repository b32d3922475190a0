"""Small parts that need neither an agent nor a console."""

import os
import pwd
import socket
from pathlib import Path

import pytest
from pydantic import ValidationError

from agent.config import Config
from agent.devices import device_nodes
from agent.journal import Facts, Journal, JournalError
from agent.launching import signal_number
from agent.layout import Data, LayoutError, Machine, layout
from agent.messages import explained
from agent.ports import PortTakenError, busy_ports, port_hold
from agent.reports import report_of
from agent.runtime import NotPrepared
from agent.sandbox import environment
from agent.simulate import SimulateError, simulated_read
from agent.users import BadUserError, User, user_find
from agent.watch import Watched
from tests.agent.agents import worker
from wire.agent_messages import Exit
from wire.assignments import FEATURE_FIELDS, FEATURE_NAMES, FEATURES, Assignment, Desired, Secret

CONFIG = Config(server="http://127.0.0.1", credential="c", name="gpu-01", state=Path("/var/lib/agent"))
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:733D 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2 1 0 100 0 0 10 0
   2: 0100007F:733E 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 3 1 0 100 0 0 10 0
   3: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4 1 0 100 0 0 10 0
"""


def test_busy_ports_are_listening_ports_of_others(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text(TCP)
    assert busy_ports((), proc=tmp_path) == (29500, 29501)
    assert busy_ports({29500}, proc=tmp_path) == (29501,)


def test_a_held_port_is_taken_and_answers_nobody() -> None:
    with port_hold(0) as held:
        port = held.getsockname()[1]
        with pytest.raises(PortTakenError):
            port_hold(port)
        with pytest.raises(TimeoutError):
            socket.create_connection(("127.0.0.1", port), timeout=0.2)
    port_hold(port).close()


def test_device_nodes_of_the_assigned_gpus(tmp_path: Path) -> None:
    nodes = [
        "nvidia0",
        "nvidia1",
        "nvidiactl",
        "nvidia-uvm",
        "infiniband/uverbs0",
        "nvidia-caps-imex-channels/channel0",
    ]
    for node in nodes:
        (tmp_path / "dev" / node).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dev" / node).touch()
    for minor, bus in enumerate(("0000:01:00.0", "0000:02:00.0")):
        information = tmp_path / "proc/driver/nvidia/gpus" / bus / "information"
        information.parent.mkdir(parents=True)
        information.write_text(f"Model: \t NVIDIA H100\nGPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}\n")
    assert device_nodes(gpu_uuids=["GPU-1"], rdma=True, imex=True, root=tmp_path) == (
        "/dev/nvidia1",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia-caps-imex-channels/channel0",
        "/dev/infiniband/uverbs0",
    )
    assert device_nodes(gpu_uuids=[], rdma=False, imex=False, root=tmp_path) == ()


def test_gpus_are_named_to_cuda_unless_they_are_simulated() -> None:
    assignment = worker(gpu_uuids=("GPU-1", "GPU-2"))
    assert environment(CONFIG, assignment)["CUDA_VISIBLE_DEVICES"] == "GPU-1,GPU-2"
    simulated = CONFIG.model_copy(update={"simulate": "/inventory.json"})
    assert "CUDA_VISIBLE_DEVICES" not in environment(simulated, assignment)


@pytest.mark.parametrize(
    ("number", "name"), [(1, "SIGHUP"), (3, "SIGQUIT"), (15, "SIGTERM"), (28, "SIGWINCH"), (99, "signal 99")]
)
def test_every_stop_signal_has_its_name_in_the_history(number: int, name: str) -> None:
    state = {"phase": "stopping", "stopping_at": 5.0, "stop_signal": number, "stop_grace": 30}
    stopping = Facts(alive=True, marker=True, state=state)
    report = report_of("a1", worker(), "stop", stopping, watched=Watched(), log_size=0, now=6)
    assert [note.text for note in report.notes] == [f"Stop ordered: {name} sent, SIGKILL follows after 30 s"]


@pytest.mark.parametrize(("name", "number"), [("SIGTERM", 15), ("term", 15), ("SIGUSR1", 10), ("2", 2)])
def test_signal_number(name: str, number: int) -> None:
    assert signal_number(name) == number


@pytest.mark.parametrize("name", ["SIGNOSUCH", "", "0", "4711"])
def test_no_signal(name: str) -> None:
    with pytest.raises(NotPrepared, match="is no signal"):
        signal_number(name)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("bwrap: execvp bash: No such file or directory\n", "command not found: bash"),
        ("bwrap: Creating new namespace failed: Operation not permitted", None),
        (
            "bwrap: Can't mkdir /x: Read-only file system",
            "The sandbox could not be built on gpu-01: Can't mkdir /x: Read-only file system",
        ),
        ("port 29500 is in use on gpu-01", "port 29500 is in use on gpu-01"),
    ],
)
def test_explained(message: str, said: str | None) -> None:
    if said is None:
        assert explained(message, worker(), machine="gpu-01").endswith("Run `astraeus-agent check` there.")
    else:
        assert explained(message, worker(), machine="gpu-01") == said


# --- the layout


def mounts(machine: Machine, *paths: str) -> list[str]:
    files = [Data(path, 0o444, 20 + number) for number, path in enumerate(paths)]
    return layout(machine, files, shm_bytes=0, tmp_bytes=0, ready_descriptor=13)


def pairs(options: list[str], option: str) -> set[str]:
    """Destinations of every use of the option."""
    return {options[i + 2] for i, word in enumerate(options) if word == option}


def test_without_new_directories_the_root_is_one_mount() -> None:
    options = mounts(Machine(), "/etc/passwd")
    assert options[:3] == ["--ro-bind", "/", "/"]
    assert "--bind" not in options
    assert options[-3:] == ["--file", "13", "/dev/.ready"]


def test_pythons_own_directory_stays_where_tmp_is_private() -> None:
    options = mounts(Machine(kept=("/tmp/clone/.venv", "/usr")))
    assert pairs(options, "--ro-bind") >= {"/tmp/clone/.venv"}
    assert "/usr" not in pairs(options, "--ro-bind")


def test_hidden_paths(tmp_path: Path) -> None:
    options = mounts(Machine(hidden=("/etc/passwd", "/usr/share", "/nosuch", str(tmp_path))))
    hidden = {
        options[i + 2] for i, word in enumerate(options) if options[i : i + 2] == ["--ro-bind", "/dev/null"]
    }
    assert hidden == {"/etc/passwd"}
    assert options[options.index("/usr/share") - 1] == "--tmpfs"
    assert str(tmp_path) not in options  # /tmp is private anyway


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (
            ("/bin/new", "/usr/bin/new"),
            "The config /bin/new and the config /usr/bin/new are one path on this machine",
        ),
        (("/app/x", "/app/x/y"), "The config /app/x/y lies below the config /app/x, which is a file."),
        (("/proc/sys/x",), "The config /proc/sys/x can't be mounted: /proc belongs to the system."),
    ],
)
def test_configs_that_contradict_each_other(paths: tuple[str, ...], message: str) -> None:
    with pytest.raises(LayoutError) as caught:
        mounts(Machine(), *paths)
    assert str(caught.value).startswith(message)


def test_a_crowded_directory_is_not_rebuilt(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.layout.MOST_ENTRIES", 3)
    with pytest.raises(LayoutError, match=r"^Nothing can be mounted in /etc, which has \d+ entries"):
        mounts(Machine(), "/etc/new")


# --- users, simulated inventories, the journal


def test_users() -> None:
    assert user_find(None) is None
    me = pwd.getpwuid(os.geteuid()).pw_name
    if os.geteuid() == 0:
        assert user_find("1234:99") == User(1234, 99, (99,))
        assert user_find("nobody") == User(*pwd.getpwnam("nobody")[2:4], (pwd.getpwnam("nobody").pw_gid,))
    else:
        assert user_find(me) is None
        with pytest.raises(BadUserError, match="is no root"):
            user_find("0")
    with pytest.raises(BadUserError, match="There is no user nobody-knows"):
        user_find("nobody-knows")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "describes no machine: document: Invalid JSON"),
        ('{"gpu": []}', "describes no machine: gpu: Extra inputs are not permitted"),
        ('{"gpus": [{"index": 0}]}', "gpus.0.uuid: Field required; gpus.0.product: Field required"),
    ],
)
def test_simulated_inventories_say_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "inventory.json"
    path.write_text(text)
    with pytest.raises(SimulateError) as caught:
        simulated_read(path)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["../up", ".hidden", "", "a/b", "x" * 129])
def test_ids_that_name_no_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(JournalError, match="can't name a directory"):
        Journal(tmp_path).create(worker(name))


def test_a_forgotten_entry_is_gone_for_the_next_agent_too(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    entry = journal.create(worker("a1"))
    assert [one.id for one in Journal(tmp_path).entries()] == ["a1"]
    journal.forget(entry)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".trash-a2").mkdir()
    assert Journal(tmp_path).entries() == []
    assert list(tmp_path.iterdir()) == []


def test_records_that_are_not_ours_are_a_lost_worker() -> None:
    broken = Facts(alive=False, marker=True, state={"ready_at": "soon"}, exit={"kind": "exited", "code": "x"})
    report = report_of("a1", worker(), "start", broken, watched=Watched(), log_size=7, now=0)
    assert (report.state, report.gone, report.log_size) == ("ended", True, 7)
    assert report.exit == Exit(kind="lost", message="The agent's records of this worker are damaged.")


def test_a_process_that_survives_sigkill_is_told() -> None:
    hanging = Facts(alive=True, marker=True, state={"phase": "stopping", "killed_at": 100.0})

    def detail(now: float) -> str:
        return report_of("a1", None, "stop", hanging, watched=Watched(), log_size=0, now=now).detail

    assert detail(159) == ""
    assert detail(160) == "Still there 60 s after SIGKILL"


# --- what may be written down


def test_what_is_stored_has_no_value_of_a_secret() -> None:
    secret = Secret(name="hf", env="HF_TOKEN", value="hf_value_of_it")
    desired = Desired(assignments=(worker("a1", secrets=(secret,)), worker("a2", phase="stop")))
    assert not desired.withheld()
    stored = Desired.model_validate_json(desired.stored().model_dump_json())
    assert stored.assignments[0].secrets == (Secret(name="hf", env="HF_TOKEN"),)
    assert stored.withheld()
    assert not Desired(assignments=(stored.assignments[0].model_copy(update={"phase": "stop"}),)).withheld()
    assert "hf_value" not in repr(desired)


def test_an_error_does_not_repeat_what_it_could_not_read() -> None:
    with pytest.raises(ValidationError) as caught:
        Desired.model_validate({"assignments": [{"secrets": [{"value": ["hf_value_of_it"]}]}]})
    assert "hf_value" not in str(caught.value)


def test_every_feature_has_its_field_and_its_name() -> None:
    assert set(FEATURE_FIELDS) == set(FEATURE_NAMES) == FEATURES
    assert set(FEATURE_FIELDS.values()) <= set(Assignment.model_fields)
