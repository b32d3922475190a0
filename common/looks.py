"""How a state is drawn. The looks themselves stand beside the states, in each app's states.py."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Look:
    """Names of a tone (static/css) and of an icon (templates/icons)."""

    tone: str
    icon: str
