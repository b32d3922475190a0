"""Machines of a site with a mesh, without consoles and engines: each runs the agent's own mesh in its namespace.
A worker is a namespace more, at a bridge of its machine, as Docker makes them.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from agent.mesh.plan import Names, names_of
from tests.docker.spaces import Space, run
from wire.assignments import Assignment, Desired
from wire.mesh import MeshOrder, MeshPeer, MeshReport, WorkerMesh, bridge_address, subnet_of

ROOT = Path(__file__).parents[2]
RANGE = "100.64.0.0/10"
PORT = 29500
_SERVER = """
import socketserver, sys
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(self.client_address[0].encode() + b" " + line)
socketserver.ThreadingTCPServer.allow_reuse_address = True
with socketserver.ThreadingTCPServer(("0.0.0.0", int(sys.argv[1])), Echo) as server:
    print("listens", flush=True)
    server.serve_forever()
"""
_CLIENT = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])) as to:
    to.settimeout(60)
    print("connected", flush=True)
    for line in sys.stdin:
        to.sendall(line.encode())
        print(to.makefile().readline(), end="", flush=True)
"""


@dataclass
class Talk:
    """A process that is asked and answers, line by line."""

    process: subprocess.Popen[str]

    @staticmethod
    def begin(command: list[str]) -> "Talk":
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, bufsize=1
        )
        return Talk(process)

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, line: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        return self.hear()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@dataclass
class Worker:
    space: Space
    address: str
    talks: list[Talk] = field(default_factory=list)

    def serve(self, port: int = PORT) -> None:
        """Says to whoever connects what it hears, and from where it comes."""
        talk = self._python(_SERVER, str(port))
        assert talk.hear() == "listens"

    def connect(self, address: str, port: int = PORT, seconds: float = 30) -> Talk:
        talk = self._python(_CLIENT, address, str(port), str(seconds))
        assert talk.hear() == "connected", f"{self.address} can't connect to {address}:{port}"
        return talk

    def reaches(self, address: str, port: int = PORT) -> bool:
        talk = self._python(_CLIENT, address, str(port), "2")
        return talk.hear() == "connected"

    def _python(self, script: str, *arguments: str) -> Talk:
        talk = Talk.begin(self.space.inside(sys.executable, "-c", script, *arguments))
        self.talks.append(talk)
        return talk

    def end(self) -> None:
        for talk in self.talks:
            talk.kill()
        self.space.close()


@dataclass
class MeshMachine:
    """`number` is its subnet's."""

    space: Space
    state: Path
    number: int
    report: MeshReport | None = None
    process: Talk | None = None
    workers: list[Worker] = field(default_factory=list)

    @property
    def subnet(self) -> IPv4Network:
        return subnet_of(RANGE, self.number)

    @property
    def names(self) -> Names:
        assert self.report is not None
        return names_of(self.report.public_key)

    def start(self) -> "MeshMachine":
        self.state.mkdir(mode=0o700, exist_ok=True)
        command = (sys.executable, "-m", "tests.docker.mesh_process", str(self.state), self.space.address)
        self.process = Talk.begin(self.space.inside(*command))
        self.report = MeshReport.model_validate_json(self.process.hear())
        return self

    def start_off(self) -> str:
        """The agent comes again, told to keep off the mesh. Its report."""
        assert self.process is not None
        self.process.kill()
        command = (
            sys.executable,
            "-m",
            "tests.docker.mesh_process",
            str(self.state),
            self.space.address,
            "off",
        )
        self.process = Talk.begin(self.space.inside(*command))
        return self.process.hear()

    def peer(self) -> MeshPeer:
        assert self.report is not None
        fields = {"public_key": self.report.public_key, "endpoint": self.report.endpoint}
        return MeshPeer(machine=f"m{self.number}", subnet=self.subnet, **fields)

    def order(self, *peers: "MeshMachine") -> MeshOrder:
        return MeshOrder(
            range=IPv4Network(RANGE), subnet=self.subnet, peers=tuple(peer.peer() for peer in peers)
        )

    def tell(self, order: MeshOrder | None, *workers: WorkerMesh) -> dict[str, Any]:
        """Has the machine's mesh be so; its answer."""
        assert self.process is not None
        assignments = tuple(
            Assignment(id=f"a{n}", phase="start", run="r", worker="w", attempt=1, rank=0, mesh=worker)
            for n, worker in enumerate(workers)
        )
        answer: dict[str, Any] = json.loads(
            self.process.ask(Desired(assignments=assignments, mesh=order).model_dump_json())
        )
        return answer

    def peers(self) -> set[str]:
        return set(self.space.call("wg", "show", self.names.interface, "peers").split())

    def add_worker(self) -> Worker:
        """A namespace at the machine's bridge, with the next address of its subnet."""
        position = 2 + len(self.workers)
        worker = Worker(Space().open(), str(self.subnet[position]))
        self.workers.append(worker)
        bridge, gateway = self.names.bridge, str(bridge_address(self.subnet))
        if position == 2:
            run("ip", "-n", self.space.name, "link", "add", bridge, "type", "bridge")
            run("ip", "-n", self.space.name, "address", "add", f"{gateway}/24", "dev", bridge)
            run("ip", "-n", self.space.name, "link", "set", bridge, "up")
        inner, outer = f"i{os.getpid()}x{self.number}", f"v{position}"
        run("ip", "-n", self.space.name, "link", "add", outer, "type", "veth", "peer", "name", inner)
        run("ip", "-n", self.space.name, "link", "set", outer, "master", bridge, "up")
        run("ip", "-n", self.space.name, "link", "set", inner, "netns", worker.space.name)
        for command in (
            ("link", "set", inner, "name", "eth0"),
            ("address", "add", f"{worker.address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "mtu", "1420", "up"),
            ("route", "add", "default", "via", gateway),
        ):
            run("ip", "-n", worker.space.name, *command)
        return worker

    def clean(self) -> None:
        for worker in self.workers:
            worker.end()
        if self.process is not None:
            self.process.kill()
        if self.report is not None:  # wireguard-go goes with its interface
            delete = ["ip", "-n", self.space.name, "link", "delete", self.names.interface]
            subprocess.run(delete, capture_output=True, timeout=30, check=False)


def gang(leader: MeshMachine, *workers: Worker) -> list[WorkerMesh]:
    """The places of workers, the first of which is the leader, on `leader`."""
    addresses = [worker.address for worker in workers]
    return [
        WorkerMesh.model_validate(
            {
                "address": address,
                "members": addresses,
                "leader": addresses[0],
                "master_address": leader.space.address,
                "master_port": PORT,
            }
        )
        for address in addresses
    ]
