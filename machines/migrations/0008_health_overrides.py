"""What administrators say of health, beside what agents report; a faulty port counts as down, so triggers note it."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import F, Q

HEALTH = [("healthy", "Healthy"), ("suspect", "Suspect"), ("faulty", "Faulty")]
KNOWN = ["healthy", "suspect", "faulty"]

# What was stored until now is what agents reported.
COPY = "; ".join(
    f"UPDATE {table} SET reported_health = health, reported_evidence = evidence WHERE health <> 'healthy'"
    for table in ("machines_machine", "machines_gpu", "machines_rdmaport")
)

PORT_HEALTH = """
CREATE FUNCTION machines_rdmaport_note_health() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO machines_machinechange (cluster_id, machine_id, xid, at)
  SELECT DISTINCT m.cluster_id, m.id, pg_current_xact_id()::text::bigint, now()
  FROM was o JOIN touched n ON n.id = o.id JOIN machines_machine m ON m.id = n.machine_id
  WHERE (o.health = 'faulty') <> (n.health = 'faulty');
  RETURN NULL;
END $$;
CREATE TRIGGER machines_rdmaport_noted_health AFTER UPDATE ON machines_rdmaport
  REFERENCING OLD TABLE AS was NEW TABLE AS touched
  FOR EACH STATEMENT EXECUTE FUNCTION machines_rdmaport_note_health();
"""
PORT_HEALTH_UNDONE = """
DROP TRIGGER machines_rdmaport_noted_health ON machines_rdmaport;
DROP FUNCTION machines_rdmaport_note_health();
"""


def reported(model: str) -> list[migrations.AddField]:
    return [
        migrations.AddField(
            model, "reported_health", models.CharField(choices=HEALTH, default="healthy", max_length=8)
        ),
        migrations.AddField(model, "reported_evidence", models.CharField(blank=True, max_length=300)),
    ]


class Migration(migrations.Migration):
    dependencies = [("machines", "0007_usage_changes")]

    operations = [
        *reported("machine"),
        *reported("gpu"),
        *reported("rdmaport"),
        migrations.RunSQL(COPY, migrations.RunSQL.noop),
        migrations.AddField(
            "healthevent", "by", models.CharField(blank=True, default="", max_length=200), preserve_default=False
        ),
        migrations.CreateModel(
            name="HealthOverride",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("subject", models.CharField(max_length=100)),
                ("health", models.CharField(choices=HEALTH, max_length=8)),
                ("reason", models.CharField(max_length=200)),
                ("set_by", models.CharField(max_length=200)),
                ("set_at", models.DateTimeField()),
                ("until", models.DateTimeField()),
                (
                    "machine",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="health_overrides",
                        to="machines.machine",
                    ),
                ),
            ],
            options={
                "ordering": ("machine_id", "subject"),
                "indexes": [models.Index(F("until"), name="health_override_until")],
                "constraints": [
                    models.UniqueConstraint(F("machine"), F("subject"), name="health_override_once"),
                    models.CheckConstraint(condition=Q(("health__in", KNOWN)), name="health_override_known"),
                ],
            },
        ),
        migrations.AddConstraint(
            "fabric", models.UniqueConstraint(F("cluster"), F("name"), name="fabric_name_unique")
        ),
        migrations.RunSQL(PORT_HEALTH, PORT_HEALTH_UNDONE),
    ]
