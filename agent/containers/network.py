"""The Docker network on the machine's subnet of the mesh."""

import docker
from docker.errors import APIError, NotFound
from docker.types import IPAMConfig, IPAMPool

from agent.mesh.mesh import Mesh
from agent.runtime import NotPrepared
from wire.mesh import MeshOrder, WorkerMesh, bridge_address


def mesh_network(client: docker.DockerClient, mesh: Mesh | None, worker: WorkerMesh) -> str:
    """The name of the network, made if need be, once the mesh itself stands. Raises NotPrepared."""
    flaw = mesh.ready(worker) if mesh is not None else "This agent has no mesh."
    order = mesh.order if mesh is not None else None
    if mesh is None or order is None or flaw:
        raise NotPrepared(f"The worker can't be on the mesh: {flaw or 'the machine has left it.'}")
    network_ensure(client, mesh.names.bridge, order, mesh.mtu)
    return mesh.names.bridge


def network_ensure(client: docker.DockerClient, name: str, order: MeshOrder, mtu: int) -> None:
    """Raises NotPrepared."""
    try:
        if not _stands(client, name, order):
            _create(client, name, order, mtu)
    except APIError as error:
        # Another worker's thread may have been faster.
        if not _stands(client, name, order):
            raise NotPrepared(f"The mesh has no network in the Docker engine: {error.explanation}") from error


def _stands(client: docker.DockerClient, name: str, order: MeshOrder) -> bool:
    """One with another subnet is left of an earlier range, and removed: no worker is on the mesh when that changes."""
    try:
        found = client.networks.get(name)
    except NotFound:
        return False
    pools = found.attrs.get("IPAM", {}).get("Config") or []
    if [pool.get("Subnet") for pool in pools] == [str(order.subnet)]:
        return True
    found.remove()
    return False


def _create(client: docker.DockerClient, name: str, order: MeshOrder, mtu: int) -> None:
    """Workers beside each other on one machine are never of one gang: they don't reach each other. Addresses to the
    outside are rewritten by the mesh's own rules, which leave its range alone."""
    pool = IPAMPool(subnet=str(order.subnet), gateway=str(bridge_address(order.subnet)))
    client.networks.create(
        name,
        driver="bridge",
        ipam=IPAMConfig(pool_configs=[pool]),
        check_duplicate=True,
        options={
            "com.docker.network.bridge.name": name,
            "com.docker.network.bridge.enable_ip_masquerade": "false",
            "com.docker.network.bridge.enable_icc": "false",
            "com.docker.network.driver.mtu": str(mtu),
        },
        labels={"io.astraeus.mesh": name},
    )
