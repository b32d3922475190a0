"""How the program is told its job, and how it answers: {"ok", "text", "machines"}, where `machines` are at fault."""

from __future__ import annotations

from typing import Any

JOB, MARK = "ASTRAEUS_PREFLIGHT", "astraeus-preflight: "
Json = dict[str, Any]
_TEXT_LENGTH = 300


def passed(text: str) -> Json:
    return {"ok": True, "text": text, "machines": []}


def failed(text: str, machines: list[str]) -> Json:
    return {"ok": False, "text": text, "machines": machines}


def said(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:_TEXT_LENGTH]
