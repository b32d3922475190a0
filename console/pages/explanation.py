"""The last pass's refusal as a table: machines grouped by the main reason, in words."""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runs.explanations import machine_rows
from runs.models import Run
from runs.states import RunState


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
class Explanation:
    domains: list[Domain]
    domains_left_out: int
    causes: list[Cause]


def explanation_table(run: Run) -> Explanation | None:
    """None while no pass has refused the run, or once it is placed."""
    data = run.explanation
    if run.state != RunState.PENDING or not data:
        return None
    return Explanation(
        domains=[_domain(each) for each in data["domains"] if each["kind"] != "cluster"],
        domains_left_out=data["domains_left_out"],
        causes=_causes(machine_rows(run, data)),
    )


def _domain(data: Mapping[str, Any]) -> Domain:
    name = data["name"] or "RoCE ports without a fabric"
    if data["on_fabric"]:
        name = f"{name} on {data['on_fabric']}"
    return Domain(name, data["found"], data["needed"], ", ".join(data["machines"]))


def _causes(rows: Iterable[Mapping[str, Any]]) -> list[Cause]:
    """Rows come nearest first; a group stands where its nearest row stands."""
    groups: dict[str, list[Line]] = {}
    ready: set[str] = set()
    for row in rows:
        groups.setdefault(row["group"], []).append(Line(row["machines"], row["text"]))
        if not row["codes"]:
            ready.add(row["group"])
    return [Cause(title, title in ready, lines) for title, lines in groups.items()]


def explanation_key(run: Run) -> str:
    """Differs when the explanation does: a page that shows the same keeps what is open or has the focus."""
    waits = run.state == RunState.PENDING
    return f"{zlib.crc32(json.dumps(run.explanation, sort_keys=True).encode()):x}" if waits else "placed"
