"""What a worker sees: its configs, its names, its private directories, and nothing of the machine to write to."""

import os
import pwd
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.agent.agents import ROOT, AgentProcess, worker
from tests.agent.fake_console import FakeConsole
from wire.agent_messages import Exit
from wire.assignments import FileMount

pytestmark = pytest.mark.processes


def output(console: FakeConsole, name: str = "a1") -> str:
    end = console.wait_gone(name).exit
    text: str = console.wait_whole_log(name)
    assert end == Exit(kind="exited", code=0), text
    return text


def test_names_and_places(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script="hostname; pwd; echo $HOME $TMPDIR $LANG; id -u; echo $$"))
    assert output(console) == f"gpu-01\n/\n/tmp /tmp C.UTF-8\n{os.getuid()}\n1\n"


def test_environment_is_exactly_the_assignments(console: FakeConsole, agent: AgentProcess) -> None:
    command: dict[str, Any] = {"command": "env", "args": ("-0",)}
    console.want(worker(env={"RANK": "0", "TEXT": "two\nlines", "HOME": "/root"}, **command))
    found = dict(pair.split("=", 1) for pair in output(console).split("\0") if pair)
    programs = str(Path(sys.executable).parent.resolve())
    assert found == {
        "RANK": "0",
        "TEXT": "two\nlines",
        "HOME": "/root",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "PWD": "/",
        "PATH": f"{programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }


def test_python_is_the_agents_own(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(command="python", args=("-c", "import sys, pydantic; print(sys.prefix)")))
    assert output(console) == f"{sys.prefix}\n"


def test_own_host_name_leads_to_the_machines_address(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(command="getent", args=("hosts", "gpu-01")))
    assert output(console).split() == ["127.0.0.1", "gpu-01"]


def test_tmp_is_private_and_shm_has_its_size(console: FakeConsole, agent: AgentProcess) -> None:
    marks = [Path(tempfile.mkstemp(prefix="astraeus-mark-", dir=place)[1]) for place in ("/tmp", "/var/tmp")]
    script = "ls -A /tmp /var/tmp; echo > /tmp/astraeus-mine; df -B1 --output=size /dev/shm | tail -1; touch /dev/shm/x"
    console.want(worker(script=script, shm_bytes=64 << 20))
    text = output(console)
    for mark in marks:
        mark.unlink()
        assert (
            mark.name not in text
        )  # a clone below /tmp shows, for its Python is there, and nothing else does
    assert text.split()[-1] == str(64 << 20)
    assert not Path("/tmp/astraeus-mine").exists()


def test_other_processes_are_out_of_sight(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script="ls -d /proc/[0-9]* | wc -l"))
    assert int(output(console)) <= 3


def test_nothing_of_the_machine_can_be_written(console: FakeConsole, agent: AgentProcess) -> None:
    # Opening for writing is enough to see it, and harms nothing when it succeeds.
    script = (
        "for path in / /etc /usr /var /root /home /sys; do touch $path/astraeus-was-here && echo $path; done; "
        "for path in /etc/passwd /proc/sys/kernel/core_pattern /proc/sysrq-trigger; do : >> $path && echo $path; done; "
        "mount -o remount,rw /etc && echo remounted; umount /proc/sys && echo unmounted; "
        "unshare -Urm umount /proc/sys && echo unmounted in a namespace; true"
    )
    script = f"{{ {script}; }} 2> /dev/null"
    console.want(worker(script=script))
    assert output(console) == ""
    assert not Path("/astraeus-was-here").exists()


def test_the_agents_state_is_hidden(console: FakeConsole, tmp_path: Path) -> None:
    """Also where the state lies outside of every private directory."""
    home = Path(tempfile.mkdtemp(prefix=".agent-state-", dir=ROOT))
    other = home / "other"
    other.mkdir()
    (other / "secret").write_text("secret")
    agent = AgentProcess(console, home / "state").join(hide=[str(other)]).start()
    try:
        script = f"ls -A {home}/state {other}; cat {home}/state/agent.json {other}/secret 2>&1; true"
        console.want(worker(script=script))
        text = output(console)
        assert "machine-credential" not in text
        assert "secret\n" not in text
        assert text.count("agent.json: No such file") == text.count("other/secret: No such file") == 1
    finally:
        agent.clean()
        shutil.rmtree(home)


def test_credentials_of_the_machine_are_hidden(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script="cat /etc/shadow 2>/dev/null | wc -c"))
    assert output(console) == "0\n"


def test_descriptors_of_the_agent_do_not_leak(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script="ls /proc/self/fd", rendezvous_port=29517))
    assert output(console).split() == ["0", "1", "2", "3"]  # 3 is ls itself reading the directory


def test_output_can_be_reopened(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script="echo one; echo two > /dev/stdout; echo three > /dev/stderr"))
    assert output(console) == "one\ntwo\nthree\n"


def test_broken_pipes_end_programs(console: FakeConsole, agent: AgentProcess) -> None:
    console.want(worker(script="yes | head -1; echo ${PIPESTATUS[0]}"))
    assert output(console) == "y\n141\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts workers as others")
def test_worker_as_another_user(console: FakeConsole, agent: AgentProcess) -> None:
    files = (config("/app/x", mode=0o400),)
    script = (
        "id -u; id -G; cat /app/x; cat /etc/gshadow 2> /dev/null; touch /tmp/mine && stat -c %u /tmp/mine"
    )
    console.want(worker(script=script, user="nobody:4321", files=files, command="/bin/bash"))
    nobody = pwd.getpwnam("nobody").pw_uid
    assert output(console) == f"{nobody}\n4321\nconfig\n{nobody}\n"


