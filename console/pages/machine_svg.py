"""Tiles as SVG: each pattern of cells is defined once, a machine is one link with one reference to it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from console.pages.machine_cells import (
    CHOSEN,
    FAULTY,
    FITS,
    FREE,
    FREE_SUSPECT,
    HELD,
    HELD_OTHERS,
    HELD_SUSPECT,
)
from console.pages.machine_tiles import Rack, Tile

CELLS_A_ROW = 4
CELL_WIDTH, CELL_HEIGHT = 5, 9
CELL_PITCH, ROW_PITCH = 6, 10
CELLS_WIDTH, CELLS_HEIGHT = 24, 20
"""Of the first two rows of cells: all that most machines have."""
TILE_WIDTH = 26
"""With TILE_HEIGHT at least: the size of a target that a finger hits."""
MARGIN = 4
"""Below the cells: the state's mark, or a bracket."""
TILE_HEIGHT = 24
NAME_HEIGHT = 16
NAMED_WIDTH = 116
NAME_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class Grid:
    """How the tiles of every rack are laid out."""

    columns: int
    width: int
    height: int
    names: bool


def grid_of(tiles: Iterable[Tile], *, names: bool) -> Grid:
    rows = max((-(-len(tile.cells) // CELLS_A_ROW) for tile in tiles), default=1)
    height = max(TILE_HEIGHT, rows * ROW_PITCH + MARGIN)
    if names:
        return Grid(2, NAMED_WIDTH, height + NAME_HEIGHT, names=True)
    return Grid(4, TILE_WIDTH, height, names=False)


def pattern_id(tile: Tile) -> str:
    """The same for tiles that look the same."""
    return f"p-{tile.state[0]}{tile.cells.hex()[1::2]}"


def patterns(tiles: Iterable[Tile], grid: Grid) -> SafeString:
    """What the tiles refer to, for the inside of `<defs>`."""
    different = {pattern_id(tile): tile for tile in tiles}
    return format_html_join(
        "", "{}", ((_pattern(name, tile, grid),) for name, tile in sorted(different.items()))
    )


def _pattern(name: str, tile: Tile, grid: Grid) -> SafeString:
    hit = format_html('<rect class="hit" width="{}" height="{}"/>', grid.width, grid.height)
    rows = max(1, -(-len(tile.cells) // CELLS_A_ROW))
    bottom = rows * ROW_PITCH + 1
    unknown = tile.state in {"unreachable", "quarantined"}
    cells = [] if unknown else [_cell(index, code) for index, code in enumerate(tile.cells)]
    return format_html(
        # Rules of the style sheet see no further up than this group where it is referred to.
        '<g id="{}" class="cells">{}{}{}</g>',
        name,
        hit,
        format_html_join("", "{}", ((each,) for each in cells)),
        mark_safe(_FRAMES[tile.state](bottom)),  # noqa: S308 - shapes of ours
    )


_FRAMES: dict[str, Callable[[int], str]] = {
    "ready": lambda _: "",
    "cordoned": lambda bottom: f'<rect class="bar" x="1" y="{bottom}" width="23" height="2"/>',
    # Two bars: two agents.
    "contested": lambda bottom: (
        f'<rect class="lost" x="1.500" y="{bottom}.500" width="10" height="1"/>'
        f'<rect class="lost" x="13.500" y="{bottom}.500" width="10" height="1"/>'
    ),
    "draining": lambda bottom: f'<path class="arrow" d="M1 {bottom + 1}h18m0-2l4 2l-4 2z"/>',
    "unreachable": lambda bottom: (
        f'<rect class="lost" x="1.500" y="1.500" width="22" height="{bottom - 3}"/>'
    ),
    "quarantined": lambda bottom: (
        f'<rect class="lost" x="1.500" y="1.500" width="22" height="{bottom - 3}"/>'
        f'<path class="lost" d="M1.500 {bottom - 1.5}l22 -{bottom - 3}"/>'
    ),
}
_KINDS = {
    HELD: "held",
    HELD_OTHERS: "free",
    HELD_SUSPECT: "held",
    FREE_SUSPECT: "free",
    FREE: "free",
    FAULTY: "faulty",
}


def _cell(index: int, code: int) -> SafeString:
    x, y = 1 + index % CELLS_A_ROW * CELL_PITCH, 1 + index // CELLS_A_ROW * ROW_PITCH
    drawn = (
        f'<rect class="{_KINDS[code]}" x="{x}.500" y="{y}.500" '
        f'width="{CELL_WIDTH - 1}" height="{CELL_HEIGHT - 1}"/>'
    )
    if code == HELD_OTHERS:  # half full: told from one's own without any colour
        drawn += f'<rect class="held half" x="{x}.500" y="{y + 4}.500" width="{CELL_WIDTH - 1}" height="4"/>'
    if code in {HELD_SUSPECT, FREE_SUSPECT}:
        drawn += (
            f'<path class="cut" d="M{x}.500 {y}h4.500v5z"/><path class="warn" d="M{x + 1.5} {y}h3.500v4z"/>'
        )
    if code == FAULTY:
        drawn += f'<path class="cross" d="M{x + 1} {y + 2.5}l3 4m0-4l-3 4"/>'
    return mark_safe(drawn)  # noqa: S308 - numbers and words of ours


NO_MARK = "none"
_MARKS: dict[str, Callable[[Grid], str]] = {
    NO_MARK: lambda _: "",
    # Over the cells' lower right corner, on a ground of its own: seen without any colour.
    FITS: lambda _: (
        f'<rect class="fit-ground" x="{CELLS_WIDTH - 11}" y="{CELLS_HEIGHT - 9}" width="12" height="11" rx="2"/>'
        f'<path class="fit" d="M{CELLS_WIDTH - 8.5} {CELLS_HEIGHT - 3.5}l2.500 2.500l5-6"/>'
    ),
    CHOSEN: lambda grid: (
        f'<rect class="ring" x="0" y="0" width="{grid.width - 1}" height="{grid.height - 1}" rx="2"/>'
    ),
}


def marks(grid: Grid) -> SafeString:
    """What tiles are marked with where the map is shown for a run, for the inside of `<defs>`."""
    drawn = "".join(f'<g id="mark-{kind}" class="cells">{shape(grid)}</g>' for kind, shape in _MARKS.items())
    return mark_safe(drawn)  # noqa: S308 - shapes of ours


def rack_svg(rack: Rack, grid: Grid, address: Callable[[str], str], *, marked: bool = False) -> SafeString:
    """A list of links, one for each machine. `address`: of the machine with this name. `marked`: with `marks`."""
    rows = -(-len(rack.tiles) // grid.columns)
    columns = min(grid.columns, len(rack.tiles))
    drawn = [_tile(place, tile, grid, address, marked=marked) for place, tile in enumerate(rack.tiles)]
    return format_html(
        '<svg class="cells tiles" width="{}" height="{}" role="list" aria-label="{}">{}{}</svg>',
        columns * grid.width,
        rows * grid.height,
        rack.label,
        format_html_join("", "{}", ((each,) for each in drawn)),
        _brackets(rack.tiles, grid),
    )


def _tile(place: int, tile: Tile, grid: Grid, address: Callable[[str], str], *, marked: bool) -> SafeString:
    x, y = place % grid.columns * grid.width, place // grid.columns * grid.height
    name = _name(x, y + grid.height - 5, tile.name) if grid.names else ""
    if marked:
        mark = tile.mark if tile.mark in _MARKS else NO_MARK
        name = format_html('<use href="#mark-{}" x="{}" y="{}"/>{}', mark, x, y, name)
    return format_html(
        '<g role="listitem"><a id="m-{}" class="tile{}" href="{}" aria-label="{}">'
        '<use href="#{}" x="{}" y="{}"/>{}</a></g>',
        tile.machine,
        "" if tile.hit else " dim",
        address(tile.name),
        tile.label,
        pattern_id(tile),
        x,
        y,
        name,
    )


def _name(x: int, y: int, name: str) -> SafeString:
    """The end of a long name is what tells machines apart."""
    shown = name if len(name) <= NAME_CHARACTERS else f"…{name[1 - NAME_CHARACTERS :]}"
    return format_html('<text x="{}" y="{}">{}</text>', x + 1, y, shown)


def _brackets(tiles: Sequence[Tile], grid: Grid) -> SafeString:
    """A line under machines of one NVLink domain that stand side by side."""
    lines = []
    placed = list(enumerate(tiles))
    for (row, domain), group in groupby(placed, lambda item: (item[0] // grid.columns, item[1].domain)):
        members = [place % grid.columns for place, _ in group]
        if domain and len(members) > 1:
            y = (row + 1) * grid.height - (NAME_HEIGHT if grid.names else 0) - 1
            left, right = members[0] * grid.width + 1, members[-1] * grid.width + 24
            lines.append((f"M{left} {y - 2}v2H{right}v-2",))
    return format_html_join("", '<path class="bracket" d="{}"/>', lines)


_LEGEND = {"free": FREE, "held": HELD, "others": HELD_OTHERS, "suspect": FREE_SUSPECT, "faulty": FAULTY}


def legend_cell(kind: str) -> SafeString:
    """One cell as the map draws it."""
    return format_html(
        '<svg class="cells" width="8" height="11" aria-hidden="true" focusable="false">{}</svg>',
        _cell(0, _LEGEND[kind]),
    )


def legend_frame(state: str) -> SafeString:
    """The mark of a state, as tiles with a single row of cells wear it."""
    rows = 1 if state in {"ready", "cordoned", "draining", "contested"} else 2
    cells = [_cell(index, FREE) for index in range(CELLS_A_ROW)] if rows == 1 else []
    return format_html(
        '<svg class="cells" width="26" height="15" aria-hidden="true" focusable="false">{}{}</svg>',
        format_html_join("", "{}", ((each,) for each in cells)),
        mark_safe(_FRAMES[state](ROW_PITCH + 1 if rows == 1 else 15)),  # noqa: S308 - shapes of ours
    )


def legend_mark(kind: str) -> SafeString:
    """A tile as the map marks it for a run."""
    grid = Grid(1, TILE_WIDTH, TILE_HEIGHT, names=False)
    cells = [_cell(index, FREE) for index in range(2 * CELLS_A_ROW)]
    return format_html(
        '<svg class="cells" width="26" height="24" aria-hidden="true" focusable="false">{}{}</svg>',
        format_html_join("", "{}", ((each,) for each in cells)),
        mark_safe(_MARKS[kind](grid)),  # noqa: S308 - shapes of ours
    )
