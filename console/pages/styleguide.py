"""`/styleguide`: every colour, state and component of the pages, once. Its test holds the list complete."""

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from console.pages.errors import page
from console.pages.looks import WAIT_LOOKS
from machines.models import Gpu
from machines.states import LOOKS as MACHINE_LOOKS
from machines.states import Health, MachineState
from runs.states import LOOKS as RUN_LOOKS

TONES = {
    "wait": "waits, or should be watched",
    "move": "is being prepared",
    "run": "runs",
    "leave": "is being stopped, or emptied",
    "good": "is well, has succeeded",
    "bad": "has failed, is broken",
    "off": "is set aside by somebody",
}
GROUNDS = ("page", "surface", "sunken", "accent-tint")
SIZES = (
    ("small", "12/16", "table heads, labels of the map"),
    ("code", "13/18", "log, JSON"),
    ("body", "14/20", "everything else"),
    ("lead", "16/24", "lead text; fields on touch screens"),
    ("title", "20/28", "a page's title, the headline of an explanation"),
    ("empty", "24/32", "the title of an empty page"),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A GPU as a cell, and what it says."""

    word: str
    gpu: Gpu
    holder: str | None


def _cells() -> list[Cell]:
    kinds = (("free", Health.HEALTHY, None), ("held", Health.HEALTHY, "llm-7"))
    sick = (("suspect, free", Health.SUSPECT, None), ("suspect, held", Health.SUSPECT, "llm-7"))
    all_ = (*kinds, *sick, ("faulty", Health.FAULTY, None))
    return [
        Cell(word, Gpu(id=index, index=index, health=health), holder)
        for index, (word, health, holder) in enumerate(all_)
    ]


@page
@require_safe
def styleguide(request: HttpRequest) -> HttpResponse:
    cells = _cells()
    context = {
        "tones": TONES,
        "grounds": GROUNDS,
        "sizes": SIZES,
        "run_states": list(RUN_LOOKS),
        "machine_states": [state for state in MACHINE_LOOKS if state in MachineState],
        "waits": list(WAIT_LOOKS),
        "cells": cells,
        "gpus": [cell.gpu for cell in cells],
        "held": frozenset(cell.gpu.id for cell in cells if cell.holder),
        "now": timezone.now(),
    }
    return render(request, "styleguide.html", context)
