"""Metrics and failures are looked up by their unique rows: an index of the first column alone is one more to write."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0014_drive_exports"), ("machines", "0016_doubled_indexes")]

    operations = [
        migrations.AlterField(
            "metricsample",
            "assignment",
            models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="metrics",
                to="runs.assignment",
            ),
        ),
        migrations.AlterField(
            "machinefailure",
            "machine",
            models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="failures",
                to="machines.machine",
            ),
        ),
    ]
