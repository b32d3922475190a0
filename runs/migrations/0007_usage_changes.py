"""What runs hold and claim on machines is noted as usage: nothing else of these machines needs to be read again."""

from django.db import migrations

NOTED = """
CREATE OR REPLACE TRIGGER {table}_noted_insert AFTER INSERT ON {table} REFERENCING NEW TABLE AS touched
  FOR EACH STATEMENT EXECUTE FUNCTION {function}();
CREATE OR REPLACE TRIGGER {table}_noted_delete AFTER DELETE ON {table} REFERENCING OLD TABLE AS touched
  FOR EACH STATEMENT EXECUTE FUNCTION {function}();
"""

# As in 0005.
ALLOCATION_UPDATE = """
CREATE OR REPLACE FUNCTION runs_allocation_note_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO machines_machinechange (cluster_id, machine_id, usage, xid, at)
  SELECT DISTINCT m.cluster_id, m.id, {usage}, pg_current_xact_id()::text::bigint, now()
  FROM was o JOIN touched n ON n.id = o.id
  CROSS JOIN LATERAL (VALUES (o.machine_id), (n.machine_id)) AS either (id)
  JOIN machines_machine m ON m.id = either.id
  WHERE (o.machine_id, o.gpu_id, o.cpu_cores, o.memory_bytes, o.released_at IS NULL)
    IS DISTINCT FROM (n.machine_id, n.gpu_id, n.cpu_cores, n.memory_bytes, n.released_at IS NULL);
  RETURN NULL;
END $$;
"""


def noted(table: str) -> migrations.RunSQL:
    return migrations.RunSQL(
        NOTED.format(table=table, function="machines_note_usage"),
        NOTED.format(table=table, function="machines_note_rows"),
    )


class Migration(migrations.Migration):
    dependencies = [("runs", "0006_independent"), ("machines", "0007_usage_changes")]

    operations = [
        noted("runs_allocation"),
        noted("runs_claim"),
        migrations.RunSQL(ALLOCATION_UPDATE.format(usage="true"), ALLOCATION_UPDATE.format(usage="false")),
    ]
