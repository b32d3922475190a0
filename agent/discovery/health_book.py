"""Health of everything on this machine, by subject, and the events of its changes."""

import time
import uuid
from collections.abc import Callable, Iterable, Mapping

from agent.discovery.health import Known, Sign, State, Verdict, aged, followed, verdict
from agent.discovery.memory import MOST_EVENTS
from wire.machine_facts import HealthEvent


class HealthBook:
    """`epoch`: this machine's wall clock, for the events. All other times are those of the caller's clock."""

    def __init__(
        self,
        health: Mapping[str, Mapping[str, Known]],
        events: Iterable[HealthEvent],
        *,
        epoch: Callable[[], float] = time.time,
    ) -> None:
        self._states: dict[str, State] = dict(health)
        self._events = list(events)[-MOST_EVENTS:]
        self._epoch = epoch

    @property
    def events(self) -> tuple[HealthEvent, ...]:
        return tuple(self._events)

    def states(self) -> dict[str, dict[str, Known]]:
        return {subject: dict(state) for subject, state in self._states.items() if state}

    def follow(self, subject: str, name: str, signs: Iterable[Sign], now: float) -> Verdict:
        """After a look that saw exactly `signs`. `name`: for people."""
        return self._become(subject, name, followed(self._state(subject), signs, now))

    def age(self, subject: str, name: str, now: float) -> Verdict:
        """When it couldn't be looked at."""
        return self._become(subject, name, aged(self._state(subject), now))

    def forget(self, subject: str) -> None:
        self._states.pop(subject, None)

    def _state(self, subject: str) -> State:
        return self._states.get(subject, {})

    def _become(self, subject: str, name: str, state: State) -> Verdict:
        was, now = verdict(self._state(subject)), verdict(state)
        self._states[subject] = state
        if was != now:
            event = HealthEvent(
                id=uuid.uuid4().hex,
                at=self._epoch(),
                subject=subject[:100],
                name=name[:100],
                was=was.health,
                health=now.health,
                evidence=now.evidence,
            )
            self._events = [*self._events, event][-MOST_EVENTS:]
        return now
