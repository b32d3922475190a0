"""Placement sees whether two agents use a machine's credential: the trigger of 0004 looks at that, too."""

from django.db import migrations

SEEN = (
    "cluster_id",
    "pool_id",
    "name",
    "version",
    "cpu_cores",
    "memory_bytes",
    "last_seen_at IS NULL",
    "unreachable_at IS NULL",
    "quarantined_at IS NULL",
    "cordoned_at IS NULL",
    "draining_at IS NULL",
    "removed_at IS NULL",
)


def watched(*columns: str) -> str:
    was, now = (", ".join(f"{row}.{column}" for column in columns) for row in ("OLD", "NEW"))
    return f"""
DROP TRIGGER machines_machine_noted_update ON machines_machine;
CREATE TRIGGER machines_machine_noted_update AFTER UPDATE ON machines_machine FOR EACH ROW
  WHEN (({was}) IS DISTINCT FROM ({now})) EXECUTE FUNCTION machines_machine_note();
"""


class Migration(migrations.Migration):
    dependencies = [("machines", "0012_pools_change")]

    operations = [migrations.RunSQL(watched(*SEEN, "two_agents_at IS NULL"), watched(*SEEN))]
