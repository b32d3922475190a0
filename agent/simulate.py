"""`--simulate FILE`: an inventory that the machine doesn't have, for demos and tests.

    {"machine": {"cpu_cores": 96, "memory_bytes": 1099511627776},
     "gpus": [{"index": 0, "uuid": "GPU-…", "product": "NVIDIA H100 80GB HBM3", "memory_bytes": 85899345920}],
     "rdma_ports": [{"device": "mlx5_0", "port": 1, "link_layer": "InfiniBand", "state": "ACTIVE",
                     "rate_gbps": 400, "subnet_manager": "0x…"}],
     "labels": {"topology.astraeus.io/rack": "r1"}}

The file is read again when it changes, so that a test can break a port.
"""

import logging
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from wire.inventory import FoundLabels, GpuReport, PortReport

log = logging.getLogger(__name__)


class SimulateError(Exception):
    """A file that describes no inventory; the message says where."""


class SimulatedMachine(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    cpu_cores: int | None = Field(default=None, ge=1, le=1_000_000)
    memory_bytes: int | None = Field(default=None, ge=1, lt=2**56)


class Simulated(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    machine: SimulatedMachine = SimulatedMachine()
    gpus: tuple[GpuReport, ...] = ()
    rdma_ports: tuple[PortReport, ...] = ()
    labels: FoundLabels = Field(default_factory=dict)


def simulated_read(path: Path) -> Simulated:
    """Raises SimulateError with all that is wrong."""
    try:
        simulated = Simulated.model_validate_json(path.read_bytes())
    except OSError as error:
        raise SimulateError(f"{path} can't be read: {error.strerror}.") from error
    except ValidationError as error:
        flaws = "; ".join(f"{'.'.join(map(str, f['loc'])) or 'document'}: {f['msg']}" for f in error.errors())
        raise SimulateError(f"{path} describes no machine: {flaws}.") from error
    uuids = [gpu.uuid for gpu in simulated.gpus]
    if len(set(uuids)) != len(uuids):
        raise SimulateError(f"{path} describes no machine: two GPUs have one uuid.")
    return simulated


class SimulatedFile:
    """The newest readable content. A file broken while it is edited leaves the one before in force."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._simulated = simulated_read(path)

    def read(self) -> Simulated:
        try:
            found = self._path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if stamp != self._stamp:
                self._stamp = stamp
                self._simulated = simulated_read(self._path)
        except (OSError, SimulateError) as error:
            log.warning("the simulated inventory stays as it was: %s", error)
        return self._simulated
