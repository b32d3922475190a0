"""The agents' channel: one long poll that waits for news, and reports beside it that wait for nothing."""

import hashlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agent import VERSION
from agent.backoff import Backoff
from agent.client import Console, ConsoleError
from agent.desired_state import Applied, DesiredState
from agent.supervision.processes import boottime
from wire.agent_messages import POLL_SECONDS, PROTOCOL_VERSION, SYNC_PATH, Observed, SyncAnswer, SyncRequest
from wire.assignments import Desired

log = logging.getLogger(__name__)

_REPEAT_SECONDS = 1.0
"""The console may have lost an observation (a restore); it gets the same one again, but not in a loop."""
_HEARD_WIDTH = 32
_PREPARED_SOON_SECONDS, _PREPARED_LOOK_SECONDS = 0.05, 0.002
_AT_ONCE_SECONDS = 0.1
_FRUITLESS_IN_A_ROW = 2
_FRUITLESS_PAUSE = 0.5
"""A report may bring the news for which the poll is answered too, but a console that never holds a poll must
not be asked in a loop."""


@dataclass(frozen=True)
class Identity:
    """What every request says about this agent."""

    boot_id: str
    instance: str
    runtime: str
    simulated: bool
    address: Callable[[], str]


class Heard:
    """When the console last answered, in a file: supervisors stop workers that are cut off by it, and they
    do so even when the agent is dead."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if not os.pread(self._descriptor, 1, 0):
            self.write(boottime())

    def write(self, moment: float) -> None:
        """`moment` is when the answered request was sent: the console counts from no earlier one."""
        os.pwrite(self._descriptor, f"{moment:.3f}".ljust(_HEARD_WIDTH).encode(), 0)


@dataclass
class _Said:
    """What the console is known to have, by the newest answer."""

    sequence: int = -1
    digest: str | None = None
    sent: dict[str, float] = field(default_factory=dict)


class Channel:
    """`apply` is called with every newer desired state, `confirm` when the console answered that there is none;
    from one thread at a time."""

    def __init__(
        self,
        *,
        console: Console,
        identity: Identity,
        state: DesiredState,
        heard: Heard,
        observe: Callable[[], Observed],
        apply: Callable[[Desired], None],
        confirm: Callable[[], None],
        preparing: Callable[[], bool],
    ) -> None:
        self._console = console
        self._identity = identity
        self._state = state
        self._heard = heard
        self._observe = observe
        self._apply = apply
        self._confirm = confirm
        self._preparing = preparing
        self._applied_at = -_PREPARED_SOON_SECONDS
        self._applied = _revision_known(state.read())
        self._sequence = itertools.count()
        self._lock = threading.Lock()
        self._said = _Said()
        self._news = threading.Event()
        self._closed = threading.Event()
        self._reached: bool | None = None
        self._warning = ""
        self._fruitless = 0
        self._repeat_in: float | None = None

    def start(self) -> None:
        for name, work in (("poll", self._poll), ("report", self._report)):
            threading.Thread(target=self._loop, args=(work,), name=name, daemon=True).start()

    def changed(self) -> None:
        """There is something new to report."""
        self._news.set()

    def close(self) -> None:
        self._closed.set()
        self._news.set()

    def _loop(self, work: Callable[[], float]) -> None:
        backoff = Backoff()
        while not self._closed.is_set():
            try:
                wait = work()
                backoff.reset()
            except ConsoleError as error:
                self._say_unreached(error)
                wait = backoff.next(error.retry_after)
                self._news.set()
            except Exception:
                log.exception("unexpected error, tried again")
                wait = backoff.next()
            self._closed.wait(wait)

    def _poll(self) -> float:
        self._let_prepare()
        begun, applied = time.monotonic(), self._applied
        # The first answer, also after an outage, is wanted at once: adopted workers wait for it.
        self._sync(self._request(wait_seconds=POLL_SECONDS if self._reached else 0))
        fruitless = self._applied == applied and time.monotonic() - begun < _AT_ONCE_SECONDS
        self._fruitless = self._fruitless + 1 if fruitless else 0
        return _FRUITLESS_PAUSE if self._fruitless > _FRUITLESS_IN_A_ROW else 0.0

    def _report(self) -> float:
        self._news.wait(self._repeat_in)
        self._news.clear()
        self._repeat_in = None
        self._let_prepare()
        with self._lock:
            digest = digest_of(self._observe())
            known, sent = self._said.digest == digest, self._said.sent.get(digest)
        if known or self._closed.is_set():
            return 0.0
        if sent is not None and time.monotonic() - sent < _REPEAT_SECONDS:
            self._repeat_in = _REPEAT_SECONDS
            return 0.0
        self._sync(self._request(wait_seconds=0))
        return 0.0

    def _let_prepare(self) -> None:
        """Sandboxes are ready within milliseconds: one request says so, in place of one that says "preparing"
        and a second one that has to wait until the console has taken in the first.
        """
        while time.monotonic() - self._applied_at < _PREPARED_SOON_SECONDS and self._preparing():
            if self._closed.wait(_PREPARED_LOOK_SECONDS):
                return

    def _request(self, *, wait_seconds: float) -> SyncRequest:
        """Sequence, applied revision and observation are of one moment: an assignment that is missing from
        an observation counts as lost when the revision that brought it has been applied."""
        with self._lock:
            observed = self._observe()
            digest = digest_of(observed)
            whole = self._said.digest != digest
            if whole:
                self._said.sent = {digest: time.monotonic()}
            return SyncRequest(
                protocol=PROTOCOL_VERSION,
                agent_version=VERSION,
                boot_id=self._identity.boot_id,
                instance=self._identity.instance,
                sequence=next(self._sequence),
                sent_at=time.time(),
                applied_revision=self._applied,
                wait_seconds=wait_seconds,
                address=self._identity.address(),
                runtime="bubblewrap" if self._identity.runtime == "bubblewrap" else "docker",
                simulated=self._identity.simulated,
                digest=digest,
                observed=observed if whole else None,
            )

    def _sync(self, request: SyncRequest) -> None:
        sent_at = boottime()
        answer = self._console.send(SYNC_PATH, request, SyncAnswer, wait_seconds=request.wait_seconds)
        self._say_reached()
        self._heard.write(sent_at)
        self._take(request, answer)

    def _take(self, request: SyncRequest, answer: SyncAnswer) -> None:
        if answer.revision < request.applied_revision:
            log.error(
                "the console is at revision %d, this machine has applied %d: its database has gone back in "
                "time; nothing is changed here",
                answer.revision,
                request.applied_revision,
            )
        with self._lock:
            self._say_warned(answer.warning)
            if request.sequence > self._said.sequence:
                self._said.sequence, self._said.digest = request.sequence, answer.stored_digest
            self._take_desired(answer)
        self._news.set()  # a report finds out whether the console holds the newest observation

    def _take_desired(self, answer: SyncAnswer) -> None:
        if answer.revision == self._applied:
            self._confirm()
        if answer.desired is None or answer.revision <= self._applied:
            return  # late, or twice
        try:
            self._state.write(Applied(revision=answer.revision, desired=answer.desired))
        except OSError as error:
            log.warning("the desired state can't be written (%s); it is applied all the same", error)
        self._applied_at = time.monotonic()
        self._apply(answer.desired)
        self._applied = answer.revision

    def _say_reached(self) -> None:
        if self._reached is not True:
            self._reached = True
            log.info("connected server=%s", self._console.server)

    def _say_warned(self, warning: str) -> None:
        """Once each time that it begins."""
        if warning and warning != self._warning:
            log.error("the console says: %s", warning)
        self._warning = warning

    def _say_unreached(self, error: ConsoleError) -> None:
        if self._reached is not False:
            self._reached = False
            log.warning("no answer from the console, workers go on: %s", error)


def _revision_known(applied: Applied) -> int:
    """0 asks the console for all of its desired state: secrets are not kept on a disk."""
    return 0 if applied.desired and applied.desired.withheld() else applied.revision


def digest_of(observed: Observed) -> str:
    return hashlib.sha256(observed.model_dump_json().encode()).hexdigest()[:32]
