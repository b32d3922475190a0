"""What others wrote can't steer the reader's terminal."""

import pytest

from astra.terminal import LogFilter, clean, escape_json


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("ddp-resnet50", "ddp-resnet50"),
        ("Größe 5 µm → ok", "Größe 5 µm → ok"),
        ("a\x1b[31mb\x1b[0mc", "abc"),
        ("a\x1b]0;owned\x07b", "ab"),
        ("a\x1b]52;c;cm0gLXJm\x1b\\b", "ab"),
        ("line\none\r\ntwo\ttab", "line one two tab"),
        ("\u202eevil\u2069", "evil"),
        ("a\x9b31mb\x00c\x7f", "a31mbc"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        (None, "None"),
    ],
)
def test_clean(hostile, shown):
    assert clean(hostile) == shown


def test_json_stays_the_same_data():
    assert escape_json('{"a": "\u202ex\x9b"}') == '{"a": "\\u202ex\\u009b"}'


def filtered(*pieces: bytes) -> str:
    log = LogFilter()
    return "".join([log.feed(piece) for piece in pieces] + [log.finish()])


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        ([b"plain\n"], "plain\n"),
        ([b"10%\r20%\r\n"], "10%\r20%\r\n"),
        ([b"\x1b[1;32mgreen\x1b[0m\n"], "\x1b[1;32mgreen\x1b[0m\n"),
        ([b"\x1b[38:5:1mred"], "\x1b[38:5:1mred\x1b[0m"),
        ([b"a\x1b[2Jb\x1b[10;10Hc\x1b[?1049hd"], "abcd"),
        ([b"a\x1b]0;title\x07b\x1bP+q\x1b\\c\x1b(0d\x1bce"], "abcde"),
        ([b"a\x1b", b"[3", b"1mred\x1b[", b"m"], "a\x1b[31mred\x1b[m"),
        ([b"a\x1b]0;ti", b"tle\x1b", b"\\b"], "ab"),
        (["ä".encode()[:1], "ä".encode()[1:]], "ä"),
        ([b"\xff\xfe"], "\ufffd\ufffd"),
        (["\u202e\x9b2J".encode()], "2J"),
        ([b"bell\x07 back\x08"], "bell back"),
        ([b"cut off \x1b[3"], "cut off "),
    ],
)
def test_log_filter(pieces, shown):
    assert filtered(*pieces) == shown


def test_a_sequence_without_end_does_not_hold_the_log_back():
    log = LogFilter()
    text = log.feed(b"\x1b]0;" + b"x" * 10_000) + log.feed(b"\nnext\n")
    assert text.endswith("x\nnext\n")
    assert "\x1b" not in text
