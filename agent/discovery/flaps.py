"""How often links went down lately, from the kernel's counter where there is one, else from what was seen."""

from agent.discovery.ports import Port
from agent.discovery.signs import FLAP_SECONDS

_MOST = 64


class Flaps:
    def __init__(self) -> None:
        self._before: dict[str, Port] = {}
        self._downs: dict[str, tuple[float, ...]] = {}

    def follow(self, port: Port, now: float) -> int:
        """Downs in the last FLAP_SECONDS, this look included."""
        before = self._before.get(port.name)
        self._before[port.name] = port
        new = _downs(before, port) if before else 0
        recent = (at for at in self._downs.get(port.name, ()) if now - at < FLAP_SECONDS)
        self._downs[port.name] = (*recent, *(now for _ in range(new)))[-_MOST:]
        return len(self._downs[port.name])


def _downs(before: Port, now: Port) -> int:
    if before.downs is not None and now.downs is not None:
        return min(max(0, now.downs - before.downs), _MOST)  # a reloaded driver counts from 0 again
    return int(before.active and not now.active)
