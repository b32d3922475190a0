"""What would become of the document as it stands: shown beside it while somebody types."""

import json
import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from common.errors import Conflict, FieldError, Invalid
from console.pages.run_form.draft import Draft, opened, written
from console.pages.run_form.places import MISSING, value_at, value_set
from console.pages.words import TIMES
from machines.models import Cluster
from placement.phrases import plural
from runs.foresight import run_foresee
from runs.models import Run
from tenancy.access import Actor
from tenancy.models import Workspace
from wire.quantities import format_duration, format_size
from wire.spec import RunDocument, Shape, validate_document

log = logging.getLogger(__name__)

NEEDED: Final = frozenset(
    {"spec", "spec.task_template", "spec.task_template.image", "spec.task_template.command"}
)
_LOOKS: Final = {
    "start": ("tick", "good"),
    "turn": ("clock", "wait"),
    "patience": ("clock", "wait"),
    "wait": ("clock", "wait"),
    "never": ("never", "bad"),
    "wrong": ("octagon", "bad"),
    "asks": ("plain", "off"),
    "none": ("plain", "off"),
}
"""Kind → icon and tone."""
NAME: Final = ("metadata", "name")
TOO_LITTLE: Final = "Enter image, command and GPUs to see where it would run."


@dataclass(frozen=True, slots=True)
class Change:
    """Something that would start it."""

    text: str
    result: str
    patch: str
    """JSON, to be merged into the document; empty where something else is to be changed."""


@dataclass(frozen=True, slots=True)
class Preview:
    kind: str
    """A key of `_LOOKS`: `turn`: others go first; `asks`: too little is filled in; `none`: it can't be told."""
    text: str
    facts: tuple[str, ...] = ()
    change: Change | None = None
    when: str = ""
    pass_no: int | None = None
    errors: tuple[FieldError, ...] = ()

    @property
    def icon(self) -> str:
        return _LOOKS[self.kind][0]

    @property
    def tone(self) -> str:
        return _LOOKS[self.kind][1]


@dataclass(frozen=True, slots=True)
class Asking:
    """Whose run it would be, and where."""

    workspace: Workspace
    actor: Actor
    run: Run | None = None
    """The waiting run whose document this is to replace."""

    @property
    def button(self) -> str:
        """What is pressed to submit it."""
        return "Save and requeue" if self.run else "Start run"


def preview(asking: Asking, draft: Draft) -> Preview:
    """Never fails: without a preview a run can be started all the same."""
    try:
        return _preview(asking, draft)
    except Exception:
        log.exception("no preview of a run in %s", asking.workspace.slug)
        return Preview("none", f"No preview right now. {asking.button} works all the same.")


def _preview(asking: Asking, draft: Draft) -> Preview:
    document, broken = opened(draft.text)
    if broken:
        return _wrong(broken)
    if draft.problems:
        unread = tuple(FieldError("", "unread", message) for message in draft.problems.values())
        return _wrong(unread)
    named = value_at(document, NAME) is not MISSING
    if not named and isinstance(document.get("metadata", {}), dict):
        # Where it would run doesn't depend on its name, which may come last.
        value_set(document, NAME, f"unnamed-{secrets.token_hex(8)}")
    text = draft.text if named else written(document)
    try:
        told = run_foresee(
            workspace=asking.workspace, actor=asking.actor, text=text, but=asking.run, patient=True
        )
    except (Invalid, Conflict) as refusal:
        return _refused(refusal.errors or (FieldError("", refusal.code, refusal.message),))
    return _told(asking, validate_document(document), told)


def _refused(errors: tuple[FieldError, ...]) -> Preview:
    missing = {error.path for error in errors if error.code == "missing"}
    if missing & NEEDED:
        return Preview("asks", TOO_LITTLE, errors=errors)
    return _wrong(errors)


def _wrong(errors: tuple[FieldError, ...]) -> Preview:
    count = "1 entry needs" if len(errors) == 1 else f"{len(errors)} entries need"
    return Preview("wrong", f"{count} a change before it can start.", errors=errors)


def _told(asking: Asking, document: RunDocument, told: Mapping[str, Any]) -> Preview:
    cluster = _cluster(asking, document)
    if "placement" in told:
        return replace(_placed(asking, document, cluster, told), pass_no=cluster.pass_no)
    explanation = told["explanation"]
    never = explanation["kind"] == "never"
    start = f"Can never start on {cluster.slug}: " if never else "Would wait: "
    return Preview(
        "never" if never else "wait",
        start + explanation["headline"],
        change=_nearest(explanation["changes"]),
        when=(explanation["when"] or {}).get("text", ""),
        pass_no=cluster.pass_no,
    )


def _cluster(asking: Asking, document: RunDocument) -> Cluster:
    slug = document.spec.cluster or asking.workspace.default_cluster
    return Cluster.objects.get(organization=asking.workspace.organization_id, slug=slug)


def _nearest(changes: Sequence[Mapping[str, Any]]) -> Change | None:
    """One that the document can make, if there is one."""
    best = next((change for change in changes if change["patch"] and not change["action"]), None)
    found = best or next(iter(changes), None)
    if found is None:
        return None
    patch = json.dumps(found["patch"]) if found is best else ""
    return Change(found["text"], found["result"], patch)


def _placed(asking: Asking, document: RunDocument, cluster: Cluster, told: Mapping[str, Any]) -> Preview:
    placement, better = told["placement"], told.get("better")
    shapes = [Shape(each["machines"], each["gpus"]) for each in placement["shape"]]
    facts = tuple(_shapes(document, shapes))
    if better:
        now, patience = placement["network"]["text"], format_duration(better["seconds"])
        text = f"Would wait up to {patience} for {better['network']}; {now} is free now."
        return Preview("patience", text, (f"Now: {placement['text']}", *facts))
    ahead = _ahead(asking, cluster, document.spec.priority)
    if ahead:
        go = "1 run of the queue goes" if ahead == 1 else f"{ahead:,} runs of the queue go"
        return Preview("turn", f"There is room now: {placement['text']}. {go} first.", facts)
    return Preview("start", f"Would start now: {placement['text']}", facts)


def _ahead(asking: Asking, cluster: Cluster, priority: int) -> int:
    """Runs of the queue that passes look at before this one."""
    waiting = Run.objects.filter(cluster=cluster, priority__gte=priority).waiting()
    return waiting.exclude(id=asking.run.id).count() if asking.run else waiting.count()


def _shapes(document: RunDocument, shapes: Sequence[Shape]) -> Iterator[str]:
    """`2 workers × 8 GPUs, 96 cores and 800 GiB each`, of every group."""
    for group, shape in zip(document.groups(), shapes, strict=True):
        name = f"{group.name}: " if group.name else ""
        gpus = f" {TIMES} {plural(shape.gpus_per_machine, 'GPU')}" if shape.gpus_per_machine else ""
        amounts = group.template.amounts(shape)
        each = (
            f"{plural(amounts[0], 'core')} and {format_size(amounts[1])} each"
            if amounts
            else "the GPUs' share of cores and memory each"
        )
        yield f"{name}{plural(shape.machines, 'worker')}{gpus}, {each}"
