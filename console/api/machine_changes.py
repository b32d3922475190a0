"""A change of a machine: carried out, or only foreseen."""

from typing import Any

from django.db import transaction

from console.api.requests import MachineChange
from console.pages.machine_facts import machines_for_display, places_of
from console.templatetags.astraeus import lower_first
from machines import operations, services
from machines.models import Machine
from machines.pools import machines_move
from placement.phrases import and_list, plural
from runs.machine_preview import Preview, machine_preview
from tenancy.access import Actor, workspaces_of

NAMES_SHOWN = 5


@transaction.atomic
def machine_change(machine: Machine, change: MachineChange, actor: Actor) -> None:
    """All of it or nothing. Raises Invalid and Conflict."""
    for key, value in change.metadata.labels.items():
        if value is None:
            services.machine_label_unset(machine=machine, key=key, actor=actor)
        else:
            services.machine_label_set(machine=machine, key=key, value=value, actor=actor)
    if change.spec.pool is not None:
        machines_move(machines=[machine], pool=change.spec.pool, actor=actor)
    if change.metadata.name is not None:
        operations.machine_rename(machine=machine, name=change.metadata.name, actor=actor)


def machine_foresee(machine: Machine, change: MachineChange, actor: Actor) -> dict[str, Any]:
    """What the change would do: the page's own preview. Raises what `machine_change` raises."""
    changed: list[Machine] = []

    def carry_out() -> None:
        machine_change(machine, change, actor)
        changed.append(machines_for_display(Machine.objects.filter(id=machine.id)).get())

    visible = {workspace.id for workspace in workspaces_of(actor)}
    preview = machine_preview(machine, carry_out, visible=visible)
    return foresight_of(preview, _facts(machine, changed[0]))


def foresight_of(preview: Preview, facts: str) -> dict[str, Any]:
    """As a ForesightAnswer. `facts`: a sentence of what would be different itself."""
    would_start = [told.name for told in (*preview.starts, *preview.could_start)]
    would_wait = [told.name for told in preview.waits]
    splits = [f"{told.name} {told.text}." for told in preview.splits]
    above = [f"{told.name} {told.text}." for told in preview.over_shown]
    if preview.over_more:
        above.append(f"So would {plural(preview.over_more, 'other running run')}.")
    text = " ".join([facts, _consequence(would_start, would_wait), *splits, *above])
    return {"text": text, "would_start": would_start, "would_wait": would_wait}


def _facts(was: Machine, now: Machine) -> str:
    """Where the machine would be, as far as that is different."""
    parts = [f"named {now.name}"] if now.name != was.name else []
    if now.pool and was.pool and now.pool_id != was.pool_id:
        parts.append(f"in the pool {now.pool.slug} instead of {was.pool.slug}")
    before, after = places_of(was), places_of(now)
    for slug, place_ in after.items():
        old = before[slug].value
        if place_.value != old:
            what = lower_first(place_.title)
            known = f"{what} {place_.value}" if place_.value else f"no known {what}"
            parts.append(f"in {known} instead of {old or 'an unknown one'}")
    if not parts:
        return f"{was.name} would stay where it is."
    return f"{was.name} would be {and_list(parts)}."


def _consequence(would_start: list[str], would_wait: list[str]) -> str:
    parts = []
    if would_start:
        parts.append(f"{_names(would_start)} could start then")
    if would_wait:
        parts.append(f"{_names(would_wait)} could no longer start")
    return f"{'; '.join(parts)}." if parts else "No run that waits would start, or wait longer, for it."


def _names(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return and_list([*names[:NAMES_SHOWN], *([plural(more, "other run")] if more > 0 else [])])
