"""`check` where workers run as containers: the engine, GPUs in containers, what the mesh needs, and what mends each."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from agent.config import Config
from agent.containers.checks import Surroundings, container_checks
from agent.discovery.answers import NvmlAnswer
from agent.discovery.checks import Check, Facts
from agent.discovery.tree_recorded import RecordedTree
from tests.agent.recorded_machines import answer_of

ALL = frozenset({"dockerd", "ip", "iptables", "wg", "wireguard-go"})
DOCKER = Config(server="http://c", credential="c", name="gpu-01", runtime="docker", docker_socket="/d.sock")
BUBBLEWRAP = DOCKER.model_copy(update={"runtime": "bubblewrap"})
MODULE = "lib/modules/6.1.0/kernel/drivers/net/wireguard/wireguard.ko.xz"


@pytest.fixture(autouse=True)
def apt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixes depend on the package manager."""
    monkeypatch.setattr("agent.discovery.packages.shutil.which", lambda program: program == "apt-get" or None)


class Engine:
    """One that answers with these versions; without any, nobody listens."""

    def __init__(self, version: str = "28.5.1", api: str = "1.51", *, listens: bool = True) -> None:
        self.answer = {"Version": version, "ApiVersion": api}
        self.listens = listens
        self.asked = ""

    def __call__(self, socket: str) -> Mapping[str, str]:
        self.asked = socket
        if not self.listens:
            raise ConnectionRefusedError(111, "Connection refused")
        return self.answer


def rows(
    *files: str,
    programs: Collection[str] = ALL,
    engine: Engine | None = None,
    config: Config | None = DOCKER,
    answer: NvmlAnswer | None = None,
) -> list[Check]:
    tree = RecordedTree({"proc/sys/kernel/osrelease": "6.1.0", **dict.fromkeys(files, "")})
    around = Surroundings(
        which=lambda program: f"/usr/bin/{program}" if program in programs else None, ask=engine or Engine()
    )
    return list(container_checks(Facts(tree=tree, answer=answer), config, around))


def not_ok(*files: str, **more) -> list[Check]:
    return [check for check in rows(*files, **more) if check.verdict != "ok"]


def test_a_machine_on_which_all_is_well() -> None:
    engine = Engine()
    assert rows(MODULE, engine=engine) == [
        Check("Docker engine", "ok", "28.5.1 at /d.sock"),
        Check("mesh tools", "ok", "ip and iptables are installed"),
        Check("WireGuard", "ok", "by the kernel"),
    ]
    assert engine.asked == "/d.sock"


@pytest.mark.parametrize(
    ("engine", "programs", "found", "fix"),
    [
        (
            Engine(listens=False),
            ALL,
            "doesn't answer at /d.sock: Connection refused",
            "systemctl enable --now docker",
        ),
        (
            Engine(listens=False),
            ALL - {"dockerd"},
            "doesn't answer at /d.sock: Connection refused",
            "apt-get install docker.io",
        ),
        (Engine("19.03.15", "1.40"), ALL, "19.03.15 is older than 20.10", "apt-get install docker.io"),
    ],
)
def test_an_engine_that_is_no_use(engine: Engine, programs: frozenset[str], found: str, fix: str) -> None:
    assert not_ok(MODULE, engine=engine, programs=programs) == [Check("Docker engine", "missing", found, fix)]


@pytest.mark.parametrize("config", [BUBBLEWRAP, None], ids=["bubblewrap", "not joined"])
def test_where_no_containers_are_meant_to_run(config: Config | None) -> None:
    assert rows(MODULE, programs=ALL - {"dockerd"}, config=config) == []
    [check] = not_ok(MODULE, engine=Engine(listens=False), config=config)
    assert (check.what, check.verdict) == ("Docker engine", "warning")


def test_gpus_need_the_container_toolkit() -> None:
    answer = answer_of("ndr-8")
    lacking = Check(
        "container toolkit",
        "missing",
        "the NVIDIA Container Toolkit isn't installed: containers get no GPUs",
        "apt-get install nvidia-container-toolkit",
    )
    assert not_ok(MODULE, answer=answer) == [lacking]
    assert not_ok(MODULE, answer=answer, config=None) == [replace(lacking, verdict="warning")]
    found = {check.what: check for check in rows(MODULE, "usr/bin/nvidia-ctk", answer=answer)}
    assert found["container toolkit"] == Check("container toolkit", "ok", "installed")


@pytest.mark.parametrize(
    ("files", "programs", "check"),
    [
        (
            (MODULE,),
            ALL - {"ip", "iptables"},
            Check(
                "mesh tools",
                "warning",
                "without ip and iptables: gangs of containers share the machines' networks",
                "apt-get install iproute2 iptables",
            ),
        ),
        (
            (MODULE,),
            ALL - {"wg"},
            Check(
                "WireGuard",
                "warning",
                "without wg: gangs of containers share the machines' networks",
                "apt-get install wireguard-tools",
            ),
        ),
        (
            (),
            ALL - {"wireguard-go"},
            Check(
                "WireGuard",
                "warning",
                "not in this kernel: gangs of containers share the machines' networks",
                "apt-get install wireguard-go",
            ),
        ),
        (
            (),
            ALL,
            Check(
                "WireGuard",
                "warning",
                "wireguard-go has no /dev/net/tun: gangs of containers share the machines' networks",
                "modprobe tun",
            ),
        ),
    ],
)
def test_what_the_mesh_lacks(files: tuple[str, ...], programs: frozenset[str], check: Check) -> None:
    assert not_ok(*files, programs=programs) == [check]


@pytest.mark.parametrize(
    ("file", "by"),
    [(MODULE, "the kernel"), ("sys/module/wireguard", "the kernel"), ("dev/net/tun", "wireguard-go")],
)
def test_who_does_wireguard(file: str, by: str) -> None:
    assert rows(file)[-1] == Check("WireGuard", "ok", f"by {by}")
