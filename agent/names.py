"""What a worker finds by name: one file /etc/hosts, for every runtime.

The run's and its workers' names come first, then the machine's own file, so that every other name resolves as on the
machine. The file belongs to one worker and goes with it: outside of its gang, and after it, nobody knows these names.
"""

from collections.abc import Mapping
from pathlib import Path

from wire.assignments import Assignment

HOSTS = Path("/etc/hosts")
_LOCAL = "localhost"


def hosts_file(assignment: Assignment, *, machine: str, address: str, hosts: Path = HOSTS) -> bytes:
    """`machine` is the worker's host name, which has to lead to an address that it has (gloo asks): its own one on the
    mesh, else `address`, the machine's."""
    own = str(assignment.mesh.address) if assignment.mesh else address
    return _lines({**_names(assignment), machine: own}).encode() + _machine_s(hosts)


def _names(assignment: Assignment) -> dict[str, str]:
    """No run is the local machine, whatever its name."""
    return {name: address for name, address in assignment.names.items() if name != _LOCAL}


def _lines(names: Mapping[str, str]) -> str:
    """A line for each name: resolvers read no more than so many of one line."""
    return "".join(f"{address}\t{name}\n" for name, address in names.items())


def _machine_s(hosts: Path) -> bytes:
    try:
        return hosts.read_bytes()
    except OSError:
        return f"127.0.0.1\t{_LOCAL}\n::1\t{_LOCAL}\n".encode()
