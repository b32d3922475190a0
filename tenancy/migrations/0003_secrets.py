"""Secrets and registry credentials of workspaces."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tenancy", "0002_audit_append_only")]

    operations = [
        migrations.CreateModel(
            name="Secret",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=63)),
                ("sealed", models.BinaryField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("changed_at", models.DateTimeField()),
                ("changed_by", models.CharField(max_length=200)),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="secrets",
                        to="tenancy.workspace",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(models.F("workspace"), models.F("name"), name="secret_name_unique")
                ],
            },
        ),
        migrations.CreateModel(
            name="RegistryCredential",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=63)),
                ("registry", models.CharField(max_length=260)),
                ("username", models.CharField(max_length=200)),
                ("sealed", models.BinaryField()),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("changed_at", models.DateTimeField()),
                ("changed_by", models.CharField(max_length=200)),
                (
                    "workspace",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="registry_credentials",
                        to="tenancy.workspace",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        models.F("workspace"), models.F("name"), name="registry_credential_name_unique"
                    )
                ],
            },
        ),
    ]
