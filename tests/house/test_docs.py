"""What the documents name is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = (
    "agent astra benchmarks common console docs machines placement runs static templates tenancy tests wire"
)
NAMED = re.compile(rf"(?<![\w/.>-])(?:{ROOMS.replace(' ', '|')}|worker_image)/[\w/.-]*")


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "docs/architecture.md",
        "docs/machines.md",
        "docs/operation.md",
        "docs/performance.md",
        "docs/run-document.md",
        "docs/settings.md",
        *(f"docs/recipes/{page.name}" for page in sorted((ROOT / "docs" / "recipes").glob("*.md"))),
    ],
)
def test_every_path_leads_somewhere(document):
    named = {found.rstrip(".") for found in NAMED.findall((ROOT / document).read_text())}

    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


def test_the_architecture_s_picture_is_read():
    """Or the pattern above no longer finds anything."""
    named = NAMED.findall((ROOT / "docs" / "architecture.md").read_text())

    assert {"runs/gang/view.py", "console/streams/hub.py", "placement/words.py"} <= set(named)
