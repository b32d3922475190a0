"""The server and `astra astraeus validate` give the same answer to every document, and neither ever fails otherwise."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rest_framework.test import APIClient

from astra import documents
from astra.errors import InvalidDocumentError
from tests import factories
from tests.wire.test_spec_properties import FULL, VALUES, mutated

pytestmark = pytest.mark.django_db
DRY_RUN = "/api/v1/o/acme/w/vision/runs?dry_run=true"
ONLY_HERE = {
    "unknown_cluster",
    "unknown_secret",
    "unknown_drive",
    "unknown_credential",
    "priority_too_high",
    "name_taken",
}
"""Codes of what only a console can know."""
FREELY = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def editor(house, api):
    return api(house.bea)


def offline(folder: Path, text: bytes) -> list[tuple[str, str]]:
    """(place, sentence) of all mistakes, as `astra astraeus validate` finds them."""
    file = folder / "run.json"
    file.write_bytes(text)
    try:
        documents.load(str(file))
    except InvalidDocumentError as error:
        return [(each.path, each.message) for each in error.errors]
    return []


def check_agreement(editor: APIClient, folder: Path, text: bytes) -> None:
    answer = editor.post(DRY_RUN, data=text, content_type="application/json")
    found = offline(folder, text)
    if found:
        assert answer.status_code == 422
        assert [(error["path"], error["message"]) for error in answer.json()["errors"]] == found
    else:
        assert answer.status_code in {200, 409, 422}, answer.content
        errors = {error["code"] for error in answer.json().get("errors", [])}
        assert errors <= ONLY_HERE


def encoded(data: Any) -> bytes:
    return json.dumps(data).encode()


@FREELY
@given(data=VALUES)
def test_random_values(editor, tmp_path, data):
    check_agreement(editor, tmp_path, encoded(data))


@FREELY
@given(data=mutated())
def test_mutations_of_a_full_document(editor, tmp_path, data):
    check_agreement(editor, tmp_path, encoded(data))


@st.composite
def nearly_right(draw: st.DrawFn) -> dict[str, Any]:
    """A document that this console takes, with one field of its request set to something else."""
    document = factories.document_make("probe")
    wanted = document["spec"]["task_template"]["requested_resources"]
    part = draw(
        st.sampled_from([wanted, *wanted.values(), document["spec"], document["metadata"]]).filter(_is_dict)
    )
    part[draw(st.sampled_from(sorted(part)))] = draw(VALUES)
    return document


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


@FREELY
@given(document=nearly_right())
def test_documents_with_one_odd_value(editor, tmp_path, document):
    check_agreement(editor, tmp_path, encoded(document))


@FREELY
@given(text=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_random_text(editor, tmp_path, text):
    check_agreement(editor, tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"   ",
        b"null",
        b"\xef\xbb\xbf{}",
        b"\xff\xfe{}",
        b"[" * 100_000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b'{"metadata": {"name": "a", "name": "b"}}',
        b'{"spec": {"priority": ' + b"9" * 10_000 + b"}}",
        b'{"spec": {"priority": 1e999}}',
        b'{"metadata": {"name": "a\\u0000"}}',
        b'{"metadata": {"name": "\\ud800"}}',
        '{"metadata": {"name": "a\u202eb"}}'.encode(),
        b'{"metadata": {"name": "DDP-Resnet50"}}',
        encoded({**FULL, "status": {}}),
        encoded([0] * 60_000),
    ],
)
def test_what_an_attacker_would_try(editor, tmp_path, text):
    assert offline(tmp_path, text) != []
    check_agreement(editor, tmp_path, text)


def test_the_console_s_own_refusals_are_no_others(editor, tmp_path):
    """The full document is valid offline; a console that can't do all of it says so, and nothing else."""
    assert offline(tmp_path, encoded(FULL)) == []
    check_agreement(editor, tmp_path, encoded(FULL))
