"""Refused values of single fields, with the exact code and sentence."""

from typing import Any

import pytest

from tests.wire.refusals import (
    DNS_RULE,
    GONE,
    RELATIVE,
    R,
    S,
    T,
    changed,
    found,
)

FIELDS: list[tuple[str, Any, str, str]] = [
    ("metadata.name", "Train", "bad_name", f"`Train` is not a name. {DNS_RULE}"),
    ("metadata.name", "a" * 53, "bad_name", f"`{'a' * 53}` has 53 characters. Use at most 52."),
    ("metadata.name", "a\x00b", "bad_text", "This text has a NUL character (\\u0000). Remove it."),
    ("metadata.name", "a\u202eb", "bad_name", f"`a\\u202eb` is not a name. {DNS_RULE}"),
    ("metadata.name", "a\n", "bad_name", f"`a\\u000a` is not a name. {DNS_RULE}"),
    ("metadata.name", 7, "wrong_type", '`name` must be text, not a number. Write "7", in quotes.'),
    (
        "metadata.name",
        GONE,
        "missing",
        "`name` is missing. The run's name in its workspace; its workers are `<name>-0`, `<name>-1`, …",
    ),
    (f"{R}.gpu_requests.count", True, "wrong_type", "`count` must be a whole number, not true."),
    (
        f"{R}.gpu_requests.count",
        "16",
        "wrong_type",
        "`count` must be a whole number, not text. Write it without quotes.",
    ),
    (
        f"{R}.gpu_requests.count",
        16.0,
        "wrong_type",
        "`count` must be a whole number, not a number with a decimal point. Write 16.",
    ),
    (
        f"{R}.gpu_requests.count",
        float("nan"),
        "not_finite",
        "NaN and infinite numbers are no JSON. Write an ordinary number.",
    ),
    (
        f"{R}.gpu_requests.count",
        0,
        "out_of_range",
        "`count` must be between 1 and 100000, not 0. A run without GPUs leaves `gpu_requests` out.",
    ),
    (f"{R}.gpu_requests.count", 10**30, "out_of_range", "This number is too large to be meant."),
    (
        f"{R}.gpu_requests.healthy_only",
        1,
        "wrong_type",
        "`healthy_only` must be true or false, not a number.",
    ),
    (
        f"{R}.gpu_requests.healthy_only",
        "true",
        "wrong_type",
        "`healthy_only` must be true or false, not text. Write it without quotes.",
    ),
    (
        f"{R}.gpu_requests.models",
        "H100",
        "wrong_type",
        "`models` must be a list, not text. Put it in brackets: [ … ].",
    ),
    (
        f"{R}.memory_bytes",
        "100G",
        "wrong_type",
        "`memory_bytes` must be a whole number, not text. It counts bytes: write 107374182400.",
    ),
    (
        f"{R}.memory_bytes",
        100,
        "out_of_range",
        (
            "`memory_bytes` must be between 1048576 and 1125899906842624, not "
            "100. It counts bytes: from 1 MiB to 1 PiB."
        ),
    ),
    (f"{R}.network", [], "wrong_type", "`network` must be an object, not a list."),
    (
        f"{T}.time_limit_seconds",
        "1h",
        "wrong_type",
        "`time_limit_seconds` must be a whole number, not text. It counts seconds: write 3600.",
    ),
    (
        f"{T}.command",
        ["bash", "-c"],
        "wrong_type",
        "`command` must be text, not a list. Put the executable here and the rest into `args`.",
    ),
    (f"{T}.command", "  ", "bad_text", "This is empty. Give a value, or leave the field out."),
    (
        f"{T}.image",
        "Busy Box",
        "bad_image",
        (
            "`Busy Box` is not an image's name. Write it as `registry/path:tag` in "
            "lower case, such as `nvcr.io/nvidia/pytorch:24.08-py3`."
        ),
    ),
    (
        f"{T}.user",
        "a b",
        "bad_user",
        "`a b` is not a user. Write `1000`, `1000:1000`, `name` or `name:group`.",
    ),
    (f"{T}.working_dir", "src", "bad_path", f"`src` is relative. {RELATIVE}"),
    (f"{S}.start", "gang", "not_a_choice", "`gang` is no value of `start`; did you mean `Gang`?"),
    (f"{S}.start", "Now", "not_a_choice", "`Now` is no value of `start`. Values: `Gang`, `Independent`."),
    (f"{S}.start", 1, "not_a_choice", "`start` must be one of `Gang`, `Independent`, not a number."),
    (f"{S}.max_restarts", 1001, "out_of_range", "`max_restarts` must be between 0 and 1000, not 1001."),
    (f"{S}.priority", -1001, "out_of_range", "`priority` must be between -1000 and 1000, not -1001."),
    (
        f"{S}.barrier_timeout_seconds",
        59,
        "out_of_range",
        "`barrier_timeout_seconds` must be between 60 and 7200, not 59.",
    ),
    (
        f"{S}.stop_when_cut_off_seconds",
        86401,
        "out_of_range",
        "`stop_when_cut_off_seconds` must be between 60 and 86400, not 86401.",
    ),
    (f"{S}.cluster", "Main", "bad_name", f"`Main` is not a name. {DNS_RULE}"),
    ("status", {}, "read_only_field", "`status` is written by Astraeus. Leave it out."),
    (
        f"{R}.gpu_request",
        {},
        "unknown_field",
        "`gpu_request` is not a field here; did you mean `gpu_requests`?",
    ),
    (f"{T}.machines", 2, "unknown_field", f"`machines` is not a field here; it belongs in `{R}`."),
    (
        f"{R}.healthy_only",
        True,
        "unknown_field",
        f"`healthy_only` is not a field here; it belongs in `{R}.gpu_requests`.",
    ),
    (
        f"{T}.gpu_request",
        {},
        "unknown_field",
        f"`gpu_request` is not a field here; did you mean `gpu_requests` in `{R}`?",
    ),
    (
        f"{S}.metadata",
        {},
        "unknown_field",
        "`metadata` is not a field here; it belongs at the top of the document.",
    ),
    ("kind", "Run", "unknown_field", "`kind` is not a field here. Fields here: `metadata`, `spec`."),
]


@pytest.mark.parametrize(
    ("path", "value", "code", "sentence"), FIELDS, ids=[f"{c[0]}={c[1]!r:.20}" for c in FIELDS]
)
def test_single_field(path, value, code, sentence):
    # Half of the amounts would be a second mistake of the cases about memory.
    data = changed([(f"{R}.cpu_cores", 1)] if path.endswith("memory_bytes") else [])

    assert found(changed([(path, value)], data)) == [(path, code, sentence)]


def test_a_field_with_the_name_that_marks_keys_inside():
    assert found(changed([("[key]", "")])) == [
        ('["[key]"]', "unknown_field", "`[key]` is not a field here. Fields here: `metadata`, `spec`.")
    ]


def test_the_path_that_a_probe_asks_for_is_as_long_as_any_other_path():
    def probed(path):
        return changed([(f"{T}.probes", {"liveness": {"http": {"port": 80, "path": path}}})])

    longest = "/" + "x" * 4094
    assert found(probed(longest)) == []
    assert found(probed(longest + "x")) == [
        (
            f"{T}.probes.liveness.http.path",
            "bad_path",
            f"`/{'x' * 58}…` is too long: at most 4095 characters.",
        )
    ]
