"""Whether the secrets, drives and registry credentials that a submitted document names are there and can be used."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from machines.drives import drive_access_of
from machines.models import Cluster, DataVolume, DataVolumeAccess
from machines.states import Reach
from tenancy.models import Workspace
from tenancy.registries import credentials_of, registry_of_image
from tenancy.secrets import secrets_of
from wire.names import shown
from wire.spec import DriveRef, RunDocument, SpecError, TaskTemplate
from wire.spec.fields import close_to


def store_refusals(
    workspace: Workspace, cluster: Cluster | None, document: RunDocument
) -> Iterator[SpecError]:
    """All that is wrong; `cluster` None: the document names one that is not there, so its drives are not looked at."""
    for number, group in enumerate(document.groups()):
        path = template_path(document, number)
        yield from _secrets(workspace, group.template, path)
        yield from _credential(workspace, group.template, path)
    if cluster is not None:
        yield from _Drives(workspace, cluster, document).refusals()


def template_path(document: RunDocument, number: int) -> str:
    """Where the template of the group with this number stands."""
    grouped = document.spec.worker_groups is not None
    return f"spec.worker_groups[{number}].task_template" if grouped else "spec.task_template"


def _secrets(workspace: Workspace, template: TaskTemplate, path: str) -> Iterator[SpecError]:
    if not template.secret_refs:
        return
    there = list(secrets_of(workspace).values_list("name", flat=True))
    for index, ref in enumerate(template.secret_refs):
        if ref.name not in there:
            message = (
                f"{workspace.slug} has no secret {shown(ref.name)}{_meant(ref.name, there)} An admin adds "
                "secrets on the Workspace page."
            )
            yield SpecError(f"{path}.secret_refs[{index}].name", "unknown_secret", message)


def _credential(workspace: Workspace, template: TaskTemplate, path: str) -> Iterator[SpecError]:
    name = template.registry_credential
    if name is None:
        return
    there = {each.name: each for each in credentials_of(workspace)}
    place = f"{path}.registry_credential"
    if name not in there:
        message = (
            f"{workspace.slug} has no registry credential {shown(name)}{_meant(name, list(there))} An admin adds "
            "them on the Workspace page."
        )
        yield SpecError(place, "unknown_credential", message)
    elif there[name].registry != (registry := registry_of_image(template.image)):
        message = (
            f"The registry credential `{name}` is for {there[name].registry}, but the image comes from "
            f"{registry}. Name another one, or leave it out."
        )
        yield SpecError(place, "credential_registry", message)


def _meant(name: str, there: list[str]) -> str:
    near = close_to(name, there)
    return f"; did you mean `{near}`?" if near else "."


@dataclass(frozen=True, slots=True)
class _Use:
    """A drive that a group names, where it does so."""

    path: str
    ref: DriveRef
    group: int
    workers: int
    """Of the group, in the smallest of its shapes."""
    volume: DataVolume
    access: DataVolumeAccess


class _Drives:
    """The drives of a document."""

    def __init__(self, workspace: Workspace, cluster: Cluster, document: RunDocument) -> None:
        self.workspace = workspace
        self.cluster = cluster
        self.document = document
        self.named = any(group.template.datavolume_refs for group in document.groups())
        access = drive_access_of(workspace).filter(volume__cluster=cluster) if self.named else ()
        self.there: Mapping[str, DataVolumeAccess] = {each.volume.name: each for each in access}

    def refusals(self) -> Iterator[SpecError]:
        uses: list[_Use] = []
        for number, group in enumerate(self.document.groups()):
            path = template_path(self.document, number)
            workers = min(shape.machines for shape in group.template.shapes())
            for index, ref in enumerate(group.template.datavolume_refs):
                place = f"{path}.datavolume_refs[{index}]"
                access = self.there.get(ref.name)
                if access is None:
                    yield self._unknown(place, ref)
                else:
                    uses.append(_Use(place, ref, number, workers, access.volume, access))
        for use in uses:
            yield from self._writing(use)
            yield from self._reach(use, uses)

    def _unknown(self, place: str, ref: DriveRef) -> SpecError:
        message = (
            f"{self.workspace.slug} may use no drive {shown(ref.name)} in {self.cluster.slug}"
            f"{_meant(ref.name, list(self.there))} An owner of {self.workspace.organization.slug} opens drives "
            "to workspaces."
        )
        return SpecError(f"{place}.name", "unknown_drive", message)

    def _writing(self, use: _Use) -> Iterator[SpecError]:
        if use.access.read_only and not use.ref.read_only:
            message = (
                f"{self.workspace.slug} may only read the drive `{use.ref.name}`. Leave `read_only` out, or ask an "
                "owner to let the workspace write to it."
            )
            yield SpecError(f"{use.path}.read_only", "drive_read_only", message)

    def _reach(self, use: _Use, uses: list[_Use]) -> Iterator[SpecError]:
        """One worker of a run is on a machine: a drive that only one machine reaches is for one worker."""
        machine, place = use.volume.machine, f"{use.path}.name"
        if machine is None or use.volume.reach == Reach.NETWORK:
            return
        workers = sum({each.group: each.workers for each in uses if each.ref.name == use.ref.name}.values())
        if workers > 1:
            message = (
                f"The drive `{use.ref.name}` lies on {machine.name} and only workers there reach it, so {workers} "
                "workers on as many machines can't use it. Ask for one machine, or use a shared drive."
            )
            yield SpecError(place, "drive_on_one_machine", message)
        elif other := self._elsewhere(use, uses):
            message = (
                f"The drive `{use.ref.name}` lies on {machine.name}, and `{other.ref.name}` on "
                f"{other.volume.machine}: no worker can mount both. Leave one out."
            )
            yield SpecError(place, "drives_apart", message)

    def _elsewhere(self, use: _Use, uses: list[_Use]) -> _Use | None:
        """An earlier drive of the same group that lies on another machine."""
        before = (each for each in uses[: uses.index(use)] if each.group == use.group)
        fixed = (each for each in before if each.volume.reach == Reach.LOCAL)
        apart = (each for each in fixed if each.volume.machine_id not in {None, use.volume.machine_id})
        return next(apart, None)
