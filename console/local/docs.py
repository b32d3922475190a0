"""`./dev docs`: pages of documentation that are written from the code."""

from collections.abc import Sequence

from console.local.instance import ROOT
from wire.spec.page import run_document_page

RUN_DOCUMENT = ROOT / "docs" / "run-document.md"


def docs(_: Sequence[str]) -> int:
    RUN_DOCUMENT.write_text(run_document_page(), encoding="utf-8")
    print(f"{RUN_DOCUMENT.relative_to(ROOT)} is written")
    return 0
