"""Text that is no document, and values that JSON or a machine does not have."""

import json

import pytest

from tests.wire.refusals import (
    GPU_DOCUMENT,
    T,
    changed,
    found,
    found_in_text,
)
from wire.spec import parse_document


def test_the_document_that_the_cases_change_is_good():
    assert found(GPU_DOCUMENT) == []


@pytest.mark.parametrize(
    ("text", "code", "sentence"),
    [
        ("", "not_json", "The document is empty."),
        (
            "{",
            "not_json",
            "This is not JSON: Expecting property name enclosed in double quotes in line 1, column 2.",
        ),
        (b"\xff{}", "not_utf8", "The text is not UTF-8 at byte 1. Save it as UTF-8."),
        ("[]", "wrong_type", "The document must be an object with `metadata` and `spec`, not a list."),
        ("null", "wrong_type", "The document must be an object with `metadata` and `spec`, not null."),
        ("[" * 100_000, "too_deep", "The document is nested too deeply."),
        (
            " " * (2 * 2**20 + 1),
            "too_large",
            "The document is larger than 2 MiB. Put large files on a drive or into the image.",
        ),
    ],
    ids=["empty", "half", "not UTF-8", "a list", "null", "deep", "large"],
)
def test_text_that_is_no_document(text, code, sentence):
    assert found_in_text(text) == [("", code, sentence)]


def test_values_that_json_or_a_machine_does_not_have():
    text = (
        json.dumps(GPU_DOCUMENT)[:-1] + ', "a": NaN, "b": 1e999, "c": ' + "9" * 10_000 + ', "d": "\\ud800"}'
    )

    assert [(path, code) for path, code, _ in found_in_text(text)] == [
        ("a", "not_finite"),
        ("b", "not_finite"),
        ("c", "out_of_range"),
        ("d", "bad_text"),
    ]


def test_a_key_that_stands_twice():
    text = (
        '{"metadata": {"name": "a", "name": "b"}, "spec": {"task_template": {"image": "x", "command": "y"}}}'
    )

    assert found_in_text(text) == [
        ("metadata.name", "duplicate_key", "`name` stands here more than once. Keep one of them.")
    ]


def test_more_mistakes_than_anyone_reads_are_counted():
    data = changed([(f"{T}.env", {f"A-{number}": "" for number in range(300)})])

    errors = found(data)

    assert len(errors) == 201
    assert errors[-1] == ("", "more_errors", "100 more mistakes are not listed here.")


def test_a_byte_order_mark_is_no_mistake():
    text = json.dumps(GPU_DOCUMENT)

    assert parse_document(b"\xef\xbb\xbf" + text.encode()) == parse_document(text)
