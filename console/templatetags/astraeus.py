"""Tags of the pages: icons, state chips, times, copy buttons, GPU cells."""

from collections.abc import Iterable
from datetime import datetime
from functools import cache, lru_cache
from html import escape
from typing import Any

from django import template
from django.template.loader import get_template
from django.utils import timezone
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from console.pages.log_text import marked
from console.pages.looks import look_of, word_of
from console.pages.machine_svg import legend_cell, legend_frame, legend_mark
from console.pages.metric_chart import metrics_context
from console.pages.scope import Scope
from console.pages.words import EN_DASH, SomeGpu
from machines.models import DataVolume, Gpu
from machines.states import Health
from placement.phrases import plural
from runs.models import Run
from wire.quantities import format_duration, format_size

register = template.Library()


@register.simple_tag
@cache
def icon(name: str) -> SafeString:
    """templates/icons/<name>.svg: 16 px, drawn in currentColor."""
    return mark_safe(get_template(f"icons/{name}.svg").render())  # noqa: S308 - our own file


@register.simple_tag
@cache
def chip(state: str) -> SafeString:
    """A state as icon, word and tint."""
    look = look_of(state)
    return format_html(
        '<span class="chip tone-{}">{}<span>{}</span></span>', look.tone, icon(look.icon), word_of(state)
    )


@register.filter
def marks(text: str) -> str:
    """Text that others wrote, with what is invisible in it made visible."""
    return marked(text)


@register.filter
def tone(state: str) -> str:
    return look_of(state).tone


@register.simple_tag
def age(at: datetime | None) -> SafeString:
    """`12 min`, with the exact time on hover."""
    return _time(at, "age", "")


@register.simple_tag
def ago(at: datetime | None) -> SafeString:
    """`12 min ago`, with the exact time on hover."""
    return _time(at, "ago", " ago")


def _time(at: datetime | None, kind: str, suffix: str) -> SafeString:
    if at is None:
        return conditional_escape(EN_DASH)
    seconds = (timezone.now() - at).total_seconds()
    return format_html(
        '<time datetime="{}" title="{}" data-{}>{}{}</time>',
        at.isoformat(timespec="seconds"),
        exact(at),
        kind,
        coarse(seconds),
        suffix,
    )


@register.simple_tag
def clock(at: datetime | None) -> SafeString:
    """`13:31`: the time of day, which the browser moves to its own time zone."""
    if at is None:
        return conditional_escape(EN_DASH)
    iso = at.isoformat(timespec="seconds")
    return format_html(
        '<time datetime="{}" title="{}" data-clock>{} UTC</time>', iso, exact(at), at.strftime("%H:%M:%S")
    )


