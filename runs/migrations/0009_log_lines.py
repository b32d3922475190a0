"""How many lines end in each piece of a log, so that any line is found by its number."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

BATCH = 200


def count_lines(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:  # noqa: ARG001 - Django's signature
    LogChunk = apps.get_model("runs", "LogChunk")
    last = 0
    while batch := list(LogChunk.objects.filter(id__gt=last).order_by("id")[:BATCH]):
        for chunk in batch:
            chunk.lines = bytes(chunk.data).count(b"\n")
        LogChunk.objects.bulk_update(batch, ["lines"])
        last = batch[-1].id


class Migration(migrations.Migration):
    dependencies = [("runs", "0008_machine_failures")]

    operations = [
        migrations.AddField("logchunk", "lines", models.PositiveIntegerField(default=0)),
        migrations.RunPython(count_lines, migrations.RunPython.noop, elidable=True),
    ]
