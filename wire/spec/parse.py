"""From text or data to a `RunDocument`, or to all that is wrong with it."""

from collections.abc import Iterable

from wire.spec.document import RunDocument
from wire.spec.errors import SpecError, SpecErrors, format_path
from wire.spec.rules import broken_rules
from wire.spec.structure import MAX_ERRORS, validated
from wire.spec.tree import Problem, Tree, Unreadable, read_text


def parse_document(text: bytes | str) -> RunDocument:
    """The document written in `text` (JSON in UTF-8). Raises SpecErrors with every mistake, nothing else."""
    try:
        data = read_text(text)
    except Unreadable as unreadable:
        raise _errors([unreadable.problem]) from None
    return validate_document(data)


def validate_document(data: object) -> RunDocument:
    """The document in `data` (JSON values). Raises SpecErrors with every mistake, nothing else.

    Three passes add to one list: single values, the fields' structure, and the rules between fields,
    which look at whatever the first two found sound.
    """
    tree = Tree()
    try:
        copy = tree.copy(data)
    except Unreadable as unreadable:
        raise _errors([*tree.problems, unreadable.problem]) from None
    document, structural = validated(copy)
    refused = {problem.location for problem in tree.problems}
    # A value that was taken out stands there as null: what pydantic says about the null is no news.
    problems = tree.problems + [problem for problem in structural if problem.location not in refused]
    problems += broken_rules(copy, frozenset(problem.location for problem in problems))
    if document is None or problems:
        raise _errors(problems)
    return document


def stored_document(data: object) -> RunDocument:
    """The document in `data`, which was valid when it was stored: only its structure is read, in a tenth of the time.

    Raises SpecErrors where another version stored what this one does not know.
    """
    document, problems = validated(data)
    if document is None:
        raise _errors(problems)
    return document


def _errors(problems: Iterable[Problem]) -> SpecErrors:
    errors = list(
        dict.fromkeys(SpecError(format_path(where), code, message) for where, code, message in problems)
    )
    if len(errors) > MAX_ERRORS:
        more = len(errors) - MAX_ERRORS
        errors = [
            *errors[:MAX_ERRORS],
            SpecError("", "more_errors", f"{more:,} more mistakes are not listed here."),
        ]
    return SpecErrors(tuple(errors))
