"""How a machine joins."""

from django.conf import settings

from common.secrets import NewSecret


def join_command(token: NewSecret) -> str:
    """What to run on the machine."""
    return f"astraeus-agent join --server {settings.PUBLIC_URL} --token {token.value} --run"
