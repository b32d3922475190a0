"""Names of states for the schema: the lists are those of the models."""

from collections.abc import Iterable
from typing import Annotated

from pydantic import WithJsonSchema

from machines.states import Health, LinkLayer, MachineState
from runs.states import RunState, WorkerState


def _one_of(values: Iterable[str]) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "enum": list(values)})


RunStateName = Annotated[str, _one_of(RunState.values)]
WorkerStateName = Annotated[str, _one_of(WorkerState.values)]
MachineStateName = Annotated[str, _one_of(state.label for state in MachineState)]
HealthName = Annotated[str, _one_of(Health.values)]
LinkLayerName = Annotated[str, _one_of(LinkLayer.values)]