def exact(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def coarse(seconds: float) -> str:
    """`12 min`: one unit is enough for an age (two for hours, where minutes still matter)."""
    words = format_duration(max(0.0, seconds))
    return words if " h " in words else " ".join(words.split()[:2])


@register.filter
def duration(seconds: float) -> str:
    return format_duration(seconds)


@register.filter
def size(count: int) -> str:
    return format_size(count)


@register.simple_tag
def copy(text: str, what: str = "") -> SafeString:
    """A button that copies `text`; hidden where there is no JavaScript to do it."""
    return format_html(
        '<button type="button" class="copy" data-copy="{}" aria-label="Copy {}" title="Copy" hidden>{}</button>',
        text,
        what or text,
        icon("copy"),
    )


@register.simple_tag
def machine_links(names: Iterable[str], machines: str) -> SafeString:
    """With commas between them. `machines`: address of the cluster's machines, below which each has its own."""
    return format_html_join(", ", '<a href="{}/{}">{}</a>', ((machines, name, name) for name in names))


CELL, GAP, HEIGHT = 8, 2, 14


@register.simple_tag
def gpu_cells(gpus: Iterable[SomeGpu], held: frozenset[int]) -> SafeString:
    """A cell each: hollow is free, filled is held, a cut corner with a triangle suspect, a cross faulty."""
    return _cells(tuple((gpu.health, gpu.id in held) for gpu in gpus))


@lru_cache(maxsize=1024)
def _cells(gpus: tuple[tuple[str, bool], ...]) -> SafeString:
    """Of each GPU its health and whether it is held: most machines of a list show the same few."""
    drawn = [_cell(index, health, held) for index, (health, held) in enumerate(gpus)]
    width = max(1, len(drawn) * (CELL + GAP))
    return format_html(
        '<svg class="cells" width="{}" height="{}" aria-hidden="true" focusable="false">{}</svg>',
        width,
        HEIGHT,
        format_html_join("", "{}", ((each,) for each in drawn)),
    )


@cache
def _cell(index: int, health: str, held: bool) -> SafeString:
    x = index * (CELL + GAP) + 0.5
    kind = "faulty" if health == Health.FAULTY else "held" if held else "free"
    shape = format_html(
        '<rect class="{}" x="{}" y="0.5" width="{}" height="{}" rx="1"/>', kind, x, CELL - 1, HEIGHT - 1
    )
    if health == Health.FAULTY:
        cross = f"M{x + 1.5} 4.500l4 5m0-5l-4 5"
        return format_html('{}<path class="cross" d="{}"/>', shape, cross)
    if health == Health.SUSPECT:
        cut = f"M{x + 1} 0h6.500v6.500z"
        warn = f"M{x + 2.4} 0h5.100v5.100z"
        return format_html('{}<path class="cut" d="{}"/><path class="warn" d="{}"/>', shape, cut, warn)
    return shape


@register.simple_tag
def gpu_cell(gpu: Gpu, holder: object) -> SafeString:
    """One GPU's cell; `holder` is None for a free one."""
    return _cell(0, gpu.health, holder is not None)


@register.filter
def same(left: object, right: object) -> bool:
    return left == right


@register.filter
def lower_first(text: str) -> str:
    """For the middle of a sentence: `Rack` becomes `rack`, `NVLink domain` stays."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


@register.filter
def thousands(number: int | None) -> str:
    """`18,204`."""
    return EN_DASH if number is None else f"{number:,}"


@register.filter
def counted(number: int, one: str) -> str:
    """`{{ 2|counted:"machine" }}` is `2 machines`."""
    return plural(number, one)


@register.simple_tag(takes_context=True)
def query(context: template.Context, **changes: Any) -> str:
    """The page's own address with some query parameters changed; None takes one out."""
    request = context["request"]
    params = request.GET.copy()
    for name, value in changes.items():
        params.pop(name, None)
        if value is not None:
            params[name] = str(value)
    encoded = params.urlencode()
    return f"{request.path}?{encoded}" if encoded else str(request.path)


@register.simple_block_tag
def listing(content: str, labelled_by: str, heads: str, numbers: str = "", hidden: str = "") -> SafeString:
    """A table around `content`, its rows.

    `heads`: its headings, separated by commas; `numbers`: those of columns of numbers; `hidden`: one that needs none to
    be seen.
    """
    shown = format_html_join("", "<th>{}</th>", ((head,) for head in heads.split(", ")))
    counted = format_html_join(
        "", '<th class="number">{}</th>', ((head,) for head in numbers.split(", ") if numbers)
    )
    last = format_html('<th><span class="sr-only">{}</span></th>', hidden) if hidden else ""
    return format_html(
        '<div class="scroll"><table aria-labelledby="{}"><thead><tr>{}{}{}</tr></thead>'
        "<tbody>{}</tbody></table></div>",
        labelled_by,
        shown,
        counted,
        last,
        content,
    )


@register.simple_tag
def options(values: Iterable[str], chosen: str) -> SafeString:
    """Options of a select, each its own word: a template's loop and Django's escaping are slow for a thousand racks."""
    marked_up = (f"<option{' selected' if each == chosen else ''}>{escape(each)}</option>" for each in values)
    return mark_safe("".join(marked_up))  # noqa: S308 - texts that are escaped


@register.filter
def drive_where(drive: DataVolume) -> str:
    """The machines that a drive is on."""
    if drive.machine:
        return f"on {drive.machine.name}"
    return f"machines of pool {drive.pool.slug}" if drive.pool else "all machines"


@register.simple_tag
def map_cell(kind: str) -> SafeString:
    """A cell of the map's legend."""
    return legend_cell(kind)


@register.simple_tag
def map_mark(kind: str) -> SafeString:
    return legend_mark(kind)


@register.simple_tag
def map_frame(state: str) -> SafeString:
    """How the map marks a machine in this state."""
    return legend_frame(state)


@register.filter
def clock_words(behind: float) -> str:
    """`3 s behind`, `2 h ahead`: a machine's clock beside the console's."""
    return f"{coarse(abs(behind))} {'behind' if behind > 0 else 'ahead'}"


@register.inclusion_tag("runs/metrics.html")
def run_metrics(run: Run, scope: Scope) -> dict[str, Any]:
    """What the run's workers tell of their training; nothing where they tell nothing."""
    return metrics_context(run, scope)
