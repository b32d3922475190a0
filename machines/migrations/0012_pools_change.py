"""Pools are removed: a removed machine may be in none, every other one has to be in one."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("machines", "0011_network_drives")]

    operations = [
        migrations.AlterField(
            "machine",
            "pool",
            models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="machines",
                to="machines.pool",
            ),
        ),
        migrations.AddConstraint(
            "machine",
            models.CheckConstraint(
                condition=models.Q(("pool__isnull", False), ("removed_at__isnull", False), _connector="OR"),
                name="machine_has_a_pool",
            ),
        ),
    ]
