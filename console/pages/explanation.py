"""Why a run waits, or why it landed where it did: parts of the run's and its workers' pages, and a page of its own."""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from common.errors import BadRequest
from console.pages.errors import is_fragment, page
from console.pages.scope import Scope, workspace_scope
from placement.phrases import plural, shortened
from runs.explaining.history import history_words
from runs.explaining.moments import moment_read
from runs.explaining.rows import MachineRow
from runs.explanations import explanation_in_rows
from runs.models import Run
from runs.offers import Offer, offers_of
from runs.presentation import run_find, run_url
from runs.states import RunState
from wire.spec import stored_document

Data = Mapping[str, Any]

CELLS = 32
CAUSE_TITLES = {"order": "Order", "fit": "Fit", "policy": "Policy"}


@dataclass(frozen=True, slots=True)
class Line:
    """Machines about which the same is to be said."""

    cause: int
    """Number of the cause that it stands below."""
    number: int
    """Its place there, from 1."""
    row: MachineRow

    @property
    def machines(self) -> list[str]:
        return self.row.machines

    @property
    def text(self) -> str:
        return self.row.text


FIRST_ROWS = 10
"""Of one cause beside all others; the others stand on pages of their own, as do a row's machines behind the first."""
ROWS, MACHINES = 50, 200
"""On such a page."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Machines that one rule keeps out, or that are ready."""

    number: int
    """Its place among the causes, from 1."""
    title: str
    rows: list[MachineRow]

    @property
    def ready(self) -> bool:
        return any(not row.codes for row in self.rows)

    @property
    def lines(self) -> list[Line]:
        return self._lines(self.rows)

    @property
    def first_lines(self) -> list[Line]:
        return self._lines(self.rows[:FIRST_ROWS])

    def _lines(self, rows: Iterable[MachineRow]) -> list[Line]:
        return [Line(self.number, number, row) for number, row in enumerate(rows, start=1)]

    @property
    def count(self) -> int:
        return sum(len(row.machines) for row in self.rows)

    @property
    def left_out(self) -> int:
        return max(0, len(self.rows) - FIRST_ROWS)


@dataclass(frozen=True, slots=True)
class Domain:
    name: str
    found: int
    needed: int
    machines: str

    @property
    def cells(self) -> list[bool]:
        """One for each machine that is needed, up to a number that can be seen at a glance: whether it is found."""
        shown = min(self.needed, CELLS)
        return [number < self.found for number in range(shown)]


@dataclass(frozen=True, slots=True)
class Side:
    """Order, fit or policy: whether it is in the way."""

    title: str
    met: bool
    text: str


@dataclass(frozen=True, slots=True)
class OfferRow:
    """A change that would start the run, what it gives, and the button that does it."""

    text: str
    result: str
    patch: str
    """To be merged into the document, as JSON; empty where the document stays as it is."""
    key: str
    """Of the page where it is done; empty where this person may not, or where no button can."""
    button: str
    machines: tuple[str, ...]
    """Machines to look at, where it has to be done by hand."""
    plea: str
    """What to send to somebody who may; empty where a button does it."""


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
    offers: list[OfferRow]
    tried: int
    """Changes that were tried, helpful or not."""
    when: str
    domains: list[Domain]
    domains_left_out: int
    causes: list[Cause]
    waited: str
    history: list[Data]
    api: str
    """Where programs read the same."""

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
    found = run_find(workspace=scope.here, name=run, cluster=cluster)
    at = _at(request.GET.get("at", ""))
    told = explained(explanation_in_rows(found, at=at), found, scope)
    context = {"scope": scope, "section": "runs", "run": found, "explanation": told, "asked_at": at}
    if is_fragment(request):
        return render(request, "runs/explanation.html#live", {**context, "oob": True})
    cause = next((each for each in told.causes if str(each.number) == request.GET.get("cause")), None)
    if cause is not None:
        return render(request, "runs/cause.html", {**context, **_cause_context(request, cause)})
    return render(request, "runs/explanation.html", context)


def _cause_context(request: HttpRequest, cause: Cause) -> dict[str, Any]:
    """A page of the cause's rows; with `?row=2`, of that row's machines."""
    line = next((each for each in cause.lines if str(each.number) == request.GET.get("row")), None)
    pages = Paginator(line.machines, MACHINES) if line else Paginator(cause.lines, ROWS)
    return {"cause": cause, "line": line, "rows": pages.get_page(request.GET.get("page"))}


