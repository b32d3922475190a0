"""Waiting for something at the server: patient with lost connections, never silent about them for long."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from astra.client import Client
from astra.errors import BusyError, FailedError, NotFoundError, UnreachableError
from astra.output import note, word
from astra.states import RUN_ENDED

PATIENCE_SECONDS = 600.0
"""A console may be away for this long (an update, a fail-over) before a wait gives up."""
LONGEST_PAUSE = 5.0
POLL_SECONDS = 1.0


@dataclass
class Patience:
    """Decides, after each failure in a row, whether to try again; waits in between."""

    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    tell: Callable[[str], None] = note
    _since: float | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)

    def succeeded(self) -> None:
        self._since, self._failures = None, 0

    def failed(self, error: UnreachableError) -> None:
        """Returns when it is time to try again; raises `error` when it has lasted too long."""
        now = self.clock()
        self._since = now if self._since is None else self._since
        self._failures += 1
        if now - self._since > PATIENCE_SECONDS:
            raise error
        # The first reconnect is immediate and nobody's business: a proxy cut an idle connection.
        if self._failures == 2:  # noqa: PLR2004 - explained above
            self.tell(f"{error} Trying again.")
        asked = error.retry_after if isinstance(error, BusyError) else None
        if self._failures > 1:
            self.sleep(min(asked or 0.1 * 2 ** min(self._failures, 8), LONGEST_PAUSE))


def wait_until_gone(client: Client, run: str, sleep: Callable[[float], None] = time.sleep) -> None:
    """Until the deleted run is no longer found: its workers had time to stop."""
    patience, pause = Patience(sleep=sleep), 0.1
    while True:
        try:
            client.run_get(run)
        except NotFoundError:
            return
        except UnreachableError as error:
            patience.failed(error)
            continue
        patience.succeeded()
        sleep(pause)
        pause = min(pause * 1.5, 2.0)


def wait_until_ended(
    client: Client, run: str, report: Callable[[Any], None], pause: float = POLL_SECONDS
) -> Any:
    """The run once it has ended; `report` gets it whenever its state or reason has changed."""
    patience = Patience()
    shown: tuple[str, str] | None = None
    while True:
        try:
            current = client.run_get(run)
        except NotFoundError:
            raise FailedError(f"{run} was deleted before it ended.") from None
        except UnreachableError as error:
            patience.failed(error)
            continue
        patience.succeeded()
        state = word(current, "status", "state"), word(current, "status", "reason")
        if state[0] in RUN_ENDED:
            return current
        if state != shown:
            report(current)
            shown = state
        time.sleep(pause)
