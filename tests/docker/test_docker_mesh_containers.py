"""Workers in containers of two machines' engines meet on the mesh, by the run's name and by MASTER_ADDR."""

from pathlib import Path

import pytest

from agent.containers.network import network_ensure
from agent.containers.settings import Bound, Container, Limits, container_request
from agent.names import hosts_file
from tests.docker.engine import Engine
from tests.docker.machines import contained
from tests.docker.meshed import PORT, MeshMachine
from tests.docker.spaces import Site
from wire.mesh import WorkerMesh

pytestmark = pytest.mark.docker

LEADER = f"""
import socket
server = socket.create_server(("0.0.0.0", {PORT}))
for _ in range(3):
    to, peer = server.accept()
    to.sendall(peer[0].encode() + b"\\n")
    to.close()
"""
MEMBER = f"""
import socket, sys, time
def own(name):
    deadline = time.monotonic() + 60
    while True:
        try:
            with socket.create_connection((name, {PORT}), 5) as to:
                return to.makefile().readline().strip()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
ways = sys.argv[1:]
mine = socket.gethostbyname(socket.gethostname())
sys.exit(0 if all(own(way) == mine for way in ways) else 3)
"""


def test_containers_meet_by_the_runs_name_and_by_the_leaders_machine(site: Site, tmp_path: Path) -> None:
    machines = [MeshMachine(site.add(), tmp_path / f"m{n}", n) for n in range(2)]
    engines = [Engine(machine.space) for machine in machines]
    try:
        for machine, engine in zip(machines, engines, strict=True):
            engine.start().load()
            machine.start()
        one, two = machines
        places = [_place(machines, position) for position in range(2)]
        assert one.tell(one.order(two), places[0])["flaw"] == ""
        assert two.tell(two.order(one), places[1])["flaw"] == ""
        master = one.space.address
        leader = _start(one, engines[0], places[0], tmp_path / "h0", "python3", "-c", LEADER)
        member = _start(
            two, engines[1], places[1], tmp_path / "h1", "python3", "-c", MEMBER, "ddp", master, "ddp-0"
        )
        client = engines[1].client()
        assert client.api.wait(member, timeout=120)["StatusCode"] == 0
        client.close()
        client = engines[0].client()
        assert client.api.wait(leader, timeout=60)["StatusCode"] == 0, "all three ways came to it"
        client.close()
    finally:
        for engine in engines:
            engine.stop()
        for machine in machines:
            machine.clean()


def _place(machines: list[MeshMachine], position: int) -> WorkerMesh:
    addresses = [str(machine.subnet[2]) for machine in machines]
    return WorkerMesh.model_validate(
        {
            "address": addresses[position],
            "members": addresses,
            "leader": addresses[0],
            "master_address": machines[0].space.address,
            "master_port": PORT,
        }
    )


def _start(machine: MeshMachine, engine: Engine, place: WorkerMesh, hosts: Path, *command: str) -> str:
    """Its container, started as the runtime makes it; the id."""
    leader, member = map(str, place.members)
    names = {"ddp": leader, "ddp-0": leader, "ddp-1": member}
    job = contained(f"w{machine.number}", mesh=place, names=names, command=command[0], args=command[1:])
    name = f"m{machine.number}"
    hosts.write_bytes(hosts_file(job, machine=name, address=machine.space.address))
    hosts.chmod(0o444)
    client = engine.client()
    try:
        network_ensure(client, machine.names.bridge, machine.order(), 1420)
        request = container_request(
            Container(
                assignment=job,
                assignment_id=job.id,
                agent=str(machine.state),
                machine=name,
                files=[Bound(hosts, "/etc/hosts")],
                drives=(),
                variables={},
                devices={},
                limits=Limits(memlock=0, nofile=1024),
                network=machine.names.bridge,
            )
        )
        made: str = client.api.create_container_from_config(request, job.id)["Id"]
        client.api.start(made)
    finally:
        client.close()
    return made
