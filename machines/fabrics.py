"""Which fabric each InfiniBand port is in: by what its agent says of its subnet manager, and what was known before.

A fabric is known by a key: its subnet manager's port GUID, or a guess. When a standby takes over, all its ports say
another key within seconds. So a key that nobody knows yet doesn't move a port at once: the fabric takes the new key as
soon as most of its ports say it, and only ports that are alone with theirs for a while become a fabric of their own.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, QuerySet

from common.clock import database_now
from machines.models import Cluster, Fabric, Machine, RdmaPort
from machines.services import machines_lock
from machines.signals import cluster_changed
from machines.states import LinkLayer
from wire.inventory import PortReport

HOLD = timedelta(minutes=2)
"""How long ports with a key of their own stay where they were: agents look every ten seconds."""
FORMER_FOR = timedelta(hours=1)
"""How long a fabric's former key still means it: agents ask for a manager's GUID every five minutes."""


def reported_key(report: PortReport) -> str:
    """Empty while no subnet manager is known, and for other ports."""
    return (report.subnet_manager or "") if report.link_layer == "InfiniBand" else ""


class KnownFabrics:
    """A cluster's fabrics by key, the former ones included."""

    def __init__(self, cluster_id: int, now: datetime) -> None:
        self.cluster_id = cluster_id
        self._now = now
        fabrics = list(Fabric.objects.filter(cluster=cluster_id).order_by("id"))
        self._guessed = {fabric.id: fabric.guessed for fabric in fabrics}
        former = {key: fabric.id for fabric in fabrics for key in former_now(fabric, now)}
        self._ids = former | {fabric.key: fabric.id for fabric in fabrics}

    def of(self, port: RdmaPort | None, report: PortReport) -> int | None:
        """The fabric of a port. `port`: as it is known; None: it is new."""
        key = reported_key(report)
        if not key:
            # A port that is down has forgotten its manager; it hasn't been moved.
            down = report.link_layer == "InfiniBand" and report.state != "ACTIVE"
            return port.fabric_id if port and down else None
        if port is None or port.fabric_id is None or _elsewhere(port, report):
            return self.find(key, guessed=report.guessed)
        if report.guessed and not self._guessed.get(port.fabric_id, True):
            return port.fabric_id  # what was found out is better than a guess
        return self._ids.get(key) or port.fabric_id

    def find(self, key: str, *, guessed: bool) -> int:
        """The fabric with this key, made if need be."""
        return self._ids.get(key) or self._make(key, guessed=guessed)

    def _make(self, key: str, *, guessed: bool) -> int:
        self._ids[key] = fabric_id = _fabric_make(self.cluster_id, key, guessed=guessed)
        self._guessed[fabric_id] = guessed
        return fabric_id


def _elsewhere(port: RdmaPort, report: PortReport) -> bool:
    """Another subnet prefix is another subnet, whoever manages it."""
    return bool(port.subnet_prefix and report.subnet_prefix and port.subnet_prefix != report.subnet_prefix)


def former_now(fabric: Fabric, now: datetime) -> list[str]:
    """Its former keys that still mean it."""
    return [key for key, until in fabric.former_keys.items() if now.timestamp() < until]


def _fabric_make(cluster_id: int, key: str, *, guessed: bool) -> int:
    # Two machines that bring a new fabric each at the same moment must not give both one name.
    Cluster.objects.select_for_update().get(id=cluster_id)
    fabric, _ = Fabric.objects.get_or_create(
        cluster_id=cluster_id, key=key, defaults={"name": _fabric_name(cluster_id), "guessed": guessed}
    )
    return fabric.id


def _fabric_name(cluster_id: int) -> str:
    """The next free of ib-a, ib-b, …, ib-z, ib-27, …; people may have taken one for another fabric."""
    taken = set(Fabric.objects.filter(cluster=cluster_id).values_list("name", flat=True))
    letters = "abcdefghijklmnopqrstuvwxyz"
    names = [f"ib-{letter}" for letter in letters] + [f"ib-{number}" for number in range(27, 28 + len(taken))]
    return next(name for name in names if name not in taken)


# --- hand-overs


@dataclass(frozen=True, slots=True)
class Says:
    """What a port says, as far as it matters where it belongs."""

    port_id: int
    machine_id: int
    key: str
    guessed: bool
    since: datetime | None


@dataclass(frozen=True, slots=True)
class Settlement:
    """`key`: the one that the fabric takes (with whether it is a guess), None: it keeps its own. `leaving`: ports that
    belong elsewhere."""

    key: tuple[str, bool] | None
    leaving: tuple[Says, ...]


