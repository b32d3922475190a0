"""A machine's health is looked up by its unique rows: an index of the machine alone is one more to write."""

from typing import Any

import django.db.models.deletion
from django.db import migrations, models


def without_index(name: str) -> "models.ForeignKey[Any, Any]":
    return models.ForeignKey(
        db_index=False,
        on_delete=django.db.models.deletion.CASCADE,
        related_name=name,
        to="machines.machine",
    )


class Migration(migrations.Migration):
    dependencies = [("machines", "0015_replaced_agents")]

    operations = [
        migrations.AlterField("healthevent", "machine", without_index("health_events")),
        migrations.AlterField("healthoverride", "machine", without_index("health_overrides")),
    ]
