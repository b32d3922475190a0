"""Whatever is thrown at the validator: a document or its own list of errors comes out, nothing else."""

import contextlib
import copy
import json
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from wire.spec import RunDocument, SpecErrors, parse_document, run_schema, stored_document, validate_document
from wire.spec.fields import objects

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**400)
    | st.floats()
    | st.text(max_size=20)
    | st.text(st.characters(categories=("Cs", "Cc", "Cf", "Lu")), max_size=5)
    | st.sampled_from(["Gang", "RestartTask", "/proc", "/a/../b", "H100", "29600", "infiniband", "rack"])
)
FIELD_NAMES = st.sampled_from(
    sorted({name for _, model in objects((), RunDocument) for name in model.model_fields})
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(FIELD_NAMES | st.text(max_size=8), inner, max_size=5)
    ),
    max_leaves=25,
)

SCHEMA = jsonschema.Draft202012Validator(run_schema())

FULL: dict[str, Any] = {
    "metadata": {"name": "full", "labels": {"team.example.com/name": "vision"}},
    "spec": {
        "start": "Gang",
        "on_failure": "RestartJob",
        "max_restarts": 2,
        "stop_when_cut_off_seconds": 600,
        "priority": 10,
        "preemptible": True,
        "barrier_timeout_seconds": 600,
        "cluster": "main",
        "worker_groups": [
            {
                "name": "trainer",
                "task_template": {
                    "image": "registry.example.com:5000/ml/train:1@sha256:" + "0" * 64,
                    "command": "bash",
                    "args": ["-c", "exec torchrun train.py"],
                    "env": {"STEPS": "300", "MASTER_PORT": "29600"},
                    "working_dir": "/app",
                    "user": "1000:1000",
                    "time_limit_seconds": 3600,
                    "stop_signal": "SIGINT",
                    "stop_grace_seconds": 60,
                    "warn_signal_seconds": 120,
                    "requested_resources": {
                        "gpu_requests": {
                            "count": 16,
                            "models": ["H100", "H200"],
                            "healthy_only": True,
                            "min_per_machine": 4,
                            "min_memory_bytes": 80 * 10**9,
                        },
                        "per_gpu": {"cpu_cores": 12, "memory_bytes": 107374182400},
                        "network": {"interconnect": "rdma", "min_gbps": 200, "preflight": "allreduce"},
                        "topology": {
                            "keep_within": "fabric",
                            "spread": "rack",
                            "patience_seconds": 60,
                            "min_nodes": 2,
                            "max_nodes": 4,
                        },
                        "node_selection": {
                            "mode": "Labels",
                            "match_labels": {"tier": "a"},
                            "exclude_machines": ["gpu-09.example.com"],
                        },
                    },
                    "configs": [{"mounts": ["/app/train.py", "/app/copy.py"], "value": "x", "mode": 365}],
                    "datavolume_refs": [
                        {
                            "name": "data",
                            "mount_path": "/data",
                            "read_only": False,
                            "sub_path": "imagenet/train",
                        }
                    ],
                    "secret_refs": [
                        {"name": "hf", "env": "HF_TOKEN"},
                        {"name": "key", "mount_path": "/run/key"},
                    ],
                    "registry_credential": "ngc",
                    "probes": {
                        "startup": {"exec": {"command": "test", "args": ["-e", "/tmp/up"]}},
                        "readiness": {"http": {"port": 8080, "path": "/ready"}, "period_seconds": 5},
                        "liveness": {"tcp": {"port": 8080}, "timeout_seconds": 2, "failure_threshold": 9},
                    },
                    "hang_after_seconds": 1800,
                },
            },
            {
                "name": "evaluator",
                "task_template": {
                    "image": "busybox",
                    "command": "true",
                    "requested_resources": {"machines": 1, "cpu_cores": 2, "memory_bytes": 2**31},
                },
            },
        ],
    },
}


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value below `node`."""
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    found = [path] if path else []
    for key, child in children:
        found += places(child, (*path, key))
    return found


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """The full document with up to four values replaced, taken away or set beside others."""
    data = copy.deepcopy(FULL)
    for _ in range(draw(st.integers(1, 4))):
        *parents, last = draw(st.sampled_from(places(data)))
        holder: Any = data
        for step in parents:
            holder = holder[step]
        action = draw(st.sampled_from(["replace", "remove", "add"]))
        if action == "remove":
            del holder[last]
        elif action == "add" and isinstance(holder, dict):
            holder[draw(FIELD_NAMES | st.text(max_size=8))] = draw(VALUES)
        else:
            holder[last] = draw(VALUES)
        if not places(data):
            break
    return data


def outcome(data: Any) -> RunDocument | SpecErrors:
    try:
        return validate_document(data)
    except SpecErrors as refused:
        check_words(refused)
        return refused


def check_words(refused: SpecErrors) -> None:
    assert refused.errors
    for error in refused.errors:
        assert error.message.endswith((".", "?", "…")), error
        assert error.code.isidentifier(), error
        assert json.loads(json.dumps(error.as_json())) == error.as_json()
        error.path.encode()


def test_the_full_document_is_good():
    made = validate_document(FULL)

    assert made.as_json() == FULL
    assert validate_document(made.filled()).filled() == made.filled()


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_random_values(data):
    outcome(data)


@settings(max_examples=300, deadline=None)
@given(mutated())
def test_mutations_of_a_good_document(data):
    made = outcome(data)

    if isinstance(made, RunDocument):
        assert validate_document(made.filled()).filled() == made.filled()
        assert stored_document(made.filled()) == validate_document(made.filled())
        assert all(group.template.shapes() for group in made.groups())
        assert SCHEMA.is_valid(data), "the schema that the editor uses is stricter than the validator"


@settings(max_examples=150, deadline=None)
@given(mutated())
def test_text_and_values_get_the_same_answer(data):
    text = json.dumps(data)
    try:
        from_text: Any = parse_document(text).as_json()
    except SpecErrors as refused:
        from_text = refused.as_json()

    assert from_text == outcome(json.loads(text)).as_json()


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200))
def test_random_text(text):
    with contextlib.suppress(SpecErrors):
        parse_document(text)