# --- configs


def config(path: str, value: str = "config\n", mode: int = 0o444) -> FileMount:
    return FileMount(path=path, value=value, mode=mode)


def test_config_in_a_directory_that_the_machine_lacks(console: FakeConsole, agent: AgentProcess) -> None:
    assert not Path("/app").exists()
    files = (config("/app/train_ddp.py", "print('hi')\n"), config("/app/deep/er/x.sh", "echo deep\n", 0o555))
    script = (
        "python /app/train_ddp.py; /bin/sh /app/deep/er/x.sh; stat -c %a /app/train_ddp.py /app/deep/er/x.sh"
    )
    console.want(
        worker(script=script + "; echo x 2>/dev/null >> /app/train_ddp.py; touch /app/new 2>&1", files=files)
    )
    assert console.wait_gone("a1").exit == Exit(kind="exited", code=1)
    text = console.wait_whole_log("a1")
    assert text == "hi\ndeep\n444\n555\ntouch: cannot touch '/app/new': Read-only file system\n"
    assert not Path("/app").exists()


def test_config_over_an_existing_file(console: FakeConsole, agent: AgentProcess) -> None:
    before = Path("/etc/passwd").read_bytes()
    console.want(worker(script="cat /etc/passwd", files=(config("/etc/passwd"),)))
    assert output(console) == "config\n"
    assert Path("/etc/passwd").read_bytes() == before


def test_config_in_an_existing_directory(console: FakeConsole, agent: AgentProcess) -> None:
    """The directory's own entries stay visible, and the new one isn't on the machine."""
    mine = sorted(path.name for path in Path("/etc").iterdir())
    console.want(worker(script="cat /etc/astraeus-new; ls -A /etc", files=(config("/etc/astraeus-new"),)))
    first, *entries = output(console).splitlines()
    assert first == "config"
    assert sorted(entries) == sorted([*mine, "astraeus-new"])
    assert not Path("/etc/astraeus-new").exists()


def test_config_in_place_of_a_symbolic_link(
    console: FakeConsole, agent: AgentProcess, tmp_path_factory: pytest.TempPathFactory
) -> None:
    target = Path("/etc/mtab").readlink()
    console.want(worker(script="cat /etc/mtab; stat -c %F /etc/mtab", files=(config("/etc/mtab"),)))
    assert output(console) == "config\nregular file\n"
    assert Path("/etc/mtab").readlink() == target


def test_config_below_a_symbolic_link_and_in_tmp(console: FakeConsole, agent: AgentProcess) -> None:
    files = (config("/bin/astraeus-tool", "#!/bin/sh\necho tool\n", 0o555), config("/tmp/in/tmp.txt"))
    console.want(worker(script="astraeus-tool; cat /tmp/in/tmp.txt", files=files))
    assert output(console) == "tool\nconfig\n"
    assert not Path("/usr/bin/astraeus-tool").exists()
    assert not Path("/tmp/in").exists()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            "/usr/share",
            (
                "The config /usr/share can't be mounted: this machine has a directory there. "
                "Mount it at another path, such as /usr/share/config."
            ),
        ),
        (
            "/etc/passwd/config",
            (
                "The config /etc/passwd/config can't be mounted: /etc/passwd is a file on this machine. "
                "Mount it at another path, such as /app/config."
            ),
        ),
        ("/proc/config", "The config /proc/config can't be mounted: /proc belongs to the system."),
    ],
)
def test_config_that_cannot_be_mounted(
    console: FakeConsole, agent: AgentProcess, path: str, message: str
) -> None:
    console.want(worker(phase="prepare", files=(config(path),)))
    assert console.wait_gone("a1").exit == Exit(kind="not_prepared", message=message)


# --- ports


def free_rendezvous_port() -> socket.socket:
    for port in range(29599, 29500, -1):
        try:
            return socket.create_server(("127.0.0.1", port))
        except OSError:
            continue
    raise AssertionError("all rendezvous ports are in use")


def test_rendezvous_port_in_use(console: FakeConsole, agent: AgentProcess) -> None:
    """The console is told of the port together with the failure, before it places the run anew."""
    with free_rendezvous_port() as taken:
        port = taken.getsockname()[1]
        console.want(worker(phase="prepare", rendezvous_port=port))
        assert console.wait_gone("a1").exit == Exit(
            kind="not_prepared", message=f"port {port} is in use on gpu-01"
        )
        assert console.observed is not None
        assert port in console.observed.busy_ports


def test_rendezvous_port_is_held_until_the_start_and_then_the_workers(
    console: FakeConsole, agent: AgentProcess
) -> None:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    listen = (
        f"import socket; s = socket.create_server(('', {port})); print('listening', flush=True); s.accept()"
    )
    leader = {"command": "python", "args": ("-c", listen), "rendezvous_port": port}
    console.want(worker(phase="prepare", **leader))
    console.wait_state("a1", "ready")
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("", port))
    console.want(worker(**leader))
    console.wait_log("a1", "listening")
    socket.create_connection(("127.0.0.1", port)).close()
    assert console.wait_gone("a1").exit == Exit(kind="exited", code=0)
