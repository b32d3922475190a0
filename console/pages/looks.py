"""The look and the word of any state's stored value."""

from common.looks import Look
from machines.states import LOOKS as MACHINE_LOOKS
from runs.states import LOOKS as RUN_LOOKS


def look_of(state: str) -> Look:
    return RUN_LOOKS.get(state) or MACHINE_LOOKS[state]


def word_of(state: str) -> str:
    """Machines' and GPUs' states are stored in lower case; those of runs and workers are their own words."""
    return state if state in RUN_LOOKS else state.capitalize()
