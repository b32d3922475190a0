"""Why a run waits, or why it landed where it did: parts of the run's and its workers' pages, and a page of its own."""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from common.errors import BadRequest
from console.pages.errors import page
from console.pages.scope import workspace_scope
from runs.explaining.history import history_words
from runs.explaining.moments import moment_read
from runs.explanations import explanation_of
from runs.models import Run
from runs.presentation import run_get
from runs.states import RunState

Data = Mapping[str, Any]

CAUSE_TITLES = {"order": "Order", "fit": "Fit", "policy": "Policy"}


@dataclass(frozen=True, slots=True)
class Line:
    """Machines about which the same is to be said."""

    machines: list[str]
    text: str


@dataclass(frozen=True, slots=True)
class Cause:
    title: str
    ready: bool
    lines: list[Line]

    @property
    def count(self) -> int:
        return sum(len(line.machines) for line in self.lines)


@dataclass(frozen=True, slots=True)
class Domain:
    name: str
    found: int
    needed: int
    machines: str


@dataclass(frozen=True, slots=True)
class Side:
    """Order, fit or policy: whether it is in the way."""

    title: str
    met: bool
    text: str


@dataclass(frozen=True, slots=True)
class Offer:
    """A change that would start the run, and what it gives."""

    text: str
    result: str
    patch: str
    """To be merged into the document, as JSON; empty where the document stays as it is."""


@dataclass(frozen=True, slots=True)
class Explanation:
    key: str
    """Differs when the explanation does: a page that shows the same keeps what is open or has the focus."""
    headline: str
    pass_no: int | None
    at: datetime | None
    placed: bool
    """It tells why the run landed where it did."""
    sides: list[Side]
    offers: list[Offer]
    tried: int
    """Changes that were tried, helpful or not."""
    when: str
    domains: list[Domain]
    domains_left_out: int
    causes: list[Cause]
    waited: str
    history: list[Data]

    @property
    def unhelpful(self) -> int:
        return max(0, self.tried - len(self.offers))


@page
@require_safe
def run_explanation(
    request: HttpRequest, organization: str, workspace: str, cluster: str, run: str
) -> HttpResponse:
    """A page with an address of its own, also for a time that is past: `?at=2026-03-01T14:03:07Z`."""
    scope = workspace_scope(request, organization, workspace)
    found = run_get(workspace=scope.here, name=run, cluster=cluster)
    at = _at(request.GET.get("at", ""))
    context = {
        "scope": scope,
        "section": "runs",
        "run": found,
        "explanation": explained(explanation_of(found, at=at)),
        "asked_at": at,
    }
    return render(request, "runs/explanation.html", context)


def _at(text: str) -> datetime | None:
    at = moment_read(text)
    if text and at is None:
        raise BadRequest("bad_parameter", "`at` must be a time with its zone: 2026-03-01T14:03:07Z.")
    return at


def explanation_shown(run: Run) -> Explanation | None:
    """Why it waits; None once it is placed. `run` as `runs_for_display` loads it."""
    return explained(explanation_of(run)) if run.state == RunState.PENDING else None


def explained(told: Data) -> Explanation:
    """The explanation as pages show it."""
    return Explanation(
        key=_key(told),
        headline=told["headline"],
        pass_no=told["pass"],
        at=told["at"],
        placed=told["placement"] is not None,
        sides=[Side(CAUSE_TITLES[each["kind"]], each["met"], each["text"]) for each in told["causes"]],
        offers=[_offer(each) for each in told["changes"]],
        tried=told["changes_tried"],
        when=(told["when"] or {}).get("text", ""),
        domains=[_domain(each) for each in told["domains"] if each["kind"] != "cluster"],
        domains_left_out=told["domains_left_out"],
        causes=_causes(told["machines"]),
        waited=history_words(told["history"]),
        history=told["history"],
    )


def _key(told: Data) -> str:
    shown = {name: told[name] for name in ("causes", "changes", "when", "domains", "machines")}
    return f"{zlib.crc32(json.dumps(shown, sort_keys=True, default=str).encode()):x}"


def _offer(change: Data) -> Offer:
    patch = json.dumps(change["patch"], indent=2, ensure_ascii=False) if change["patch"] else ""
    return Offer(change["text"], change["result"], patch)


def _domain(data: Data) -> Domain:
    name = data["name"] or "RoCE ports without a fabric"
    if data["on_fabric"]:
        name = f"{name} on {data['on_fabric']}"
    return Domain(name, data["found"], data["needed"], ", ".join(data["machines"]))


def _causes(rows: Iterable[Data]) -> list[Cause]:
    """Rows come nearest first; a group stands where its nearest row stands."""
    groups: dict[str, list[Line]] = {}
    ready: set[str] = set()
    for row in rows:
        groups.setdefault(row["group"], []).append(Line(row["machines"], row["text"]))
        if not row["codes"]:
            ready.add(row["group"])
    return [Cause(title, title in ready, lines) for title, lines in groups.items()]
