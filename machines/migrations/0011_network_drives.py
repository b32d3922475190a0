"""A drive that other machines reach is on all machines of its cluster: a change of it is noted for all of them."""

from django.db import migrations

NOTE = """
    INSERT INTO machines_machinechange (cluster_id, machine_id, xid, at)
    SELECT m.cluster_id, m.id, pg_current_xact_id()::text::bigint, now()
    FROM machines_machine m
    WHERE m.cluster_id = {row}.cluster_id AND ({row}.machine_id IS NULL {reached} OR m.id = {row}.machine_id)
      AND ({row}.pool_id IS NULL OR m.pool_id = {row}.pool_id);
"""
SEEN = "{row}.cluster_id, {row}.name, {row}.machine_id, {row}.pool_id"


def function(reached: str) -> str:
    old, new = (NOTE.format(row=row, reached=reached.format(row=row)) for row in ("OLD", "NEW"))
    return f"""
    CREATE OR REPLACE FUNCTION machines_datavolume_note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF TG_OP <> 'INSERT' THEN {old} END IF;
      IF TG_OP <> 'DELETE' THEN {new} END IF;
      RETURN NULL;
    END $$;
    """


def update_trigger(seen: str) -> str:
    return f"""
    DROP TRIGGER machines_datavolume_noted_update ON machines_datavolume;
    CREATE TRIGGER machines_datavolume_noted_update AFTER UPDATE ON machines_datavolume FOR EACH ROW
      WHEN (({seen.format(row="OLD")}) IS DISTINCT FROM ({seen.format(row="NEW")}))
      EXECUTE FUNCTION machines_datavolume_note();
    """


class Migration(migrations.Migration):
    dependencies = [("machines", "0010_mesh")]

    operations = [
        migrations.RunSQL(
            function("OR {row}.reach = 'network'") + update_trigger(SEEN + ", {row}.reach"),
            function("") + update_trigger(SEEN),
        )
    ]
