"""docs/run-document.md is what `./dev docs` writes, and names every field."""

from pathlib import Path

from wire.spec import run_schema
from wire.spec.page import run_document_page

PAGE = Path(__file__).parents[2] / "docs" / "run-document.md"


def test_the_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == run_document_page(), "./dev docs writes it anew"


def test_every_field_has_a_line():
    page = run_document_page()
    shapes = [run_schema(), *run_schema()["$defs"].values()]
    fields = {name for shape in shapes for name in shape["properties"]}

    assert len(fields) > 60
    assert [name for name in sorted(fields) if f"| `{name}` |" not in page] == []


def test_a_line_in_full():
    assert (
        "| `max_restarts` | 0 to 1,000 | `3` | Restarts. After so many restarts the run is Failed. "
        "The count starts anew after 10 minutes of running. |"
    ) in run_document_page()
