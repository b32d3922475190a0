"""What can go wrong, as people read it, each with its exit code.

0 done, 1 failed, 2 usage, 3 not found, 4 refused, 5 server unreachable.
"""

from collections.abc import Sequence
from dataclasses import dataclass


class AstraError(Exception):
    """Base of all errors that end a command with a sentence instead of a traceback."""

    exit_code = 1

    def lines(self) -> list[str]:
        """What to print, a line each."""
        return [f"Error: {self}"]


class FailedError(AstraError):
    """The server understood and could not do it, or the run did not succeed."""


class UsageError(AstraError):
    """The command line, a local file or the settings are wrong."""

    exit_code = 2


class NotFoundError(AstraError):
    exit_code = 3


class RefusedError(AstraError):
    """The token is not accepted, or its role does not reach so far."""

    exit_code = 4


class UnreachableError(AstraError):
    exit_code = 5


class DroppedError(UnreachableError):
    """The connection was there and broke: the same request may be sent again."""


class BusyError(UnreachableError):
    """The server, or what stands before it, asks to come back later."""

    def __init__(self, message: str, retry_after: float | None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing that is wrong in a document."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidDocumentError(UsageError):
    """All that is wrong in a document, found here or by the server: printed the same way."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(str(error) for error in errors))
        self.errors = tuple(errors)

    def lines(self) -> list[str]:
        return [str(error) for error in self.errors]
