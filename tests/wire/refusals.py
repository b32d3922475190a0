"""A good document, a way to change it, and what the validator says about the result."""

import copy
from collections.abc import Iterable
from typing import Any

import pytest

from wire.spec import SpecErrors, parse_document, validate_document

Found = list[tuple[str, str, str]]

GONE = object()  # take the field away

S = "spec"
T = "spec.task_template"
R = "spec.task_template.requested_resources"
RELATIVE = "Write the whole path, from `/` on."
DNS_RULE = "Use lower-case letters, digits and `-`, with a letter or a digit at the beginning and at the end."

GPU_DOCUMENT: dict[str, Any] = {
    "metadata": {"name": "train"},
    "spec": {
        "task_template": {
            "image": "busybox",
            "command": "true",
            "requested_resources": {"gpu_requests": {"count": 16}},
        }
    },
}


def changed(changes: Iterable[tuple[str, Any]], document: dict[str, Any] = GPU_DOCUMENT) -> dict[str, Any]:
    made = copy.deepcopy(document)
    for path, value in changes:
        *parents, last = path.split(".")
        place = made
        for step in parents:
            place = place.setdefault(step, {})
        if value is GONE:
            del place[last]
        else:
            place[last] = value
    return made


def found(data: object) -> Found:
    try:
        validate_document(data)
    except SpecErrors as refused:
        return [(error.path, error.code, error.message) for error in refused.errors]
    return []


def found_in_text(text: str | bytes) -> Found:
    with pytest.raises(SpecErrors) as refused:
        parse_document(text)
    return [(error.path, error.code, error.message) for error in refused.value.errors]
