"""Fair share: GPU-seconds that workspaces have used of a cluster, halved every seven days."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import Max

from machines.models import Cluster
from runs.models import WorkspaceUsage

HALF_LIFE = timedelta(days=7)
CHARGED_EVERY = timedelta(minutes=1)
"""Between two chargings the order stays fair enough: a placement is charged within its own pass."""
_RATE = math.log(2) / HALF_LIFE.total_seconds()


def usage_of(cluster: Cluster, now: datetime) -> dict[int, float]:
    """Decayed GPU-seconds by workspace, as they were charged last."""
    rows = WorkspaceUsage.objects.filter(cluster=cluster)
    return {row.workspace_id: row.gpu_seconds * decay(now - row.at) for row in rows}


def usage_charge_due(cluster: Cluster, now: datetime) -> None:
    """Charges what was used since the last charging, when that is a minute old. Under the cluster's lock."""
    last = WorkspaceUsage.objects.filter(cluster=cluster).aggregate(last=Max("at"))["last"]
    if last is None or now - last >= CHARGED_EVERY:
        usage_charge(cluster, last, now)


def decay(elapsed: timedelta) -> float:
    """What is left of a GPU-second after this time. A clock that was set back decays nothing."""
    return math.exp(-_RATE * max(elapsed.total_seconds(), 0.0))


@transaction.atomic
def usage_charge(cluster: Cluster, since: datetime | None, now: datetime) -> None:
    """Adds what was held between `since` (None: ever) and `now` to every workspace's usage."""
    used = _held_between(cluster, since, now)
    known = {row.workspace_id: row for row in WorkspaceUsage.objects.filter(cluster=cluster)}
    for workspace in used.keys() | known.keys():
        row = known.get(workspace) or WorkspaceUsage(workspace_id=workspace, cluster=cluster, at=now)
        row.gpu_seconds = row.gpu_seconds * decay(now - row.at) + used.get(workspace, 0.0)
        row.at = now
        row.save()


_HELD_BETWEEN = """
SELECT workspace_id, sum(exp(-%(rate)s * after) - exp(-%(rate)s * before)) / %(rate)s
FROM (
    SELECT
        run.workspace_id,
        extract(epoch FROM %(now)s - least(coalesce(held.released_at, %(now)s), %(now)s)) AS after,
        extract(epoch FROM %(now)s - greatest(held.created_at, %(since)s)) AS before
    FROM runs_allocation held
    JOIN machines_machine machine ON machine.id = held.machine_id
    JOIN runs_assignment assignment ON assignment.id = held.assignment_id
    JOIN runs_runattempt attempt ON attempt.id = assignment.attempt_id
    JOIN runs_run run ON run.id = attempt.run_id
    WHERE machine.cluster_id = %(cluster)s AND held.gpu_id IS NOT NULL
        AND (held.released_at IS NULL OR held.released_at > %(since)s)
) spans
WHERE before > after
GROUP BY workspace_id
"""
"""For each GPU the integral of the decay over the time it was held: summed where the rows are, there may be 80,000."""
_EVER = datetime(2000, 1, 1, tzinfo=UTC)


def _held_between(cluster: Cluster, since: datetime | None, now: datetime) -> dict[int, float]:
    """Decayed GPU-seconds by workspace."""
    given: dict[str, Any] = {"rate": _RATE, "now": now, "since": since or _EVER, "cluster": cluster.id}
    with connection.cursor() as cursor:
        cursor.execute(_HELD_BETWEEN, given)
        return {workspace: float(seconds) for workspace, seconds in cursor.fetchall()}
