"""What runs name of their workspace's stores: secrets, drives and registry credentials.

All must be there when a document is submitted (runs/store_checks.py). What is taken away later, while the run waits,
keeps it waiting with a reason (`stores_lacking`); what its machines and agents get is read when they get it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from machines.drives import drive_is_on
from machines.models import DataVolume, DataVolumeAccess, Machine
from tenancy.models import RegistryCredential, Secret
from wire.spec import RunDocument

Reason = dict[str, Any]
Named = Collection[tuple[int, str]]
"""(Workspace id, name) of what is there."""


@dataclass(frozen=True, slots=True)
class Stores:
    """Names, each in any group of a document."""

    secrets: frozenset[str]
    drives: frozenset[str]
    written: frozenset[str]
    """Drives that are not mounted read-only."""
    credentials: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.secrets or self.drives or self.credentials)


def stores_of(document: RunDocument) -> Stores:
    """What the document names."""
    templates = [group.template for group in document.groups()]
    drives = [ref for template in templates for ref in template.datavolume_refs]
    return Stores(
        secrets=frozenset(ref.name for template in templates for ref in template.secret_refs),
        drives=frozenset(ref.name for ref in drives),
        written=frozenset(ref.name for ref in drives if not ref.read_only),
        credentials=frozenset(filter(None, (template.registry_credential for template in templates))),
    )


@dataclass(frozen=True, slots=True)
class Needs:
    """A run's workspace and what the run names there."""

    workspace_id: int
    stores: Stores


def stores_lacking(cluster_id: int, needs: Mapping[int, Needs]) -> dict[int, Reason]:
    """By key of `needs`: why the run can't be placed. Those that lack nothing are not in the answer."""
    asked = {key: need for key, need in needs.items() if need.stores}
    if not asked:
        return {}
    there = _There.load(cluster_id, asked.values())
    reasons = {key: there.lacking(need) for key, need in asked.items()}
    return {key: reason for key, reason in reasons.items() if reason}


@dataclass(frozen=True, slots=True)
class _There:
    """What workspaces have, as far as somebody asks."""

    secrets: Named
    credentials: Named
    drives: Mapping[tuple[int, str], bool]
    """Whether the workspace may only read it."""

    @classmethod
    def load(cls, cluster_id: int, needs: Collection[Needs]) -> "_There":
        """At most one query for each kind of store that is asked for."""
        workspaces = {need.workspace_id for need in needs}
        secrets, drives, credentials = (
            frozenset[str]().union(*(getattr(need.stores, kind) for need in needs))
            for kind in ("secrets", "drives", "credentials")
        )
        access = DataVolumeAccess.objects.filter(
            workspace__in=workspaces, volume__cluster=cluster_id, volume__name__in=drives
        )
        rows = access.values_list("workspace_id", "volume__name", "read_only") if drives else ()
        return cls(
            secrets=_named(Secret, workspaces, secrets),
            credentials=_named(RegistryCredential, workspaces, credentials),
            drives={(workspace, name): read_only for workspace, name, read_only in rows},
        )

    def lacking(self, need: Needs) -> Reason | None:
        """The first thing that the run lacks."""
        workspace, stores = need.workspace_id, need.stores
        causes = {
            "secret_gone": [name for name in stores.secrets if (workspace, name) not in self.secrets],
            "drive_closed": [name for name in stores.drives if (workspace, name) not in self.drives],
            "drive_read_only": [name for name in stores.written if self.drives.get((workspace, name))],
            "credential_gone": [
                name for name in stores.credentials if (workspace, name) not in self.credentials
            ],
        }
        return next(({"code": code, "names": sorted(names)} for code, names in causes.items() if names), None)


def _named(
    model: type[Secret] | type[RegistryCredential], workspaces: Collection[int], names: Collection[str]
) -> Named:
    if not names:
        return ()
    found = model.objects.filter(workspace__in=workspaces, name__in=names)
    return set(found.values_list("workspace_id", "name"))


@dataclass(frozen=True, slots=True)
class DriveAt:
    """Where a machine finds a drive."""

    path: str
    server: Machine | None = None
    """The machine that exports it; None: it is a directory of the machine itself."""


DrivesAt = Mapping[int, Mapping[str, DriveAt]]
"""Machine id → drive → where it is found there."""


def drives_at(machines: Iterable[Machine], names: Collection[str]) -> dict[int, dict[str, DriveAt]]:
    """Of the named drives those that each machine has. One cluster's machines."""
    there = list(machines)
    clusters = {each.cluster_id for each in there}
    drives = DataVolume.objects.filter(cluster__in=clusters, name__in=names).select_related("machine")
    found = list(drives) if names else []
    return {
        each.id: {drive.name: _at(drive, each) for drive in found if drive_is_on(drive, each)}
        for each in there
    }


def _at(drive: DataVolume, machine: Machine) -> DriveAt:
    elsewhere = drive.machine is not None and drive.machine_id != machine.id
    return DriveAt(drive.path, drive.machine if elsewhere else None)
