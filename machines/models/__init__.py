"""Clusters, pools and machines: what there is to place runs on."""

from machines.models.agents import ReplacedAgent
from machines.models.core import (
    Cluster,
    DataVolume,
    DataVolumeAccess,
    Fabric,
    Gpu,
    JoinToken,
    Machine,
    MachineChange,
    MachineCredential,
    MachineLabel,
    Pool,
    RdmaPort,
    WorkspacePool,
)
from machines.models.health import HealthEvent, HealthOverride

__all__ = [
    "Cluster",
    "DataVolume",
    "DataVolumeAccess",
    "Fabric",
    "Gpu",
    "HealthEvent",
    "HealthOverride",
    "JoinToken",
    "Machine",
    "MachineChange",
    "MachineCredential",
    "MachineLabel",
    "Pool",
    "RdmaPort",
    "ReplacedAgent",
    "WorkspacePool",
]
