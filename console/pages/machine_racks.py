"""Racks as items of the map's lists. A large cluster has more than a thousand: a template's loop and a call for each
part would take longer than all the rest of the page.
"""

from collections.abc import Iterable
from functools import lru_cache
from html import escape

from django.utils.safestring import SafeString, mark_safe

from console.pages.machine_cells import FAULTY
from console.pages.machine_tiles import Rack

BAR_WIDTH, BAR_HEIGHT = 104, 12


def rack_item(rack: Rack, drawing: SafeString, *, opens: str | None, sets: str, marked: bool) -> SafeString:
    """`opens`: the address of this rack alone; None where it is alone already. `sets`: where its machines' rack is set;
    empty where that is known. `marked`: the map is shown for a run."""
    title = f"<bdi>{escape(rack.title)}</bdi>"
    heading = title if opens is None else f'<a href="{escape(opens)}">{title}</a>'
    counts = f"{rack.tally.free:,} of {rack.tally.gpus:,} free"
    fit = f" · {rack.fitting:,} {'fits' if rack.fitting == 1 else 'fit'}" if marked else ""
    link = f'<a class="small" href="{escape(sets)}">Set it</a>' if sets else ""
    item = f'<li><h3>{heading} <span class="muted">{counts}{fit}</span></h3>{drawing}{link}</li>'
    return mark_safe(item)  # noqa: S308 - numbers, and texts that are escaped


@lru_cache(maxsize=4096)
def rack_bar(rack: Rack) -> SafeString:
    """A rack of a cluster that is too large for tiles: held, free and faulty as parts of one bar.

    Kept, for from one map to the next few racks change.
    """
    tally, total = rack.tally, max(1, rack.tally.gpus)
    drawn, x = "", 0.0
    for kind, count in (("held", tally.held), ("free", tally.free), ("faulty", tally.cells([FAULTY]))):
        width = BAR_WIDTH * count / total
        if count:
            drawn += f'<rect class="{kind}" x="{x:.2f}" y="0.500" width="{width:.2f}" height="11"/>'
        x += width
    size = f'width="{BAR_WIDTH}" height="{BAR_HEIGHT}"'
    bar = f'<svg class="cells rack-bar" {size} role="img" aria-label="{escape(rack.label)}">{drawn}</svg>'
    return mark_safe(bar)  # noqa: S308 - numbers, and a text that is escaped


def concatenated(items: Iterable[SafeString]) -> SafeString:
    return mark_safe("".join(items))  # noqa: S308 - of safe parts
