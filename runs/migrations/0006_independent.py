"""Runs whose workers start on their own: one hidden run for each worker."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0005_machine_changes")]

    operations = [
        migrations.AddField("run", "independent", models.BooleanField(default=False)),
        migrations.AddField(
            "run",
            "parent",
            models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="children",
                to="runs.run",
            ),
        ),
        migrations.RemoveConstraint("run", "run_name_unique"),
        migrations.AddConstraint(
            "run",
            models.UniqueConstraint(
                models.F("workspace"),
                models.F("name"),
                name="run_name_unique",
                condition=models.Q(("parent", None)),
            ),
        ),
    ]
