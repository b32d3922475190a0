"""How a machine joins."""

from django.conf import settings

from common.secrets import NewSecret

AGENT_INSTALL = """\
python3 -m venv /opt/astraeus-agent
/opt/astraeus-agent/bin/pip install .
ln -s /opt/astraeus-agent/bin/astraeus-agent /usr/local/bin/"""
"""As root in a copy of this repository, on a machine without the agent. An environment of its own: distributions keep
theirs for themselves."""


def join_command(token: NewSecret) -> str:
    """What to run on the machine."""
    return f"astraeus-agent join --server {settings.PUBLIC_URL} --token {token.value} --run"
