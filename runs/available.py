"""Parts of the run document that this console can't carry out yet: refused, never silently ignored."""

from collections.abc import Iterator

from wire.spec import Group, RunDocument, SpecError


def unavailable(document: RunDocument) -> tuple[SpecError, ...]:
    """An error for each part of a valid document that would have no effect here."""
    return tuple(_run_parts(document)) + tuple(
        error
        for number, group in enumerate(document.groups())
        for error in _group_parts(group, _path(document, number))
    )


def _path(document: RunDocument, number: int) -> str:
    grouped = document.spec.worker_groups is not None
    return f"spec.worker_groups[{number}].task_template" if grouped else "spec.task_template"


def _run_parts(document: RunDocument) -> Iterator[SpecError]:
    if document.spec.start == "Independent":
        yield _refusal("spec.start", "Workers that start on their own (`Independent`)", "use `Gang`")
    if document.spec.worker_groups is not None:
        yield _refusal("spec.worker_groups", "Several groups of workers", "use `task_template`")


def _group_parts(group: Group, path: str) -> Iterator[SpecError]:
    template = group.template
    given = {
        "datavolume_refs": (template.datavolume_refs, "Drives"),
        "secret_refs": (template.secret_refs, "Secrets"),
        "registry_credential": (template.registry_credential, "Registry credentials"),
        "hang_after_seconds": (template.hang_after_seconds, "Hang detection"),
        "warn_signal_seconds": (template.warn_signal_seconds, "A warning before the time limit"),
    }
    for field, (value, what) in given.items():
        if value:
            yield _refusal(f"{path}.{field}", what)
    for name in ("startup", "readiness", "liveness"):
        if getattr(template.probes, name) is not None:
            yield _refusal(f"{path}.probes.{name}", "Probes")
    if template.requested_resources.network.preflight == "allreduce":
        field = f"{path}.requested_resources.network.preflight"
        yield _refusal(field, "The all-reduce check", "use `links` or `none`")


def _refusal(path: str, what: str, instead: str = "leave it out") -> SpecError:
    return SpecError(path, "not_available", f"{what} can't be used on this console yet; {instead}.")
