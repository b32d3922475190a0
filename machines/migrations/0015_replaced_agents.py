"""Every agent that was replaced is remembered for a while, not the last one alone: three may take turns."""

import django.db.models.deletion
from django.db import migrations, models

CARRY_OVER = """
INSERT INTO machines_replacedagent (machine_id, instance, at)
SELECT id, previous_instance, now() FROM machines_machine WHERE previous_instance <> ''
"""
CARRY_BACK = """
UPDATE machines_machine m SET previous_instance = r.instance FROM (
  SELECT DISTINCT ON (machine_id) machine_id, instance FROM machines_replacedagent ORDER BY machine_id, at DESC
) r WHERE r.machine_id = m.id
"""


class Migration(migrations.Migration):
    dependencies = [("machines", "0014_gpu_model_there")]

    operations = [
        migrations.CreateModel(
            name="ReplacedAgent",
            fields=[
                (
                    "id",
                    models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
                ),
                ("instance", models.CharField(max_length=64)),
                ("at", models.DateTimeField()),
                (
                    "machine",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="replaced_agents",
                        to="machines.machine",
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            "replacedagent",
            models.UniqueConstraint(models.F("machine"), models.F("instance"), name="agent_replaced_once"),
        ),
        migrations.RunSQL(CARRY_OVER, CARRY_BACK),
        migrations.RemoveField("machine", "previous_instance"),
    ]
