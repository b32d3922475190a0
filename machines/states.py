"""States of machines, GPUs and ports, their words and looks; the labels that tell where a machine is."""

from django.db import models

from common.looks import Look


class MachineState(models.TextChoices):
    """Derived from what was said and seen (`Machine.state`), in this order of precedence."""

    QUARANTINED = "quarantined", "Quarantined"
    UNREACHABLE = "unreachable", "Unreachable"
    CONTESTED = "contested", "Contested"
    """Two agents use its credential."""
    DRAINING = "draining", "Draining"
    CORDONED = "cordoned", "Cordoned"
    READY = "ready", "Ready"


class Health(models.TextChoices):
    HEALTHY = "healthy", "Healthy"
    SUSPECT = "suspect", "Suspect"
    FAULTY = "faulty", "Faulty"


class LinkLayer(models.TextChoices):
    INFINIBAND = "InfiniBand", "InfiniBand"
    ETHERNET = "Ethernet", "RoCE"


class Runtime(models.TextChoices):
    DOCKER = "docker", "docker"
    BUBBLEWRAP = "bubblewrap", "bubblewrap"


class DriveKind(models.TextChoices):
    """Where a drive lies."""

    SHARED = "shared", "shared"
    """The same path on every machine of a cluster or pool: a shared file system."""
    MACHINE = "machine", "on one machine"


class Reach(models.TextChoices):
    """Who may mount a drive that lies on one machine."""

    LOCAL = "local", "workers on this machine"
    NETWORK = "network", "workers on other machines too"


LOOKS: dict[str, Look] = {
    MachineState.READY: Look("good", "box-tick"),
    MachineState.CORDONED: Look("off", "box-bar"),
    MachineState.DRAINING: Look("leave", "box-out"),
    MachineState.CONTESTED: Look("bad", "box-two"),
    MachineState.UNREACHABLE: Look("bad", "box-wave"),
    MachineState.QUARANTINED: Look("bad", "never"),
    Health.HEALTHY: Look("good", "plain"),
    Health.SUSPECT: Look("wait", "triangle"),
    Health.FAULTY: Look("bad", "octagon"),
}

UNREACHABLE_AFTER_SECONDS = 45
LOST_AFTER_SECONDS = 90
"""After becoming unreachable: then its workers are Lost."""

FABRIC_LABEL = "topology.astraeus.io/fabric"
RACK_LABEL = "topology.astraeus.io/rack"
NVLINK_DOMAIN_LABEL = "topology.astraeus.io/nvlink-domain"
TOPOLOGY_LABELS = (FABRIC_LABEL, RACK_LABEL, NVLINK_DOMAIN_LABEL)
