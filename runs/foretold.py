"""Tells at submission what no waiting would change: that the cluster could not hold the run even when empty."""

import logging
from dataclasses import replace

from placement import Impossible, possible_ever
from runs.models import Run
from runs.scheduling.request import pools_allowed, request_base
from runs.scheduling.snapshot import cluster_snapshot
from runs.states import RunState, WaitKind
from wire.spec import RunDocument

log = logging.getLogger(__name__)


def run_foretell(run: Run, document: RunDocument) -> None:
    """Marks a run that was just stored, when it can never start. The next pass says so again, or otherwise.

    Whatever goes wrong here must not take back a submission that is stored.
    """
    try:
        _foretell(run, document)
    except Exception:
        log.exception("run %s could not be looked at on submission", run.id)


def _foretell(run: Run, document: RunDocument) -> None:
    if run.independent:  # of each of its workers the next pass tells
        return
    request = replace(request_base(document), allowed_pools=pools_allowed(run.workspace_id, run.cluster_id))
    answer = possible_ever(cluster_snapshot(run.cluster).snapshot, request)
    if not isinstance(answer, Impossible):
        return
    wait = {"kind": "never", "cause": "impossible", "changes": answer.changes_data()}
    run.explanation = {**answer.refusal.as_headline(), "wait": wait}
    run.reason, run.wait_kind = {"code": "waiting"}, WaitKind.NEVER
    Run.objects.filter(id=run.id, state=RunState.PENDING, explained_pass=None).update(
        explanation=run.explanation, reason=run.reason, wait_kind=run.wait_kind
    )