def settled(fabric: Fabric, ports: Iterable[Says], known_keys: Iterable[str], now: datetime) -> Settlement:
    """Decides, purely. `ports`: those of the fabric that can say something now; `known_keys`: of other fabrics."""
    others, mine = set(known_keys), {fabric.key, *former_now(fabric, now)}
    speaking = [port for port in ports if port.key and not (port.guessed and not fabric.guessed)]
    taken = _successor(speaking, fabric.key, mine, others)
    if taken is not None:
        mine.add(taken[0])
    leaving = [port for port in speaking if port.key not in mine and _long(port, others, now)]
    return Settlement(taken, tuple(leaving))


def _successor(
    speaking: Sequence[Says], key: str, mine: set[str], others: set[str]
) -> tuple[str, bool] | None:
    """The key (and whether it is guessed) that takes the fabric over: the one that most say, or when nobody says what
    the fabric was known by any more, the one that more say than any other."""
    counts = Counter((port.key, port.guessed) for port in speaking if port.key not in others)
    del counts[key, False], counts[key, True]
    if not counts:
        return None
    most = max(counts, key=lambda each: (counts[each], each))
    forgotten = not any(port.key in mine for port in speaking)
    return most if forgotten or counts[most] * 2 > len(speaking) else None


def _long(port: Says, others: set[str], now: datetime) -> bool:
    return port.key in others or (port.since is not None and now - port.since >= HOLD)


def fabrics_sweep() -> None:
    """Of all clusters: time alone makes ports that say otherwise part."""
    for cluster_id in Cluster.objects.values_list("id", flat=True):
        fabrics_settle(cluster_id)


@transaction.atomic
def fabrics_settle(cluster_id: int) -> None:
    """Gives fabrics whose subnet manager was handed over their new key; parts ports that say otherwise for long.

    In a transaction of its own: it locks machines by id, then the cluster.
    """
    doubtful = set(_doubtful(cluster_id).values_list("machine_id", flat=True))
    if not doubtful:
        return
    machines_lock(doubtful)
    Cluster.objects.select_for_update().get(id=cluster_id)
    now = database_now()
    fabrics = list(Fabric.objects.filter(cluster=cluster_id).order_by("id"))
    says = _says(cluster_id)
    leaving: list[Says] = []
    for fabric in fabrics:
        others = [other.key for other in fabrics if other.id != fabric.id]
        found = settled(fabric, says.get(fabric.id, ()), others, now)
        if found.key is not None:
            _rekey(fabric, *found.key, now)
        leaving += (port for port in found.leaving if port.machine_id in doubtful)
    # Last of all: a key that one fabric has just taken over is no new fabric for the ports of another.
    _part(cluster_id, leaving, now)


def _doubtful(cluster_id: int) -> QuerySet[RdmaPort]:
    """Ports that say another key than their fabric has, and may be right: nearly always there are none."""
    saying = _ports(cluster_id).exclude(reported_key="").exclude(reported_key=F("fabric__key"))
    return saying.exclude(reported_guess=True, fabric__guessed=False)


def _ports(cluster_id: int) -> QuerySet[RdmaPort]:
    """Those that know what they say now: a machine that isn't heard, and a port that is down, keep still."""
    return RdmaPort.objects.filter(
        machine__cluster=cluster_id,
        machine__removed_at=None,
        machine__unreachable_at=None,
        link_layer=LinkLayer.INFINIBAND,
        state="ACTIVE",
        fabric__isnull=False,
    )


def _says(cluster_id: int) -> Mapping[int, list[Says]]:
    found: dict[int, list[Says]] = {}
    for port in _ports(cluster_id).order_by("id"):
        says = Says(port.id, port.machine_id, port.reported_key, port.reported_guess, port.reported_at)
        found.setdefault(port.fabric_id or 0, []).append(says)
    return found


def _rekey(fabric: Fabric, key: str, guessed: bool, now: datetime) -> None:
    until = (now + FORMER_FOR).timestamp()
    kept = {
        former: end for former, end in fabric.former_keys.items() if end > now.timestamp() and former != key
    }
    fabric.former_keys = {**kept, fabric.key: until}
    fabric.key, fabric.guessed = key, guessed
    fabric.save(update_fields=["key", "guessed", "former_keys"])


def _part(cluster_id: int, leaving: Sequence[Says], now: datetime) -> None:
    """They go to the fabric of their own key; placement sees another machine then."""
    if not leaving:
        return
    known = KnownFabrics(cluster_id, now)
    for port in leaving:
        fabric_id = known.find(port.key, guessed=port.guessed)
        RdmaPort.objects.filter(id=port.port_id).update(fabric_id=fabric_id)
    machines = Machine.objects.filter(id__in={port.machine_id for port in leaving})
    machines.update(version=F("version") + 1)
    cluster_changed.send(sender=Fabric, cluster_id=cluster_id)
