"""Sizes and durations, read and written."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wire.quantities import QuantityError, format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("100G", 107374182400),
        ("100Gi", 107374182400),
        ("100GiB", 107374182400),
        ("100GB", 100_000_000_000),
        ("100 g", 107374182400),
        ("1.5T", 1649267441664),
        ("512M", 536870912),
        ("4K", 4096),
        ("1kB", 1000),
        ("2P", 2251799813685248),
        ("107374182400", 107374182400),
        ("7B", 7),
        ("0", 0),
    ],
)
def test_parse_size(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "100X", "-1G", "1e9", "1G1", "٣G", "1,5G", "100 G B", "9" * 400])
def test_no_size(text):
    with pytest.raises(
        QuantityError, match=r"is not a size\. Write a number and a unit, such as 100G, 1\.5T or 512M\."
    ):
        parse_size(text)


@pytest.mark.parametrize("text", ["0.3", "1.0001K", "99999999P"])
def test_no_size_that_a_machine_counts(text):
    with pytest.raises(QuantityError, match="is not a whole number of bytes that a machine can count"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h", 3600),
        ("1h30m", 5400),
        ("1h 30 min", 5400),
        ("1d2h3m4s", 93784),
        ("90s", 90),
        ("1.5h", 5400),
        ("2 days", 172800),
        ("10 minutes", 600),
        ("1H", 3600),
    ],
)
def test_parse_duration(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("60", "'60' has no unit. Write 60s, 60m or 60h."),
        ("", "'' is not a duration. Write numbers with units, such as 1h30m, 45s or 2d."),
        ("1:00:00", "'1:00:00' is not a duration. Write numbers with units, such as 1h30m, 45s or 2d."),
        ("1h30", "'1h30' is not a duration. Write numbers with units, such as 1h30m, 45s or 2d."),
        ("30m1h", "'30m1h' names a unit twice or out of order. Write it as 1d2h30m."),
        ("1h1h", "'1h1h' names a unit twice or out of order. Write it as 1d2h30m."),
        ("0.5s", "'0.5s' is not a whole number of seconds that a machine can count."),
    ],
)
def test_no_duration(text, sentence):
    with pytest.raises(QuantityError) as refused:
        parse_duration(text)
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (1024, "1 KiB"),
        (800 * 2**30, "800 GiB"),
        (int(8.1 * 2**30), "8.1 GiB"),
        (2**50, "1 PiB"),
        (1536, "1.5 KiB"),
        (2**20 - 1, "1 MiB"),
        (101 * 2**30 + 2**29, "102 GiB"),
        (-2048, "-2 KiB"),
    ],
)
def test_format_size(size, text):
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (41, "41 s"),
        (41.9, "41 s"),
        (90, "1 min 30 s"),
        (600, "10 min"),
        (3600, "1 h"),
        (5400, "1 h 30 min"),
        (3601, "1 h"),
        (86_400 * 2 + 3600, "2 d 1 h"),
        (-61, "-1 min 1 s"),
    ],
)
def test_format_duration(seconds, text):
    assert format_duration(seconds) == text


@settings(deadline=None)
@given(st.integers(1, 10**6))
def test_whole_gibibytes_and_hours_come_back(number):
    assert parse_size(f"{number}G") == number * 2**30
    assert parse_duration(f"{number}h") == number * 3600
