"""What agents discover: hardware, health and its events, checks; how a fabric is known over a hand-over."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('machines', '0005_drives'),
    ]

    operations = [
        migrations.CreateModel(
            name='HealthEvent',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('event_id', models.CharField(max_length=40)),
                ('at', models.DateTimeField()),
                ('subject', models.CharField(max_length=100)),
                ('name', models.CharField(max_length=100)),
                ('was', models.CharField(choices=[('healthy', 'Healthy'), ('suspect', 'Suspect'), ('faulty', 'Faulty')], max_length=8)),
                ('health', models.CharField(choices=[('healthy', 'Healthy'), ('suspect', 'Suspect'), ('faulty', 'Faulty')], max_length=8)),
                ('evidence', models.CharField(blank=True, max_length=300)),
            ],
            options={
                'ordering': ('-at', '-id'),
            },
        ),
        migrations.AddField(
            model_name='fabric',
            name='former_keys',
            field=models.JSONField(default=dict),
        ),
        migrations.AddField(
            model_name='gpu',
            name='pci_bus',
            field=models.CharField(blank=True, max_length=32),
        ),
        migrations.AddField(
            model_name='machine',
            name='checks',
            field=models.JSONField(default=list),
        ),
        migrations.AddField(
            model_name='machine',
            name='clock_skew',
            field=models.FloatField(default=0),
        ),
        migrations.AddField(
            model_name='machine',
            name='evidence',
            field=models.CharField(blank=True, max_length=300),
        ),
        migrations.AddField(
            model_name='machine',
            name='gpus_as_of',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='machine',
            name='hardware',
            field=models.JSONField(default=dict),
        ),
        migrations.AddField(
            model_name='machine',
            name='health',
            field=models.CharField(choices=[('healthy', 'Healthy'), ('suspect', 'Suspect'), ('faulty', 'Faulty')], default='healthy', max_length=8),
        ),
        migrations.AddField(
            model_name='rdmaport',
            name='evidence',
            field=models.CharField(blank=True, max_length=300),
        ),
        migrations.AddField(
            model_name='rdmaport',
            name='gids',
            field=models.JSONField(default=list),
        ),
        migrations.AddField(
            model_name='rdmaport',
            name='guid',
            field=models.CharField(blank=True, max_length=40),
        ),
        migrations.AddField(
            model_name='rdmaport',
            name='health',
            field=models.CharField(choices=[('healthy', 'Healthy'), ('suspect', 'Suspect'), ('faulty', 'Faulty')], default='healthy', max_length=8),
        ),
        migrations.AddField(
            model_name='rdmaport',
            name='lid',
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='rdmaport',
            name='numa_node',
            field=models.SmallIntegerField(null=True),
        ),
        migrations.AddField(
            model_name='rdmaport',
            name='physical_state',
            field=models.CharField(blank=True, max_length=32),
        ),
        migrations.AddField(
            model_name='rdmaport',
            name='reported_at',
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name='rdmaport',
            name='reported_guess',
            field=models.BooleanField(default=False),
        ),
        migrations.AddField(
            model_name='rdmaport',
            name='reported_key',
            field=models.CharField(blank=True, max_length=80),
        ),
        migrations.AddField(
            model_name='rdmaport',
            name='sm_lid',
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='rdmaport',
            name='subnet_prefix',
            field=models.CharField(blank=True, max_length=40),
        ),
        migrations.AddConstraint(
            model_name='machine',
            constraint=models.CheckConstraint(condition=models.Q(('health__in', ['healthy', 'suspect', 'faulty'])), name='machine_health_known'),
        ),
        migrations.AddConstraint(
            model_name='rdmaport',
            constraint=models.CheckConstraint(condition=models.Q(('health__in', ['healthy', 'suspect', 'faulty'])), name='port_health_known'),
        ),
        migrations.AddField(
            model_name='healthevent',
            name='machine',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='health_events', to='machines.machine'),
        ),
        migrations.AddIndex(
            model_name='healthevent',
            index=models.Index(models.F('machine'), models.F('at'), name='health_event_of_machine'),
        ),
        migrations.AddIndex(
            model_name='healthevent',
            index=models.Index(models.F('at'), name='health_event_age'),
        ),
        migrations.AddConstraint(
            model_name='healthevent',
            constraint=models.UniqueConstraint(models.F('machine'), models.F('event_id'), name='health_event_once'),
        ),
        migrations.AddConstraint(
            model_name='healthevent',
            constraint=models.CheckConstraint(condition=models.Q(('health__in', ['healthy', 'suspect', 'faulty']), ('was__in', ['healthy', 'suspect', 'faulty'])), name='health_event_known'),
        ),
    ]
