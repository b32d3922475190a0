"""Lines for a worker's History that come of making its container, kept beside its other files."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.files import file_replace
from agent.journal import Entry, Facts
from wire.agent_messages import Note

PULLED_NOTE, MEMLOCK_NOTE = 5, 6
"""Numbers of notes: smaller ones are the supervisor's, those from 10 on the watch's."""
_FILE = "notes.json"


def note_add(entry: Entry, number: int, text: str) -> None:
    """What was noted first stays: a check has pulled the image before the worker finds it there. Raises OSError."""
    notes = _read(entry)
    if any(note["number"] == number for note in notes):
        return
    note = Note(number=number, at=time.time(), text=text).model_dump(mode="json")
    file_replace(entry.path / _FILE, json.dumps([*notes, note]).encode(), sync=False)


def with_notes(entry: Entry, facts: Facts) -> Facts:
    told = {"notes": _read(entry)}
    if not told["notes"]:
        return facts
    return replace(
        facts, state={**facts.state, **told}, exit=None if facts.exit is None else {**facts.exit, **told}
    )


def _read(entry: Entry) -> list[Mapping[str, Any]]:
    try:
        found: list[Mapping[str, Any]] = json.loads((entry.path / _FILE).read_bytes())
    except (OSError, ValueError):
        return []
    return found
