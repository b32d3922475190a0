"""Labels of a machine, edited in place. What a change would do to runs is told before it is made."""

import json
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from common.errors import Conflict, Invalid
from console.pages import machine_facts as facts
from console.pages.errors import is_fragment, page
from console.pages.machine_page import machine_address, machine_context
from console.pages.scope import Scope, cluster_scope
from machines import services
from machines.models import Machine
from runs.machine_preview import Preview, machine_preview
from tenancy.roles import Permission


@dataclass(frozen=True, slots=True)
class Edit:
    """A label as somebody wants it."""

    scope: Scope
    machine: Machine
    slug: str
    """Of one of the places; empty for another label."""
    key: str
    typed: str
    unset: bool
    """What was found counts again."""
    seen: str
    """The `mark` of the edit whose preview was shown."""
    was: str | None
    """Of a place: the value that was there when the edit began."""

    @property
    def mark(self) -> str:
        return "unset" if self.unset else f"={self.typed}"

    def save(self) -> None:
        if self.unset:
            services.machine_label_unset(machine=self.machine, key=self.key, actor=self.scope.actor)
        else:
            services.machine_label_set(
                machine=self.machine, key=self.key, value=self.typed, actor=self.scope.actor
            )

    def preview(self) -> Preview:
        """Raises Invalid."""
        visible = {each.id for each in self.scope.workspaces}
        return machine_preview(self.machine, self.save, visible=visible)

    def require_unchanged(self) -> None:
        """Raises Conflict when somebody else has changed the place since the edit began."""
        if self.slug not in facts.PLACES or self.was is None or self.unset:
            return
        now = facts.places_of(self.machine)[self.slug]
        if now.value not in {self.was, self.typed}:
            who = f"{now.set_by} set this to" if now.set_by else "This was found to be"
            raise Conflict(
                "changed",
                f"{who} {now.value or 'nothing'} meanwhile. Yours was not saved; save again to set it.",
            )


@page
@require_POST
def machine_label(request: HttpRequest, organization: str, cluster: str, machine: str) -> HttpResponse:
    """Sets a label, or takes back what was set.

    With `preview` only what that would do comes back. A change that affects runs is asked back for once, unless the
    form shows its preview already.
    """
    edit = _edit(request, organization, cluster, machine)
    try:
        if "preview" in request.POST:
            return _previewed(request, edit)
        edit.require_unchanged()
        if edit.seen != edit.mark and (preview := edit.preview()).affects:
            return _asked(request, edit, {"preview": preview})
        edit.save()
    except (Invalid, Conflict) as error:
        return _asked(request, edit, {"problem": error.message}, status=error.status)
    return _saved(request, edit)


def _edit(request: HttpRequest, organization: str, cluster: str, machine: str) -> Edit:
    scope = cluster_scope(request, organization, cluster, Permission.OPERATE_MACHINES)
    form = request.POST
    slug = form.get("place", "")
    return Edit(
        scope=scope,
        machine=facts.machine_find(scope, machine),
        slug=slug,
        key=facts.PLACES.get(slug) or form.get("key", "").strip(),
        typed=form.get("value", "").strip(),
        unset="unset" in form,
        seen=form.get("seen", ""),
        was=form.get("was"),
    )


def _previewed(request: HttpRequest, edit: Edit) -> HttpResponse:
    """The preview alone, while somebody types."""
    try:
        preview = edit.preview()
    except Invalid as error:
        return render(request, "machines/machine.html#preview", {**_form(edit), "problem": error.message})
    response = render(request, "machines/machine.html#preview", {**_form(edit), "preview": preview})
    return saying(response, preview.said)


def _form(edit: Edit) -> dict[str, Any]:
    """What the form shows of the edit."""
    return {
        "slug": edit.slug or "label",
        "typed": edit.typed,
        "typed_key": edit.key,
        "mark": edit.mark,
        "unset": edit.unset,
    }


def _asked(request: HttpRequest, edit: Edit, told: dict[str, Any], *, status: int = 200) -> HttpResponse:
    """The form again, with what is to be told: a preview, or what is wrong."""
    context = {**_form(edit), **told}
    if is_fragment(request) and edit.slug in facts.PLACES:
        # htmx swaps an answer with 422, and nothing that reports another failure.
        shown = {**context, "scope": edit.scope, "machine": edit.machine, "editing": True}
        shown["place"] = facts.places_of(edit.machine)[edit.slug]
        response = render(
            request, "machines/machine.html#place", shown, status=422 if "problem" in told else 200
        )
        return saying(response, told["preview"].said) if "preview" in told else response
    page_ = {**machine_context(edit.scope, edit.machine), **context, "edit": edit.slug or "label"}
    return render(request, "machines/machine.html", page_, status=status)


def _saved(request: HttpRequest, edit: Edit) -> HttpResponse:
    found = facts.machine_find(edit.scope, edit.machine.name)
    said = _said(found, edit)
    if is_fragment(request) and edit.slug in facts.PLACES:
        context = {"scope": edit.scope, "machine": found, "editing": False, "focus": True}
        context["place"] = facts.places_of(found)[edit.slug]
        return saying(render(request, "machines/machine.html#place", context), said)
    messages.success(request, said)
    return redirect(machine_address(found))


def saying(response: HttpResponse, text: str) -> HttpResponse:
    """What a fragment has a screen reader say."""
    response.headers["HX-Trigger"] = json.dumps({"astraeus:say": text})
    return response


def _said(machine: Machine, edit: Edit) -> str:
    if edit.slug not in facts.PLACES:
        value = {label.key: label.value for label in facts.labels_other(machine)}.get(edit.key)
        return f"Label {edit.key} is gone." if value is None else f"Label {edit.key} is {value or 'empty'}."
    place = facts.places_of(machine)[edit.slug]
    return f"{place.title} of {machine.name} is {place.value or 'not known'}."
