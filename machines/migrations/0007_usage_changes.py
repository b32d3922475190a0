"""Notes tell whether more than a machine's state and what runs hold of it can be different."""

from django.db import migrations, models

HARDWARE = "{row}.cluster_id, {row}.pool_id, {row}.name, {row}.cpu_cores, {row}.memory_bytes, {row}.removed_at IS NULL"
SAME = f"({HARDWARE.format(row='OLD')}) IS NOT DISTINCT FROM ({HARDWARE.format(row='NEW')})"

# As in 0004, which says when it is called.
MACHINE = """
CREATE OR REPLACE FUNCTION machines_machine_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    INSERT INTO machines_machinechange (cluster_id, machine_id, usage, xid, at)
    VALUES (OLD.cluster_id, OLD.id, {usage}, pg_current_xact_id()::text::bigint, now());
  END IF;
  IF TG_OP = 'INSERT' OR (TG_OP = 'UPDATE' AND OLD.cluster_id <> NEW.cluster_id) THEN
    INSERT INTO machines_machinechange (cluster_id, machine_id, usage, xid, at)
    VALUES (NEW.cluster_id, NEW.id, false, pg_current_xact_id()::text::bigint, now());
  END IF;
  RETURN NULL;
END $$;
"""

ROWS = """
CREATE FUNCTION machines_note_usage() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO machines_machinechange (cluster_id, machine_id, usage, xid, at)
  SELECT DISTINCT m.cluster_id, m.id, true, pg_current_xact_id()::text::bigint, now()
  FROM touched t JOIN machines_machine m ON m.id = t.machine_id;
  RETURN NULL;
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("machines", "0006_discovery")]

    operations = [
        migrations.AddField("machinechange", "usage", models.BooleanField(db_default=False)),
        migrations.RunSQL(
            MACHINE.format(usage=f"TG_OP = 'UPDATE' AND {SAME}"), MACHINE.format(usage="false")
        ),
        migrations.RunSQL(ROWS, "DROP FUNCTION machines_note_usage();"),
    ]
