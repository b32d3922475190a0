"""What runs hold and claim on machines is noted like what machines themselves change (machines/0004)."""

from django.db import migrations

NOTE = """
  INSERT INTO machines_machinechange (cluster_id, machine_id, xid, at)
  SELECT DISTINCT m.cluster_id, m.id, pg_current_xact_id()::text::bigint, now()
"""


def noted(table: str) -> migrations.RunSQL:
    """Inserts and deletes of rows with a machine_id."""
    return migrations.RunSQL(
        f"""
CREATE TRIGGER {table}_noted_insert AFTER INSERT ON {table} REFERENCING NEW TABLE AS touched
  FOR EACH STATEMENT EXECUTE FUNCTION machines_note_rows();
CREATE TRIGGER {table}_noted_delete AFTER DELETE ON {table} REFERENCING OLD TABLE AS touched
  FOR EACH STATEMENT EXECUTE FUNCTION machines_note_rows();
""",
        f"""
DROP TRIGGER {table}_noted_delete ON {table};
DROP TRIGGER {table}_noted_insert ON {table};
""",
    )


# A claim is only made and removed. Of an allocation all but its release is fixed, yet an administrator may correct it.
ALLOCATION_UPDATE = f"""
CREATE FUNCTION runs_allocation_note_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  {NOTE}
  FROM was o JOIN touched n ON n.id = o.id
  CROSS JOIN LATERAL (VALUES (o.machine_id), (n.machine_id)) AS either (id)
  JOIN machines_machine m ON m.id = either.id
  WHERE (o.machine_id, o.gpu_id, o.cpu_cores, o.memory_bytes, o.released_at IS NULL)
    IS DISTINCT FROM (n.machine_id, n.gpu_id, n.cpu_cores, n.memory_bytes, n.released_at IS NULL);
  RETURN NULL;
END $$;
CREATE TRIGGER runs_allocation_noted_update AFTER UPDATE ON runs_allocation
  REFERENCING OLD TABLE AS was NEW TABLE AS touched
  FOR EACH STATEMENT EXECUTE FUNCTION runs_allocation_note_update();
"""
ALLOCATION_UPDATE_UNDONE = """
DROP TRIGGER runs_allocation_noted_update ON runs_allocation;
DROP FUNCTION runs_allocation_note_update();
"""


class Migration(migrations.Migration):
    dependencies = [("runs", "0004_scheduling"), ("machines", "0004_machine_changes")]

    operations = [
        noted("runs_allocation"),
        noted("runs_claim"),
        migrations.RunSQL(ALLOCATION_UPDATE, ALLOCATION_UPDATE_UNDONE),
    ]
