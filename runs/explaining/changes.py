"""What would start the run: single changes, or pairs, each of them tried by the engine on what the pass saw."""

from collections.abc import Mapping
from typing import Any

from placement import Refusal
from placement.phrases import and_list
from placement.whatif import Named, WhatIf, what_ifs
from placement.words_whatif import change_words, changes_words, place_words
from runs.explaining.alone import offers_for_all
from runs.explaining.never import never_changes
from runs.explaining.when import Asked
from runs.reasons import SOMEBODY_S_RUN
from runs.states import WaitKind

JSON = dict[str, Any]


def changes_of(asked: Asked) -> JSON:
    """{"changes", "changes_tried"}: what starts it now; for a run that never fits also what would make it possible."""
    answer = asked.recalled.answer
    if not isinstance(answer, Refusal):
        return {"changes": [], "changes_tried": 0}
    snapshot = asked.recalled.snapshot
    holdings = _named(asked)
    where = asked.held.where(snapshot.topology) if len(holdings) == len(asked.held.holders) else None
    found = what_ifs(snapshot, asked.recalled.request, answer, holdings=holdings, where=where)
    offers = offers_for_all(found, asked.alike) if asked.alike else found
    changes = [change_data(each) for each in offers]
    if asked.run.wait_kind == WaitKind.NEVER:
        changes += never_changes(asked.run)
    return {"changes": changes, "changes_tried": found.tried}


def _named(asked: Asked) -> list[Named]:
    own, workspace = asked.run.shown_id, asked.run.workspace_id
    return [
        holder.named if holder.workspace_id == workspace else holder.unnamed
        for holder in asked.held.holders
        if holder.run_id != own  # no run ends for its own sake
    ]


def change_data(found: WhatIf) -> JSON:
    """One offer: what to change, and the placement that it gives now."""
    data = found.as_data()
    kinds = {change["kind"] for change in data["changes"]}
    result = place_words(data)
    return {
        "code": "+".join(change["code"] for change in data["changes"]),
        "kind": kinds.pop() if len(kinds) == 1 else "pair",
        "text": _text(data),
        "result": result,
        "patch": {"spec": data["document_patch"]} if data["document_patch"] else None,
        "action": [_action(change) for change in data["changes"] if change["kind"] != "request"] or None,
        "placement": {"text": result, **data["placement"]},
    }


def _text(data: Mapping[str, Any]) -> str:
    """What may not be seen can't be stopped either: its end can only be waited for."""
    changes = data["changes"]
    runs = [run["name"] for change in changes for run in change["numbers"].get("runs", ())]
    if SOMEBODY_S_RUN not in runs:
        return changes_words(data)
    others = [change_words(change) for change in changes if "runs" not in change["numbers"]]
    first, *more = [*others, f"Wait for {and_list(list(dict.fromkeys(runs)))} to end"]
    return " and ".join([first, *(text[0].lower() + text[1:] for text in more)])


def _action(change: Mapping[str, Any]) -> JSON:
    """What is to be done to a machine, a pool or a run; what one may not see has no name and no size."""
    numbers = dict(change["numbers"])
    if "runs" in numbers:
        numbers["runs"] = [
            {"name": run["name"], "gpus": run["gpus"]}
            for run in numbers["runs"]
            if run["name"] != SOMEBODY_S_RUN
        ]
    return {"code": change["code"], **numbers}
