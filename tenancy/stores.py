"""What secrets, registry credentials and drives share: they are made under names that runs call them by."""

from collections.abc import Iterable

from django.db import IntegrityError, models, transaction

from common.errors import Conflict, FieldError, Invalid
from wire.names import BadName, check_slug


def name_flaws(name: str) -> Iterable[FieldError]:
    try:
        check_slug(name)
    except BadName as error:
        yield FieldError("name", "bad_name", str(error))


def refuse(*flaws: FieldError) -> None:
    """Raises Invalid with all of them, if there are any."""
    if flaws:
        raise Invalid("invalid", flaws[0].message, errors=flaws)


def created(row: models.Model, code: str, message: str) -> None:
    """Saves a new row. Raises Conflict, with `message`, when its name is taken."""
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError as error:
        raise Conflict(code, message, errors=(FieldError("name", code, message),)) from error