def _at(text: str) -> datetime | None:
    at = moment_read(text)
    if text and at is None:
        raise BadRequest("bad_parameter", "`at` must be a time with its zone: 2026-03-01T14:03:07Z.")
    return at


def explanation_shown(run: Run, shown: Run, scope: Scope) -> Explanation | None:
    """Why it waits; None once it is placed. `run` as `runs_for_display` loads it; `shown`: the run that people see."""
    return explained(explanation_in_rows(run), shown, scope) if run.state == RunState.PENDING else None


def explained(told: Data, run: Run, scope: Scope) -> Explanation:
    """The explanation of `run` as pages show it to the person of `scope`."""
    causes = _causes(told["machines"])
    return Explanation(
        key=_key(told, causes),
        headline=told["headline"],
        pass_no=told["pass"],
        at=told["at"],
        placed=told["placement"] is not None,
        sides=[Side(CAUSE_TITLES[each["kind"]], each["met"], each["text"]) for each in told["causes"]],
        offers=[_offer(each, run, scope) for each in offers_of(told)],
        tried=told["changes_tried"],
        when=(told["when"] or {}).get("text", ""),
        domains=[_domain(each) for each in told["domains"] if each["kind"] != "cluster"],
        domains_left_out=told["domains_left_out"],
        causes=causes,
        waited=history_words(told["history"]),
        history=told["history"],
        api=f"/api/v1/o/{scope.organization.slug}/w/{scope.here.slug}/runs/{run.name}/explanation",
    )


def _key(told: Data, causes: Iterable[Cause]) -> str:
    shown = [told[name] for name in ("causes", "changes", "when", "domains")]
    shown += [_shown_of(cause) for cause in causes]
    return f"{zlib.crc32(json.dumps(shown, sort_keys=True, default=str).encode()):x}"


def _shown_of(cause: Cause) -> list[Any]:
    """What the page shows of it."""
    rows = [[row.machines, row.text] for row in cause.rows[:FIRST_ROWS]]
    return [cause.title, cause.count, len(cause.rows), rows]


def _offer(offer: Offer, run: Run, scope: Scope) -> OfferRow:
    may = bool(offer.deeds) and offer.needs <= scope.grants
    return OfferRow(
        text=offer.text,
        result=offer.result,
        patch=patch_text(offer.patch),
        key=offer.key if may else "",
        button=offer_button(offer) if may else "",
        machines=() if may else offer.machines,
        plea="" if may else _plea(offer, run),
    )


def patch_text(patch: Data | None) -> str:
    """A change of the document as people read it; empty without one."""
    return json.dumps(patch, indent=2, ensure_ascii=False) if patch else ""


def offer_button(offer: Offer) -> str:
    """What its button says."""
    if len(offer.deeds) > 1:
        return "Do both…"
    if offer.patch:
        return "Edit and requeue…"
    verb = "Stop" if offer.stops else "Uncordon"
    return f"{verb} {shortened(offer.stops or offer.machines)}…"


def _plea(offer: Offer, run: Run) -> str:
    """`Please uncordon gpu-04 in main: ddp-resnet50 (16 GPUs) would start at once on gpu-01 and gpu-04. <address>`"""
    groups = stored_document(run.document).groups()
    gpus = plural(sum(group.template.requested_resources.gpu_count for group in groups), "GPU")
    wish = f"Please {offer.text[0].lower()}{offer.text[1:]} in {run.cluster.slug}"
    return f"{wish}: {run.name} ({gpus}) would start at once: {offer.result}. {run_url(run)}/explanation"


def _domain(data: Data) -> Domain:
    name = data["name"] or "RoCE ports without a fabric"
    if data["on_fabric"]:
        name = f"{name} on {data['on_fabric']}"
    return Domain(name, data["found"], data["needed"], ", ".join(data["machines"]))


def _causes(rows: Iterable[MachineRow]) -> list[Cause]:
    """Rows come nearest first; a group stands where its nearest row stands."""
    groups: dict[str, list[MachineRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return [Cause(number, title, told) for number, (title, told) in enumerate(groups.items(), start=1)]
