"""The rendezvous port of a gang's leader: 29500, or the next one free on its machine."""

from machines.models import Machine
from runs.models import Allocation
from wire.environment import RENDEZVOUS_PORTS, wanted_master_port
from wire.spec import RunDocument


class NoPort(Exception):
    """The leader's machine has no rendezvous port left for this run.

    `port`: the one that the run's MASTER_PORT names; None when all of ours are in use.
    """

    def __init__(self, machine: str, port: int | None) -> None:
        super().__init__(f"no rendezvous port on {machine}")
        self.machine, self.port = machine, port


def port_choose(leader: Machine, document: RunDocument) -> int:
    """A port that no other run's leader there holds and that nothing else uses, as far as its agent saw.

    A port that the run's own MASTER_PORT names is taken as it is. The caller holds the machine's lock.
    Raises NoPort.
    """
    held = set(
        Allocation.objects.filter(machine=leader, released_at=None, port__isnull=False).values_list(
            "port", flat=True
        )
    )
    wanted = wanted_master_port(document.groups()[0].template.env)
    if wanted is not None:
        if wanted in held:
            raise NoPort(leader.name, wanted)
        return wanted
    taken = held | set(leader.busy_ports)
    free = [port for port in RENDEZVOUS_PORTS if port not in taken]
    if not free:
        raise NoPort(leader.name, None)
    beside = _held_beside(leader) if leader.boot_id else set()
    return next((port for port in free if port not in beside), free[0])


def _held_beside(leader: Machine) -> set[int | None]:
    """Ports of leaders on other machines of the same running kernel at the same address: several agents of one host.

    They are avoided, not forbidden, and where a host has more agents than there are ports nothing is.
    """
    beside = Machine.objects.filter(boot_id=leader.boot_id, address=leader.address).exclude(id=leader.id)
    ids = list(beside.values_list("id", flat=True)[: len(RENDEZVOUS_PORTS) + 1])
    if len(ids) > len(RENDEZVOUS_PORTS):
        return set()
    held = Allocation.objects.filter(machine__in=ids, released_at=None, port__isnull=False)
    return set(held.values_list("port", flat=True))
