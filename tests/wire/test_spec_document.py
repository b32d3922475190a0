"""What a document answers once it is valid: groups, names, shapes, amounts, defaults."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from wire.quantities import GIB
from wire.spec import Shape, SpecErrors, parse_document, stored_document, validate_document


def template(**fields: Any) -> dict[str, Any]:
    return {"image": "busybox", "command": "true", **fields}


def document(**resources: Any) -> Any:
    spec = {"task_template": template(requested_resources=resources)}
    return validate_document({"metadata": {"name": "a"}, "spec": spec})


def groups(*named: tuple[str, dict[str, Any]]) -> Any:
    worker_groups = [{"name": name, "task_template": template(requested_resources=r)} for name, r in named]
    return validate_document({"metadata": {"name": "a"}, "spec": {"worker_groups": worker_groups}})


def shapes(**resources: Any) -> list[tuple[int, int]]:
    return list(document(**resources).groups()[0].template.shapes())


def test_the_smallest_document_is_one_worker_with_one_core_and_two_gib(smallest):
    made = validate_document(smallest)
    (group,) = made.groups()

    assert group.template.shapes() == (Shape(1, 0),)
    assert group.template.amounts(Shape(1, 0)) == (1, 2 * GIB)


def test_every_default_of_the_smallest_document(smallest):
    assert validate_document(smallest).filled() == {
        "metadata": {"name": "hello", "labels": {}},
        "spec": {
            "start": "Gang",
            "on_failure": "FailJob",
            "max_restarts": 3,
            "priority": 0,
            "preemptible": False,
            "barrier_timeout_seconds": 900,
            "task_template": {
                "image": "busybox",
                "command": "true",
                "args": [],
                "env": {},
                "stop_signal": "SIGTERM",
                "stop_grace_seconds": 30,
                "requested_resources": {
                    "cpu_cores": 1,
                    "memory_bytes": 2147483648,
                    "network": {"interconnect": "any", "preflight": "none"},
                    "topology": {"patience_seconds": 0},
                    "node_selection": {
                        "mode": "Any",
                        "pools": [],
                        "machines": [],
                        "match_labels": {},
                        "exclude_machines": [],
                    },
                },
                "configs": [],
                "datavolume_refs": [],
                "secret_refs": [],
                "probes": {},
            },
        },
    }


def test_asking_for_an_interconnect_turns_the_link_checks_on():
    assert document(network={"interconnect": "rdma"}).filled()["spec"]["task_template"][
        "requested_resources"
    ]["network"] == {"interconnect": "rdma", "preflight": "links"}
    assert (
        document(network={"interconnect": "rdma", "preflight": "none"})
        .groups()[0]
        .template.requested_resources.network.effective_preflight
        == "none"
    )


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"gpu_requests": {"count": 16}, "machines": 2}, [(2, 8)]),
        ({"gpu_requests": {"count": 12}}, [(1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (12, 1)]),
        ({"gpu_requests": {"count": 12, "min_per_machine": 4}}, [(1, 12), (2, 6), (3, 4)]),
        ({"gpu_requests": {"count": 12}, "topology": {"min_nodes": 5}}, [(6, 2), (12, 1)]),
        ({"gpu_requests": {"count": 12}, "topology": {"max_nodes": 2}}, [(1, 12), (2, 6)]),
        ({"gpu_requests": {"count": 7}}, [(1, 7), (7, 1)]),
        ({"machines": 3}, [(3, 0)]),
        ({"topology": {"min_nodes": 2, "max_nodes": 4}}, [(2, 0), (3, 0), (4, 0)]),
        ({}, [(1, 0)]),
    ],
)
def test_shapes(resources, expected):
    assert shapes(**resources) == expected


def test_amounts_follow_the_shape_chosen():
    resources = (
        document(gpu_requests={"count": 16}, per_gpu={"cpu_cores": 12, "memory_bytes": 100 * GIB})
        .groups()[0]
        .template
    )

    assert resources.amounts(Shape(2, 8)) == (96, 800 * GIB)
    assert resources.amounts(Shape(1, 16)) == (192, 1600 * GIB)


def test_amounts_per_worker_and_the_share_of_the_machine():
    exact = document(gpu_requests={"count": 2}, cpu_cores=8, memory_bytes=GIB).groups()[0].template
    share = document(gpu_requests={"count": 2}).groups()[0].template
    cores_only = document(cpu_cores=8).groups()[0].template

    assert exact.amounts(Shape(1, 2)) == (8, GIB)
    assert share.amounts(Shape(1, 2)) is None
    assert cores_only.amounts(Shape(1, 0)) == (8, 2 * GIB)


def test_groups_are_named_and_ranked_in_order():
    made = groups(("actor", {"gpu_requests": {"count": 4}, "machines": 2}), ("critic", {}))

    assert [group.name for group in made.groups()] == ["actor", "critic"]
    assert made.worker_names([Shape(2, 2), Shape(1, 0)]) == ("a-actor-0", "a-actor-1", "a-critic-0")


def test_one_shape_a_group_is_asked_for():
    with pytest.raises(ValueError, match="shorter"):
        groups(("actor", {}), ("critic", {})).worker_names([Shape(1, 0)])


def test_filled_is_valid_and_stays_the_same(reference_text):
    for made in (
        parse_document(reference_text),
        document(gpu_requests={"count": 12}, topology={"min_nodes": 5}),
        groups(("actor", {"gpu_requests": {"count": 4}}), ("critic", {"machines": 2})),
    ):
        filled = made.filled()
        again = parse_document(json.dumps(filled))
        assert again.filled() == filled
        assert [g.template.shapes() for g in again.groups()] == [g.template.shapes() for g in made.groups()]


def test_null_is_the_same_as_left_out(smallest):
    smallest["spec"]["cluster"] = None
    smallest["spec"]["worker_groups"] = None

    assert validate_document(smallest).filled()["spec"]["task_template"]["image"] == "busybox"


def test_a_document_never_changes(smallest):
    made = validate_document(smallest)

    with pytest.raises(ValidationError):
        made.metadata.name = "other"  # type: ignore[misc]  # the checker sees it too


def test_a_stored_document_that_this_version_does_not_know_is_refused_in_words(smallest):
    stored = validate_document(smallest).filled()
    assert stored_document(stored) == validate_document(stored)
    stored["spec"]["gang"] = True
    with pytest.raises(SpecErrors) as refused:
        stored_document(stored)
    assert [error.path for error in refused.value.errors] == ["spec.gang"]
