"""Which machines attempts failed on: what the lemon score is made of."""

import django.db.models.deletion
from django.db import migrations, models
from django.db.models import F, Q

KINDS = [
    ("lost", "its worker was lost"),
    ("device", "its GPUs failed"),
    ("network", "its network failed"),
    ("hung", "its worker hung"),
    ("slow", "it was not ready in time"),
    ("prepare", "it could not prepare the worker"),
    ("program", "the program failed there"),
]


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0007_usage_changes"),
        ("machines", "0008_health_overrides"),
        ("tenancy", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="MachineFailure",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("run_name", models.CharField(max_length=63)),
                ("kind", models.CharField(choices=KINDS, max_length=12)),
                ("times", models.PositiveIntegerField(default=1)),
                ("at", models.DateTimeField()),
                ("text", models.CharField(max_length=500)),
                (
                    "machine",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="failures",
                        to="machines.machine",
                    ),
                ),
                (
                    "run",
                    models.ForeignKey(
                        null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to="runs.run"
                    ),
                ),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="tenancy.workspace"
                    ),
                ),
            ],
            options={
                "ordering": ("-at", "-id"),
                "indexes": [models.Index(F("at"), name="machine_failure_age")],
                "constraints": [
                    models.UniqueConstraint(F("machine"), F("run"), F("kind"), name="machine_failure_once"),
                    models.CheckConstraint(
                        condition=Q(("kind__in", [kind for kind, _ in KINDS])), name="machine_failure_known"
                    ),
                ],
            },
        ),
    ]
