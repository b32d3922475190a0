"""How states of machines and GPUs are drawn; those of runs and workers stand in runs/states.py."""

from machines.states import Health, MachineState
from runs.states import LOOKS, Look

MACHINE_LOOKS: dict[str, Look] = {
    MachineState.READY: Look("good", "box-tick"),
    MachineState.CORDONED: Look("off", "box-bar"),
    MachineState.DRAINING: Look("leave", "box-out"),
    MachineState.UNREACHABLE: Look("bad", "box-wave"),
    MachineState.QUARANTINED: Look("bad", "never"),
}
HEALTH_LOOKS: dict[str, Look] = {
    Health.HEALTHY: Look("good", "plain"),
    Health.SUSPECT: Look("wait", "triangle"),
    Health.FAULTY: Look("bad", "octagon"),
}


def look_of(state: str) -> Look:
    """Of any state's stored value."""
    return LOOKS.get(state) or MACHINE_LOOKS.get(state) or HEALTH_LOOKS[state]


def word_of(state: str) -> str:
    """Machines' and GPUs' states are stored in lower case; those of runs and workers are their own words."""
    return state if state in LOOKS else state.capitalize()
