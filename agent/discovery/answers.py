"""What the driver's library has answered, as documents that go from the helper process to the agent, a line each."""

from pydantic import BaseModel, ConfigDict, Field

_FABRIC_WAITS, _FABRIC_DONE = (1, 2), 3
"""nvmlGpuFabricState_t: not started, in progress; completed."""


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class NvLink(Answer):
    link: int
    active: bool
    recoveries: int | None = None
    replays: int | None = None
    """Counters since the driver was loaded; None: this GPU doesn't have it."""


class NvFabric(Answer):
    """Where a GPU belongs on its NVLink switches."""

    state: int
    status: int
    cluster_uuid: str
    """All zeros on a machine whose switches connect no others."""
    clique: int
    health: int = 0

    @property
    def waits(self) -> bool:
        """Its switches have not taken it in yet."""
        return self.state in _FABRIC_WAITS

    @property
    def done(self) -> bool:
        """They have answered; `status` says what."""
        return self.state == _FABRIC_DONE


class Pcie(Answer):
    generation: int
    width: int
    max_generation: int
    max_width: int
    """Of this GPU in this slot."""


class MigInstance(Answer):
    uuid: str
    product: str
    memory_bytes: int = 0


class GpuAnswer(Answer):
    index: int
    uuid: str
    product: str
    memory_bytes: int = 0
    pci_bus: str = ""
    """As sysfs calls it: "0000:3b:00.0"."""
    error: str = ""
    """Not empty: it answered with this error; identity is then what was known, all else the default."""
    lost: bool = False
    """It has fallen off the bus, or needs a reset to answer."""
    busy: bool | None = None
    """Whether it has worked since the answer before; None: it doesn't say."""
    throttle: int = 0
    """nvmlClocksEventReasons"""
    ecc_uncorrected: int = 0
    """Since the driver was loaded."""
    sram_worn: bool = False
    """More errors in on-chip memory than the vendor allows."""
    rows_pending: bool = False
    rows_failed: bool = False
    pages_pending: bool = False
    recovery: int = 0
    """nvmlDeviceGpuRecoveryAction: what the driver says must be done to the GPU."""
    pcie: Pcie | None = None
    links: tuple[NvLink, ...] = ()
    fabric: NvFabric | None = None
    mig: bool = False
    instances: tuple[MigInstance, ...] = ()


class Xid(Answer):
    """An error that the driver has reported of a GPU."""

    uuid: str
    number: int


class Failure(Answer):
    """The library doesn't work on this machine at all."""

    code: int
    message: str


class NvmlAnswer(Answer):
    driver_version: str = ""
    cuda_version: str = ""
    gpus: tuple[GpuAnswer, ...] = ()
    xids: tuple[Xid, ...] = ()
    """Since the answer before."""
    failure: Failure | None = None
    problems: tuple[str, ...] = Field(default=(), max_length=64)
    """GPUs that couldn't be asked, and of which nothing is known."""
