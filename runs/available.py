"""Parts of the run document that this console can't carry out yet: refused, never silently ignored."""

from collections.abc import Iterator

from wire.spec import Group, RunDocument, SpecError


def unavailable(document: RunDocument) -> tuple[SpecError, ...]:
    """An error for each part of a valid document that would have no effect here."""
    return tuple(
        error
        for number, group in enumerate(document.groups())
        for error in _group_parts(group, template_path(document, number))
    )


def template_path(document: RunDocument, number: int) -> str:
    """Where the template of the group with this number stands."""
    grouped = document.spec.worker_groups is not None
    return f"spec.worker_groups[{number}].task_template" if grouped else "spec.task_template"


def _group_parts(group: Group, path: str) -> Iterator[SpecError]:
    if group.template.requested_resources.network.preflight == "allreduce":
        field = f"{path}.requested_resources.network.preflight"
        yield not_available(field, "The all-reduce check", "use `links` or `none`")


def not_available(path: str, what: str, instead: str) -> SpecError:
    """`what` begins the sentence, `instead` says what to do."""
    return SpecError(path, "not_available", f"{what} can't be used on this console yet; {instead}.")
