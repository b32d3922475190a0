"""Secrets in output, however it is cut up: compared with an implementation that sees everything at once."""

import random

import pytest

from agent.secrets import masks
from agent.supervision.masking import Masker, masked
from tests.agent.agents import worker
from wire.assignments import Secret

SECRET = b"hf_abcdefgh"


def fed(values: list[bytes], *pieces: bytes) -> list[bytes]:
    """What comes out after each piece, and at the end."""
    masker = Masker(values)
    return [*(masker.feed(piece) for piece in pieces), masker.rest()]


def at_once(text: bytes, values: list[bytes]) -> bytes:
    """Every byte that belongs to an occurrence is hidden; occurrences that overlap are one."""
    spans = sorted((at, at + len(v)) for v in values for at in range(len(text)) if text.startswith(v, at))
    out, position = b"", 0
    for first, last in spans:
        if first >= position:
            out += text[position:first] + b"***"
        position = max(position, last)
    return out + text[position:]


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
def test_a_value_in_two_pieces(cut: int) -> None:
    assert fed([SECRET], b"token=" + SECRET[:cut], SECRET[cut:] + b"\n") == [b"token=", b"***\n", b""]


def test_what_only_looks_like_the_beginning_of_a_value_comes_out_whole() -> None:
    assert fed([SECRET], b"it is hf_a", b"ll\n") == [b"it is ", b"hf_all\n", b""]
    assert fed([SECRET], b"it is hf_a") == [b"it is ", b"hf_a"]


def test_values_that_overlap() -> None:
    assert masked(b"abcdefghijkl mnop", [b"abcdefgh", b"efghijkl"]) == b"*** mnop"
    assert fed([b"abcdefgh", b"efghijkl"], b"abcdefgh", b"ijkl.") == [b"***", b".", b""]


def test_random_output_in_random_pieces() -> None:
    chance = random.Random(4)
    for _ in range(3000):
        values = [bytes(chance.choices(b"ab", k=chance.randint(1, 5))) for _ in range(chance.randint(1, 3))]
        text = bytes(chance.choices(b"abc", k=chance.randint(0, 25)))
        cuts = sorted(chance.choices(range(len(text) + 1), k=4))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        assert b"".join(fed(values, *pieces)) == at_once(text, values), (values, pieces)


def test_a_long_run_of_one_character_is_held_no_longer_than_a_value() -> None:
    masker = Masker([b"aaaaaaaa"])
    assert b"".join(masker.feed(b"a" * 1000) for _ in range(100)) + masker.rest() == b"***"


def test_which_values_are_masked() -> None:
    secrets = (
        Secret(env="A", value="long enough"),
        Secret(env="B", value="short"),
        Secret(path="/key", value="-----BEGIN KEY-----\n  first line of it \nend\n"),
        Secret(env="C"),
    )
    assert masks(worker(secrets=secrets)) == [
        b"-----BEGIN KEY-----",
        b"-----BEGIN KEY-----\n  first line of it \nend",
        b"first line of it",
        b"long enough",
    ]
