"""Drives and who may use them; placement is told of each machine that has one, as by 0004_machine_changes."""

import django.db.models.deletion
from django.db import migrations, models

NOTE = """
    INSERT INTO machines_machinechange (cluster_id, machine_id, xid, at)
    SELECT m.cluster_id, m.id, pg_current_xact_id()::text::bigint, now()
    FROM machines_machine m
    WHERE m.cluster_id = {row}.cluster_id AND ({row}.machine_id IS NULL OR m.id = {row}.machine_id)
      AND ({row}.pool_id IS NULL OR m.pool_id = {row}.pool_id);
"""
SEEN = "{row}.cluster_id, {row}.name, {row}.machine_id, {row}.pool_id"

TRIGGERS = f"""
CREATE FUNCTION machines_datavolume_note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP <> 'INSERT' THEN {NOTE.format(row="OLD")} END IF;
  IF TG_OP <> 'DELETE' THEN {NOTE.format(row="NEW")} END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER machines_datavolume_noted AFTER INSERT OR DELETE ON machines_datavolume
  FOR EACH ROW EXECUTE FUNCTION machines_datavolume_note();
CREATE TRIGGER machines_datavolume_noted_update AFTER UPDATE ON machines_datavolume FOR EACH ROW
  WHEN (({SEEN.format(row="OLD")}) IS DISTINCT FROM ({SEEN.format(row="NEW")}))
  EXECUTE FUNCTION machines_datavolume_note();
"""
UNDONE = """
DROP TRIGGER machines_datavolume_noted_update ON machines_datavolume;
DROP TRIGGER machines_datavolume_noted ON machines_datavolume;
DROP FUNCTION machines_datavolume_note();
"""


class Migration(migrations.Migration):
    dependencies = [("machines", "0004_machine_changes"), ("tenancy", "0003_secrets")]

    operations = [
        migrations.CreateModel(
            name="DataVolume",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=63)),
                (
                    "kind",
                    models.CharField(
                        choices=[("shared", "shared"), ("machine", "on one machine")], max_length=7
                    ),
                ),
                ("path", models.CharField(max_length=4095)),
                (
                    "reach",
                    models.CharField(
                        choices=[
                            ("local", "workers on this machine"),
                            ("network", "workers on other machines too"),
                        ],
                        default="local",
                        max_length=7,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("changed_at", models.DateTimeField()),
                ("changed_by", models.CharField(max_length=200)),
                (
                    "cluster",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="drives",
                        to="machines.cluster",
                    ),
                ),
                (
                    "machine",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="drives",
                        to="machines.machine",
                    ),
                ),
                (
                    "pool",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="drives",
                        to="machines.pool",
                    ),
                ),
            ],
            options={
                "ordering": ("name",),
                "constraints": [
                    models.UniqueConstraint(models.F("cluster"), models.F("name"), name="drive_name_unique"),
                    models.CheckConstraint(
                        condition=models.Q(("reach__in", ["local", "network"])), name="drive_reach_known"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("kind", "shared"), ("machine", None), ("reach", "local")),
                            models.Q(("kind", "machine"), ("machine__isnull", False), ("pool", None)),
                            _connector="OR",
                        ),
                        name="drive_has_one_place",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="DataVolumeAccess",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("read_only", models.BooleanField(default=True)),
                (
                    "volume",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="access",
                        to="machines.datavolume",
                    ),
                ),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="drive_access",
                        to="tenancy.workspace",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        models.F("volume"), models.F("workspace"), name="one_access_per_drive"
                    )
                ],
            },
        ),
        migrations.RunSQL(TRIGGERS, UNDONE),
    ]
