"""The Celery application and its sweeps.

Every task is also run by a sweep, so a lost message costs seconds, never a run. Queues: `place` (passes, in a
process of their own: however long they take, they keep no barrier waiting), `react` (barriers, stops, sweeps) and
`bulk` (removing runs, whose logs may be large, and old records).
"""

import os
from typing import Any

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

app = Celery("astraeus")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

app.conf.task_routes = {
    "runs.tasks.cluster_place": {"queue": "place"},
    "runs.tasks.run_remove": {"queue": "bulk"},
    "runs.tasks.runs_sweep_deleted": {"queue": "bulk"},
    "runs.tasks.records_sweep": {"queue": "bulk"},
    "runs.tasks.failures_prune": {"queue": "bulk"},
}


def sweep(task: str, seconds: float) -> dict[str, Any]:
    """A periodic run of a task; one that waited a whole period in the queue is dropped, the next is due."""
    return {"task": task, "schedule": seconds, "options": {"expires": seconds}}


app.conf.beat_schedule = {
    "attempts": sweep("runs.tasks.attempts_sweep", 2),
    "clusters": sweep("runs.tasks.clusters_sweep", 2),
    "wake": sweep("machines.tasks.machines_wake_lagging", 2),
    "two_agents": sweep("machines.tasks.two_agents_forget", 5),
    "unreachable": sweep("machines.tasks.machines_sweep_silent", 5),
    "lost": sweep("runs.tasks.assignments_sweep_lost", 5),
    "drains": sweep("runs.tasks.drains_sweep", 2),
    "deleted": sweep("runs.tasks.runs_sweep_deleted", 5),
    "fabrics": sweep("machines.tasks.fabrics_sweep", 30),
    "health_events": sweep("machines.tasks.health_events_prune", 3600),
    "health_overrides": sweep("machines.tasks.health_overrides_expire", 10),
    "changes": sweep("machines.tasks.changes_prune", 60),
    "failures": sweep("runs.tasks.failures_prune", 3600),
    "records": sweep("runs.tasks.records_sweep", 3600),
}
