"""Clusters as the placement engine sees them, kept in the process and brought up to date by what has changed.

Triggers note every machine of which placement sees something else (`machines.models.MachineChange`), with the
transaction that wrote it. What a kept snapshot has not seen are the notes of transactions that were not visible to the
moment it was read at, whenever they began and committed: no cursor over ids or times, which would skip late commits.
"""

import threading
from collections import ChainMap, OrderedDict
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db import connection, transaction

from machines.models import Cluster
from placement import Snapshot
from placement.assemble import assemble
from placement.patch import patched, used
from runs.scheduling.rows import Rows, rows_load

WHOLE_FOR = timedelta(minutes=1)
"""Then everything is read anew, by the database's clock. Notes are kept much longer (machines/changes.py)."""

MOST_CLUSTERS = 16
"""Kept in a process: a snapshot of 10,000 machines takes some 20 MiB."""

PATCH_SHARE = 0.25
"""When more of the machines have changed, reading all of them is as fast."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A snapshot, and what applying a placement needs to check that it still holds."""

    snapshot: Snapshot
    versions: MutableMapping[int, int]
    """Machine id → version as read; what the caller sets here, only the caller sees."""
    names: Mapping[int, str]
    """Machine id → name."""


def cluster_load(cluster: Cluster) -> Loaded:
    """The cluster read anew, in a fixed number of queries."""
    return _whole(rows_load(cluster.id))


def cluster_snapshot(cluster: Cluster) -> Loaded:
    """The cluster as it is now, all of it as of one moment; of what this process knows only changes are read.

    Inside a transaction everything is read anew and nothing kept: that transaction may have written itself, and see
    rows that nobody else ever will.
    """
    if connection.in_atomic_block:
        return cluster_load(cluster)
    # Before a lock is waited for: whoever holds the lock must not wait for connections of those that wait for it.
    connection.ensure_connection()
    return _kept.of(cluster.id).now()


@dataclass(frozen=True, slots=True)
class _Moment:
    """What the database says of now, and of what has changed since an earlier moment."""

    visible: str
    """The transactions that are visible (pg_snapshot)."""
    at: datetime
    restored: bool
    """Its transactions count from lower numbers than before: it is another database, or an older state of it."""
    changed: frozenset[int]
    """Machine ids."""
    used: frozenset[int]
    """Of machines that have not changed otherwise, but are used differently."""
    fabrics_changed: bool


@dataclass(frozen=True, slots=True)
class _Read:
    """What is kept of a cluster."""

    loaded: Loaded
    visible: str
    whole_at: datetime
    """When all of it was read last."""


class _ClusterCache:
    """One cluster. Threads that ask at the same time wait for each other: the later ones find little to read."""

    def __init__(self, cluster_id: int) -> None:
        self.cluster_id = cluster_id
        self.lock = threading.Lock()
        self.read: _Read | None = None

    def now(self) -> Loaded:
        with self.lock:
            self.read = self._refreshed(self.read)
            loaded = self.read.loaded
        # A layer of the caller's own: a copy for each would cost more than what is read for most.
        return Loaded(loaded.snapshot, ChainMap({}, loaded.versions), loaded.names)

    def _refreshed(self, before: _Read | None) -> _Read:
        with transaction.atomic():
            moment = _moment(self.cluster_id, before.visible if before else None)
            if before is None or _too_much(before, moment):
                return _Read(_whole(rows_load(self.cluster_id), before), moment.visible, moment.at)
            loaded = before.loaded
            if moment.changed or moment.used or moment.fabrics_changed:
                used = moment.used & loaded.names.keys()
                changed = moment.changed | (moment.used - used)
                loaded = _patched(loaded, rows_load(self.cluster_id, changed, used=used), changed | used)
            return _Read(loaded, moment.visible, before.whole_at)


class _Caches:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.clusters: OrderedDict[int, _ClusterCache] = OrderedDict()

    def of(self, cluster_id: int) -> _ClusterCache:
        """The cluster's cache; the one that was not asked for the longest time makes room."""
        with self.lock:
            cache = self.clusters.setdefault(cluster_id, _ClusterCache(cluster_id))
            self.clusters.move_to_end(cluster_id)
            if len(self.clusters) > MOST_CLUSTERS:
                self.clusters.popitem(last=False)
            return cache


_kept = _Caches()


def _whole(rows: Rows, before: _Read | None = None) -> Loaded:
    """A topology that says the same as before stays the same object: much is remembered by it."""
    snapshot = assemble(rows.tables, storage_fabrics=rows.storage)
    if before and before.loaded.snapshot.topology.same_as(snapshot.topology):
        snapshot = replace(snapshot, topology=before.loaded.snapshot.topology)
    return Loaded(snapshot, rows.versions, rows.names)


def _patched(before: Loaded, rows: Rows, changed: frozenset[int]) -> Loaded:
    """With the machines in `changed` as `rows` has them; those that it lacks have gone."""
    there = changed - rows.used_versions.keys()
    was = {machine: before.names[machine] for machine in there if machine in before.names}
    left = was.keys() - rows.versions.keys()
    versions, names = {**before.versions, **rows.versions, **rows.used_versions}, before.names
    for machine in left:
        del versions[machine]
    if was != rows.names:
        names = {machine: name for machine, name in names.items() if machine not in left} | rows.names
    snapshot = used(before.snapshot, rows.usage)
    return Loaded(
        patched(snapshot, rows.tables, gone=was.values(), storage_fabrics=rows.storage), versions, names
    )


def _too_much(before: _Read, moment: _Moment) -> bool:
    return (
        moment.restored
        or not before.whole_at <= moment.at < before.whole_at + WHOLE_FOR
        or len(moment.changed | moment.used) > PATCH_SHARE * len(before.loaded.versions)
    )


_NOW = """
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY;
WITH noted AS MATERIALIZED (
  SELECT machine_id, bool_and(usage) AS usage FROM machines_machinechange
  WHERE cluster_id = %(cluster)s AND xid >= pg_snapshot_xmin(%(seen)s::pg_snapshot)::text::bigint
    AND NOT pg_visible_in_snapshot(xid::text::xid8, %(seen)s::pg_snapshot)
  GROUP BY machine_id
)
SELECT pg_current_snapshot()::text, now(),
  pg_snapshot_xmax(pg_current_snapshot()) < pg_snapshot_xmax(%(seen)s::pg_snapshot),
  ARRAY(SELECT machine_id FROM noted WHERE NOT usage), ARRAY(SELECT machine_id FROM noted WHERE usage)
"""


def _moment(cluster_id: int, seen: str | None) -> _Moment:
    """Begins a transaction that sees one moment. `seen`: the moment since when changes are asked for."""
    with connection.cursor() as cursor:
        cursor.execute(_NOW, {"cluster": cluster_id, "seen": seen})
        cursor.nextset()  # the answer to SET
        visible, at, restored, changed, used_only = cursor.fetchone()
    machines = frozenset(machine for machine in changed if machine is not None)
    return _Moment(
        visible, at, bool(restored), machines, frozenset(used_only), fabrics_changed=None in changed
    )
