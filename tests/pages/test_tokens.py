"""The colours of static/css/tokens.css keep their promises: contrast by the WCAG 2 formula, seven marks apart."""

import itertools
import re

import pytest
from django.conf import settings

TOKENS = (settings.BASE_DIR / "static/css/tokens.css").read_text(encoding="utf-8")
THEMES = ("light", "dark")
TONES = ("wait", "move", "run", "leave", "good", "bad", "off")
GROUNDS = ("page", "surface", "sunken", "accent-tint")


def colours(theme):
    pairs = re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", TOKENS)
    return {name: (light, dark)[THEMES.index(theme)] for name, light, dark in pairs}


def channels(colour):
    values = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]


def luminance(colour):
    red, green, blue = channels(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def worst(colour, grounds):
    return min(contrast(colour, ground) for ground in grounds)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", ["text", "muted", "accent", "accent-strong"])
def test_text_reads_on_every_ground(theme, name):
    found = colours(theme)
    assert worst(found[name], [found[ground] for ground in GROUNDS]) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("tone", TONES)
def test_a_states_ink_reads_on_its_tint_and_every_ground(theme, tone):
    found = colours(theme)
    grounds = [found[f"{tone}-tint"], *(found[ground] for ground in GROUNDS)]
    assert worst(found[f"{tone}-ink"], grounds) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("tone", TONES)
def test_a_states_mark_is_seen_on_its_tint_and_every_ground(theme, tone):
    found = colours(theme)
    grounds = [found[f"{tone}-tint"], found["page"], found["surface"], found["sunken"]]
    assert worst(found[f"{tone}-mark"], grounds) >= 3


@pytest.mark.parametrize("theme", THEMES)
def test_borders_of_controls_and_held_gpus_are_seen(theme):
    found = colours(theme)
    grounds = [found["page"], found["surface"], found["sunken"]]
    assert worst(found["edge"], grounds) >= 3
    assert worst(found["held"], grounds) >= 3


@pytest.mark.parametrize("theme", THEMES)
def test_buttons_read(theme):
    found = colours(theme)
    assert contrast(found["page"], found["text"]) >= 7
    assert contrast(found["on-danger"], found["danger"]) >= 4.5


# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB.
VISIONS = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deutan": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritan": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def product(matrix, vector):
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def oklab(linear):
    """Björn Ottosson's OKLab of linear RGB."""
    to_lms = (
        (0.4122214708, 0.5363325363, 0.0514459929),
        (0.2119034982, 0.6806995451, 0.1073969566),
        (0.0883024619, 0.2817188376, 0.6299787005),
    )
    to_lab = (
        (0.2104542553, 0.7936177850, -0.0040720468),
        (1.9779984951, -2.4285922050, 0.4505937099),
        (0.0259040371, 0.7827717662, -0.8086757660),
    )
    lms = product(to_lms, [min(1, max(0, value)) for value in linear])
    return product(to_lab, [value ** (1 / 3) for value in lms])


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("vision", VISIONS)
def test_the_seven_marks_stay_apart_for_every_kind_of_sight(theme, vision):
    found = colours(theme)
    seen = [oklab(product(VISIONS[vision], channels(found[f"{tone}-mark"]))) for tone in TONES]
    distances = [
        sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5
        for one, other in itertools.combinations(seen, 2)
    ]
    assert min(distances) >= 0.08


def test_every_mark_that_templates_use_has_its_colour():
    templates = (settings.BASE_DIR / "templates").rglob("*.html")
    used = {mark for file in templates for mark in re.findall(r"\bmark-[a-z]+", file.read_text("utf-8"))}
    parts = (settings.BASE_DIR / "static/css/parts.css").read_text(encoding="utf-8")
    assert used
    assert [mark for mark in sorted(used) if f".{mark}," not in parts] == []
