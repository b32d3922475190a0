"""Whose workers hold something is read from the index of those that do, without their rows."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0015_doubled_indexes"), ("machines", "0016_doubled_indexes")]

    operations = [
        migrations.RemoveIndex("assignment", "assignment_held"),
        migrations.AddIndex(
            "assignment",
            models.Index(
                models.F("machine"),
                condition=models.Q(gone_at=None),
                include=("attempt",),
                name="assignment_held",
            ),
        ),
    ]
