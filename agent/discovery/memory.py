"""What discovery remembers of a machine's boot, on disk: health, its events, and the GPUs that were there.

A restarted agent goes on where the last one was: a GPU that broke stays broken, one that vanished is still missed. A
reboot forgets all but the events: what is still wrong is seen again at once.
"""

import logging
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from agent.discovery.answers import GpuAnswer
from agent.discovery.health import Known
from agent.files import file_replace
from wire.machine_facts import HealthEvent

log = logging.getLogger(__name__)

MOST_EVENTS = 64
_NAME = "discovered.json"


class Memory(BaseModel):
    model_config = ConfigDict(frozen=True)

    boot_id: str = ""
    health: dict[str, dict[str, Known]] = {}
    """Subject → kind → sign."""
    gpus: tuple[GpuAnswer, ...] = ()
    """As they were last known, whether or not they are still there."""
    gpus_at: float | None = None
    """Epoch."""
    events: tuple[HealthEvent, ...] = ()


def memory_read(state: Path, boot_id: str) -> Memory:
    """Of this boot; nothing but the events of an earlier one."""
    try:
        memory = Memory.model_validate_json((state / _NAME).read_bytes())
    except (OSError, ValidationError):
        return Memory(boot_id=boot_id)
    return memory if memory.boot_id == boot_id else Memory(boot_id=boot_id, events=memory.events)


def memory_write(state: Path, memory: Memory) -> None:
    try:
        file_replace(state / _NAME, memory.model_dump_json().encode(), sync=False)
    except OSError as error:  # a full disk: it is known as long as this agent lives
        log.warning("what was discovered can't be kept: %s", error.strerror)
