"""How many random cases a property is tried on: some now, fifteen times as many with `./dev test --deep`."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from placement import MachineFacts, Placement, Refusal, Request, build_snapshot, place
from tests.placement.strategies import STORAGE
from tests.placement.telling import told

Test = Callable[..., None]

DEEP = 15
"""Cases of the deep run for each case of a usual one."""

settings.register_profile("deep", max_examples=DEEP * settings.get_profile("default").max_examples)


class Checked:
    """Cases that were tried and held, in this process."""

    cases = 0


def holds_for(*drawn: st.SearchStrategy[Any], share: float = 1.0) -> Callable[[Test], Test]:
    """A property: the test is given a value of each strategy, `share` times as often as the profile says."""

    def make(test: Test) -> Test:
        @wraps(test)
        def counted(**values: Any) -> None:
            try:
                test(**values)
            except AssertionError as error:
                error.add_note("\n".join(f"{name}:\n{told(value)}" for name, value in values.items()))
                raise
            Checked.cases += 1

        number = max(1, round(settings().max_examples * share))
        often = settings(
            max_examples=number, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
        )
        marked: Test = pytest.mark.deep(often(given(*drawn)(counted)))
        return marked

    return make


def engine(machines: list[MachineFacts], request: Request) -> Placement | Refusal:
    """What the engine answers on a random cluster."""
    return place(build_snapshot(machines, storage_fabrics=STORAGE), request)


def placed_at_random(machines: list[MachineFacts], request: Request) -> Placement:
    """The engine's placement; a case that it refuses is another property's business."""
    answer = engine(machines, request)
    assume(isinstance(answer, Placement))
    assert isinstance(answer, Placement)
    return answer


def refused_at_random(machines: list[MachineFacts], request: Request) -> Refusal:
    """The engine's refusal; a case that it places is another property's business."""
    answer = engine(machines, request)
    assume(isinstance(answer, Refusal))
    assert isinstance(answer, Refusal)
    return answer
