"""What an explanation offers, done: the run's document edited in place, machines uncordoned, runs stopped.

An offer is named by what it says. It is looked up again when it is taken: only what the last pass tried is done.
"""

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from common.errors import Conflict
from machines.models import Machine
from machines.services import machine_uncordon
from runs.editing import run_edit
from runs.explanations import explanation_in_rows
from runs.models import Run
from runs.reasons import SOMEBODY_S_RUN
from runs.services import run_stop
from tenancy.access import Actor
from tenancy.roles import Permission

Data = Mapping[str, Any]

EDIT, UNCORDON, STOP = "edit", "uncordon", "stop"
_DEEDS = {"uncordon": UNCORDON, "undrain": UNCORDON, "end_run": STOP}
"""Code of a change (`placement.whatif.Code`) → what does it. All others need hands, or settings of an owner."""
_NEEDS = {
    EDIT: Permission.WRITE_RUNS,
    UNCORDON: Permission.OPERATE_MACHINES,
    STOP: Permission.WRITE_RUNS,
}
CHANGED = "The cluster has changed: this no longer starts the run. Here is the list of now."


@dataclass(frozen=True, slots=True)
class Deed:
    """A part of an offer: `what` is done to the run itself, or to machines or other runs of these names."""

    what: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Offer:
    """A change that would start the run, what it gives, and how it is done."""

    key: str
    text: str
    result: str
    patch: Data | None
    """To be merged into the document (RFC 7396)."""
    deeds: tuple[Deed, ...]
    """Empty where it can't be done by pressing a button."""
    machines: tuple[str, ...]
    """Machines that the change is about."""

    @property
    def needs(self) -> frozenset[Permission]:
        return frozenset(_NEEDS[deed.what] for deed in self.deeds)

    @property
    def stops(self) -> tuple[str, ...]:
        """Names of the runs that it stops."""
        return tuple(name for deed in self.deeds if deed.what == STOP for name in deed.names)


def offers_of(explained: Data) -> list[Offer]:
    """Those of an explanation, in its order."""
    return [_offer(change) for change in explained["changes"]]


def offer_find(run: Run, key: str) -> Offer | None:
    """The offer, if the last pass still makes it. `run` as `runs_for_display` loads it."""
    return next((each for each in offers_of(explanation_in_rows(run)) if each.key == key), None)


@transaction.atomic
def offer_take(*, run: Run, actor: Actor, offer: Offer) -> None:
    """Does it, as a whole or not at all. Who may do it is the caller's matter.

    Raises Conflict when the cluster has changed meanwhile, and Invalid for a document that this console refuses.
    """
    # Runs are locked before machines, as everywhere.
    for deed in sorted(offer.deeds, key=lambda deed: deed.what == UNCORDON):
        if deed.what == EDIT:
            run_edit(run=run, actor=actor, text=document_merged(run, offer.patch or {}))
        elif deed.what == STOP:
            _stop(run, actor, deed.names)
        else:
            _uncordon(run, actor, deed.names)


def document_merged(run: Run, patch: Data) -> str:
    """The document as it is now, labels and priority changed since included, with the patch merged into it."""
    return json.dumps(merged(run.document, patch), indent=2, ensure_ascii=False)


def merged(document: Any, patch: Any) -> Any:
    """RFC 7396; a list of things with names takes its patch by name."""
    if isinstance(document, list) and isinstance(patch, Mapping):
        return [merged(each, patch.get(each.get("name"), {})) for each in document]
    if not isinstance(patch, Mapping):
        return patch
    found = dict(document) if isinstance(document, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


def _uncordon(run: Run, actor: Actor, names: tuple[str, ...]) -> None:
    machines = Machine.objects.select_related("cluster__organization").filter(
        cluster=run.cluster_id, name__in=names, removed_at=None, cordoned_at__isnull=False
    )
    _require_all(found := list(machines.order_by("id")), names)
    for machine in found:
        machine_uncordon(machine=machine, actor=actor)


def _stop(run: Run, actor: Actor, names: tuple[str, ...]) -> None:
    others = Run.objects.of(run.workspace).live().filter(name__in=names)
    _require_all(found := list(others.order_by("id")), names)
    for other in found:
        run_stop(run=other, actor=actor)


def _require_all(found: list[Any], names: tuple[str, ...]) -> None:
    if len(found) != len(set(names)):
        raise Conflict("cluster_changed", CHANGED)


def _offer(change: Data) -> Offer:
    deeds = tuple(_deeds(change))
    told = json.dumps([change["text"], change["patch"]], sort_keys=True)
    return Offer(
        key=f"{zlib.crc32(told.encode()):08x}",
        text=change["text"],
        result=change["result"],
        patch=change["patch"],
        deeds=() if None in deeds else tuple(deed for deed in deeds if deed),
        machines=tuple(name for each in change["action"] or () for name in _machines(each)),
    )


def _deeds(change: Data) -> Iterator[Deed | None]:
    """None stands for a part that no button can do; what one may not see can't be stopped either."""
    if change["patch"]:
        yield Deed(EDIT)
    for each in change["action"] or ():
        what = _DEEDS.get(each["code"])
        names = [run["name"] for run in each.get("runs", ())] if what == STOP else _machines(each)
        hidden = SOMEBODY_S_RUN in change["text"]
        yield Deed(what, tuple(names)) if what and names and not hidden else None


def _machines(action: Data) -> list[str]:
    return [target["machine"] for target in action.get("targets", ()) if "machine" in target]
