"""`patience_seconds`: hold a run that could start while the cluster, once free, could give it a better network."""

from datetime import datetime, timedelta
from typing import Any

from placement import Placement, Request, Snapshot, place
from runs.models import Run
from wire.spec import RunDocument


def patience_holds(
    run: Run, document: RunDocument, snapshot: Snapshot, request: Request, found: Placement, now: datetime
) -> dict[str, Any] | None:
    """The reason to hold the run, or None when it should start where `found` puts it.

    Patience counts from the first pass that could place the run. It relaxes no rule and reserves nothing.
    """
    seconds = max(group.template.requested_resources.topology.patience_seconds for group in document.groups())
    until = (run.patient_since or now) + timedelta(seconds=seconds)
    if now >= until:
        return None
    better = place(snapshot.emptied(repaired=False), request)
    if not isinstance(better, Placement) or better.network >= found.network:
        return None
    return {
        "code": "patience",
        "now": found.verdict.code,
        "better": better.verdict.code,
        "seconds": (until - now).total_seconds(),
    }
