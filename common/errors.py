"""What goes wrong in ways a person can mend. Raised by services, worded once, shown by API, page and CLI alike."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing to change, at a path of the document or form."""

    path: str
    code: str
    message: str

    def as_data(self) -> dict[str, str]:
        return {"path": self.path, "code": self.code, "message": self.message}


class DomainError(Exception):
    """A refusal with a stable code, a sentence for people and an HTTP status."""

    status = 400
    title = "This can't be done"

    def __init__(self, code: str, message: str, *, errors: tuple[FieldError, ...] = (), **extra: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.errors = errors
        self.extra = extra


class BadRequest(DomainError):
    """Not the document is wrong but how it was asked: a query parameter, a header."""

    title = "The request has errors"


class TooLarge(DomainError):
    status = 413
    title = "Too large"


class Invalid(DomainError):
    status = 422
    title = "The document has errors"


class Conflict(DomainError):
    status = 409
    title = "It clashes with what is there"


class NotFound(DomainError):
    """Also for what one may not see: a refusal must not tell that something exists."""

    status = 404
    title = "Nothing here that you may see"

    def __init__(self, message: str = "Nothing here that you may see.") -> None:
        super().__init__("not_found", message)


class Forbidden(DomainError):
    """For what one may see but not do."""

    status = 403
    title = "Your role does not allow this"

    def __init__(self, message: str) -> None:
        super().__init__("forbidden", message)
