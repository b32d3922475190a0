"""Triggers note every machine of which placement sees something else: no writer has to think of it.

Rows with a machine_id are looked at by whole statements: a gang's rows are one INSERT. Machines are looked at row by
row, because a WHEN clause costs an agent's many reports nothing, while transition tables would be filled each time.
"""

from django.db import migrations, models

NOTE = "INSERT INTO machines_machinechange (cluster_id, machine_id, xid, at)"
NOW = "pg_current_xact_id()::text::bigint, now()"

ROWS = f"""
CREATE FUNCTION machines_note_rows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  {NOTE}
  SELECT DISTINCT m.cluster_id, m.id, {NOW}
  FROM touched t JOIN machines_machine m ON m.id = t.machine_id;
  RETURN NULL;
END $$;
"""


def watched(table: str, columns: tuple[str, ...]) -> migrations.RunSQL:
    """Rows of `table`, which have a machine_id: inserts, deletes, and updates of these columns."""
    was, now = (", ".join(f"{row}.{column}" for column in columns) for row in ("o", "n"))
    return migrations.RunSQL(
        f"""
CREATE TRIGGER {table}_noted_insert AFTER INSERT ON {table} REFERENCING NEW TABLE AS touched
  FOR EACH STATEMENT EXECUTE FUNCTION machines_note_rows();
CREATE TRIGGER {table}_noted_delete AFTER DELETE ON {table} REFERENCING OLD TABLE AS touched
  FOR EACH STATEMENT EXECUTE FUNCTION machines_note_rows();
CREATE FUNCTION {table}_note_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  {NOTE}
  SELECT DISTINCT m.cluster_id, m.id, {NOW}
  FROM was o JOIN touched n ON n.id = o.id
  CROSS JOIN LATERAL (VALUES (o.machine_id), (n.machine_id)) AS either (id)
  JOIN machines_machine m ON m.id = either.id
  WHERE (o.machine_id, {was}) IS DISTINCT FROM (n.machine_id, {now});
  RETURN NULL;
END $$;
CREATE TRIGGER {table}_noted_update AFTER UPDATE ON {table}
  REFERENCING OLD TABLE AS was NEW TABLE AS touched
  FOR EACH STATEMENT EXECUTE FUNCTION {table}_note_update();
""",
        f"""
DROP TRIGGER {table}_noted_update ON {table};
DROP FUNCTION {table}_note_update();
DROP TRIGGER {table}_noted_delete ON {table};
DROP TRIGGER {table}_noted_insert ON {table};
""",
    )


MACHINE_SEEN = ", ".join(
    f"{{row}}.{column}"
    for column in (
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
)

MACHINE = f"""
CREATE FUNCTION machines_machine_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' THEN
    {NOTE} VALUES (OLD.cluster_id, OLD.id, {NOW});
  END IF;
  IF TG_OP = 'INSERT' OR (TG_OP = 'UPDATE' AND OLD.cluster_id <> NEW.cluster_id) THEN
    {NOTE} VALUES (NEW.cluster_id, NEW.id, {NOW});
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER machines_machine_noted AFTER INSERT OR DELETE ON machines_machine
  FOR EACH ROW EXECUTE FUNCTION machines_machine_note();
CREATE TRIGGER machines_machine_noted_update AFTER UPDATE ON machines_machine FOR EACH ROW
  WHEN (({MACHINE_SEEN.format(row="OLD")}) IS DISTINCT FROM ({MACHINE_SEEN.format(row="NEW")}))
  EXECUTE FUNCTION machines_machine_note();
"""
MACHINE_UNDONE = """
DROP TRIGGER machines_machine_noted_update ON machines_machine;
DROP TRIGGER machines_machine_noted ON machines_machine;
DROP FUNCTION machines_machine_note();
"""

# A fabric's name is part of what its machines' ports say. Whether it is storage counts for ports that a label puts
# on it as well, hence the row without a machine.
FABRIC = f"""
CREATE FUNCTION machines_fabric_note() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  fabric machines_fabric := coalesce(NEW, OLD);
BEGIN
  {NOTE} VALUES (fabric.cluster_id, NULL, {NOW});
  IF TG_OP = 'UPDATE' AND OLD.name <> NEW.name THEN
    {NOTE}
    SELECT DISTINCT m.cluster_id, m.id, {NOW}
    FROM machines_rdmaport p JOIN machines_machine m ON m.id = p.machine_id WHERE p.fabric_id = fabric.id;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER machines_fabric_noted AFTER INSERT OR DELETE ON machines_fabric
  FOR EACH ROW EXECUTE FUNCTION machines_fabric_note();
CREATE TRIGGER machines_fabric_noted_update AFTER UPDATE ON machines_fabric FOR EACH ROW
  WHEN ((OLD.name, OLD.storage) IS DISTINCT FROM (NEW.name, NEW.storage))
  EXECUTE FUNCTION machines_fabric_note();
"""
FABRIC_UNDONE = """
DROP TRIGGER machines_fabric_noted_update ON machines_fabric;
DROP TRIGGER machines_fabric_noted ON machines_fabric;
DROP FUNCTION machines_fabric_note();
"""

POOL = f"""
CREATE FUNCTION machines_pool_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  {NOTE} SELECT m.cluster_id, m.id, {NOW} FROM machines_machine m WHERE m.pool_id = NEW.id;
  RETURN NULL;
END $$;
CREATE TRIGGER machines_pool_noted AFTER UPDATE ON machines_pool FOR EACH ROW
  WHEN (OLD.slug <> NEW.slug) EXECUTE FUNCTION machines_pool_note();
"""
POOL_UNDONE = """
DROP TRIGGER machines_pool_noted ON machines_pool;
DROP FUNCTION machines_pool_note();
"""

GPU_SEEN = ("index", "model", "memory_bytes", "numa_node", "nvlink_domain", "health", "present")
PORT_SEEN = ("device", "port", "link_layer", "state", "rate_gbps", "fabric_id")
LABEL_SEEN = ("key", "value", "found")


class Migration(migrations.Migration):
    dependencies = [("machines", "0003_drain_and_remove")]

    operations = [
        migrations.CreateModel(
            name="MachineChange",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("cluster_id", models.BigIntegerField()),
                ("machine_id", models.BigIntegerField(null=True)),
                ("xid", models.BigIntegerField()),
                ("at", models.DateTimeField()),
            ],
            options={
                "indexes": [
                    models.Index(models.F("cluster_id"), models.F("xid"), name="machine_change_since"),
                    models.Index(models.F("at"), name="machine_change_age"),
                ],
            },
        ),
        migrations.RunSQL(ROWS, "DROP FUNCTION machines_note_rows();"),
        migrations.RunSQL(MACHINE, MACHINE_UNDONE),
        migrations.RunSQL(FABRIC, FABRIC_UNDONE),
        migrations.RunSQL(POOL, POOL_UNDONE),
        watched("machines_gpu", GPU_SEEN),
        watched("machines_rdmaport", PORT_SEEN),
        watched("machines_machinelabel", LABEL_SEEN),
    ]
