"""The look and the word of any state's stored value."""

from common.looks import Look
from machines.states import LOOKS as MACHINE_LOOKS
from runs.states import LOOKS as RUN_LOOKS
from runs.states import WaitKind

WAIT_LOOKS: dict[str, Look] = {
    WaitKind.ORDER: Look("wait", "queue"),
    WaitKind.FIT: Look("wait", "slots"),
    WaitKind.POLICY: Look("wait", "shield"),
    WaitKind.NEVER: Look("bad", "never"),
}
WAIT_WORDS: dict[str, str] = {
    WaitKind.ORDER: "Order",
    WaitKind.FIT: "Fit",
    WaitKind.POLICY: "Policy",
    WaitKind.NEVER: "Never possible",
}
"""The three causes of a wait, never mixed, and the one that no waiting ends."""


def look_of(state: str) -> Look:
    return RUN_LOOKS.get(state) or WAIT_LOOKS.get(state) or MACHINE_LOOKS[state]


def word_of(state: str) -> str:
    """Machines' and GPUs' states are stored in lower case; those of runs and workers are their own words."""
    return state if state in RUN_LOOKS else WAIT_WORDS.get(state) or state.capitalize()
