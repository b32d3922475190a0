"""A run document as text while somebody works on it, as JSON or through the form."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from common.errors import FieldError
from console.pages.run_form.entries import Values, first
from console.pages.run_form.form import form_apply, form_of
from console.pages.run_form.places import JSON, patched, reachable, value_at, value_set
from console.pages.run_form.rows import Files
from wire.spec import Unreadable, read_text
from wire.spec.errors import format_path
from wire.spec.tree import Problem, Tree

FORM, AS_JSON = "form", "json"


@dataclass(frozen=True, slots=True)
class Draft:
    text: str
    mode: str = AS_JSON
    was: str = ""
    """While it is edited as JSON: the document that the form showed last."""
    problems: dict[str, str] = field(default_factory=dict)
    """Entries of the form whose values can't be read, and why."""
    marked: frozenset[str] = frozenset()
    """Entries that something else than typing has changed."""
    line: int = 0
    """Where the JSON editor is to open; 0: at its beginning."""


def posted(post: Values) -> Draft:
    """What was sent: the text, with what its form says in the form's mode."""
    draft = Draft(
        first(post, "document"), FORM if first(post, "mode") == FORM else AS_JSON, first(post, "was")
    )
    if draft.mode == AS_JSON:
        return draft
    document, broken = opened(draft.text)
    if broken:
        return replace(draft, mode=AS_JSON)
    applied = form_apply(document, post)
    text = written(applied.document) if applied.changed else draft.text
    return replace(draft, text=text, problems=dict(applied.problems))


def opened(text: str) -> tuple[JSON, tuple[FieldError, ...]]:
    """The document in a text, whatever its fields say; and why the form can't show it, if it can't.

    An empty text is a document without a field.
    """
    if not text.strip():
        return {}, ()
    tree = Tree()
    try:
        document = tree.copy(read_text(text))
        problems = tree.problems
    except Unreadable as unreadable:
        return {}, _errors([*tree.problems, unreadable.problem])
    if not problems and not isinstance(document, dict):
        problems = [Problem((), "wrong_type", "The document must be an object: { … }.")]
    return ({}, _errors(problems)) if problems else (document, ())


def _errors(problems: list[Problem]) -> tuple[FieldError, ...]:
    return tuple(FieldError(format_path(where), code, message) for where, code, message in problems)


def written(document: Any) -> str:
    """As people write it; nothing of nothing."""
    return json.dumps(document, indent=2, ensure_ascii=False) if document else ""


def merged(draft: Draft, patch: Any) -> Draft:
    """With a JSON merge patch; the form marks what it has changed."""
    before, broken = opened(draft.text)
    if broken or not isinstance(patch, dict):
        return draft
    return _changed(draft, before, patched(before, patch))


def _changed(draft: Draft, before: JSON, after: JSON) -> Draft:
    old, new = form_of(before).values, form_of(after).values
    marked = frozenset(name for name, values in new.items() if old.get(name) != values)
    return replace(draft, text=written(after), marked=marked)


def with_files(draft: Draft, files: list[tuple[str, str]]) -> Draft:
    """With text files (name, content) in `/app`; one that is there already is replaced. Raises ValueError."""
    document, broken = opened(draft.text)
    if broken or value_at(document, ("spec", "worker_groups")) or not reachable(document, Files.place):
        raise ValueError("Files can't be added to this document. Edit it as JSON and add them to `configs`.")
    found = value_at(document, Files.place)
    configs = list(found) if isinstance(found, list) else []
    for name, content in files:
        path = f"/app/{name}"
        others = [each for each in configs if not isinstance(each, dict) or each.get("mounts") != [path]]
        configs = [*others, {"mounts": [path], "value": content}]
    value_set(document, Files.place, configs)
    return replace(draft, text=written(document))
