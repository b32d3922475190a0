"""The desired state on disk, so that a restarted agent neither asks for it nor goes back behind it."""

import json
from pathlib import Path

from pydantic import BaseModel, ValidationError

from agent.files import file_replace
from wire.assignments import Desired


class Applied(BaseModel):
    """The last desired state that was applied, and its number."""

    revision: int = 0
    desired: Desired | None = None


class DesiredState:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Applied:
        """Revision 0 when nothing readable is there: the console then sends it all."""
        try:
            return Applied.model_validate_json(self._path.read_bytes())
        except (OSError, ValidationError):
            return Applied()

    def write(self, applied: Applied) -> None:
        """Unsynced: after a power cut the console sends it again. Secrets are left out. Raises OSError."""
        kept = applied.model_copy(update={"desired": applied.desired and applied.desired.stored()})
        document = json.dumps(kept.model_dump(mode="json"), separators=(",", ":"))
        file_replace(self._path, document.encode(), sync=False)
