"""What a workspace's runs hold."""

from django.db import connection

from tenancy.models import Workspace

# Step by step from the few assignments that hold something: left to itself PostgreSQL reads every attempt there was.
_USED = """
WITH held AS MATERIALIZED (
    SELECT a.id, a.attempt_id, m.pool_id
    FROM runs_assignment a JOIN machines_machine m ON m.id = a.machine_id
    WHERE a.gone_at IS NULL
),
own AS MATERIALIZED (
    SELECT t.id FROM runs_runattempt t JOIN runs_run r ON r.id = t.run_id
    WHERE r.workspace_id = %s AND t.id = ANY (ARRAY(SELECT DISTINCT attempt_id FROM held))
),
used AS MATERIALIZED (
    SELECT held.id, held.pool_id FROM held JOIN own ON own.id = held.attempt_id
)
SELECT used.pool_id, count(*)
FROM used JOIN runs_allocation l ON l.assignment_id = used.id
WHERE l.gpu_id IS NOT NULL AND l.released_at IS NULL
GROUP BY used.pool_id
"""


def gpus_used(workspace: Workspace) -> dict[int, int]:
    """Pool id → GPUs that the workspace's runs hold there, of pools where they hold any."""
    with connection.cursor() as cursor:
        cursor.execute(_USED, [workspace.id])
        return dict(cursor.fetchall())
