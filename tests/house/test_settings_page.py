"""docs/settings.md and the settings themselves, held against each other; wrong values are told by name."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_every_variable_has_a_heading_and_every_heading_a_variable():
    settings = (ROOT / "console" / "settings.py").read_text()
    read = re.findall(r"\benv\.\w+\(\s*\"(\w+)\"", settings)
    described = re.findall(r"^### (\w+)$", (ROOT / "docs" / "settings.md").read_text(), re.MULTILINE)

    assert sorted(described) == sorted(read)
    assert "ASTRAEUS_SECRET_KEY" in read, "or the pattern above no longer finds them"


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("DATABASE_URL", "sqlite:///runs", "DATABASE_URL must begin with postgres:// or postgresql://."),
        ("REDIS_URL", "localhost:6379", "REDIS_URL must begin with redis:// or rediss:// or unix://."),
        ("ASTRAEUS_PUBLIC_URL", "example.org", "ASTRAEUS_PUBLIC_URL must begin with http:// or https://."),
        ("ASTRAEUS_DEBUG", "yes", "ASTRAEUS_DEBUG is 'yes'; it must be 0 or 1."),
        (
            "ASTRAEUS_DATABASE_POOL",
            "1",
            "ASTRAEUS_DATABASE_POOL is '1'; it must be a number from 2 to 200.",
        ),
        (
            "ASTRAEUS_LOG_LEVEL",
            "loud",
            "ASTRAEUS_LOG_LEVEL is 'loud'; it must be one of DEBUG, INFO, WARNING, ERROR.",
        ),
    ],
)
def test_a_wrong_value_stops_the_start_and_is_named(name, value, told):
    started = subprocess.run(
        [sys.executable, "-c", "import console.settings"],
        cwd=ROOT,
        env={**os.environ, name: value},
        capture_output=True,
        text=True,
        check=False,
    )

    assert started.returncode == 1
    assert started.stderr.splitlines()[-1] == f"django.core.exceptions.ImproperlyConfigured: {told}"
