"""The border between the agent and what runs workers: bubblewrap now, other container engines behind it later."""

from typing import Protocol

from agent.journal import Entry, Facts


class NotPrepared(Exception):
    """A worker that can't be prepared here; the message becomes its reason."""


class Runtime(Protocol):
    """Everything is asked for by assignment, may be asked for again, and returns without waiting."""

    name: str

    def open(self) -> None:
        """Get ready for workers."""

    def close(self) -> None:
        """Let go of everything but the workers."""

    def version(self) -> str:
        """As the machine's page shows it."""

    def limits(self) -> tuple[str, ...]:
        """What it can't enforce on this machine, a sentence each."""

    def facts(self, entry: Entry) -> Facts:
        """How far the worker is."""

    def prepare(self, entry: Entry) -> None:
        """Create the worker without starting it. Raises NotPrepared, also OSError (a full disk)."""

    def start(self, entry: Entry) -> None:
        """Let a prepared worker go; at most one start ever comes of it."""

    def stop(self, entry: Entry) -> None:
        """Stop signal, grace, SIGKILL; a worker that was only prepared ends at once."""

    def clear(self, entry: Entry, facts: Facts) -> bool:
        """End what a worker without a supervisor has left. True when its whole process tree is gone."""

    def release(self, entry: Entry) -> None:
        """Let go of what is held for an ended worker; returns within moments."""

    def lost_because(self, entry: Entry) -> str:
        """Why a worker ended without a record, a sentence."""

    def explain(self, entry: Entry, message: str) -> str:
        """The runtime's own message, said for people."""
