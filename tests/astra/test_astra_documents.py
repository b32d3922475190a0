"""Documents from flags, files and changes."""

import json
from typing import Any

import pytest

from astra.documents import Changes, RunFlags, build, load, with_changes
from astra.errors import InvalidDocumentError, UsageError

MINIMAL: dict[str, Any] = {
    "metadata": {"name": "a"},
    "spec": {"task_template": {"image": "i", "command": "c"}},
}


def resources(**flags: Any) -> Any:
    return build(RunFlags(name="a", image="i", **flags))["spec"]["task_template"].get("requested_resources")


def test_amounts_are_per_gpu_with_gpus_and_per_worker_without():
    assert resources(gpus=8, cpus=12.0, mem="100G") == {
        "gpu_requests": {"count": 8},
        "per_gpu": {"cpu_cores": 12, "memory_bytes": 107374182400},
    }
    assert resources(cpus=0.5, mem="100GB") == {"cpu_cores": 0.5, "memory_bytes": 100_000_000_000}
    assert resources() is None


def test_only_several_machines_are_a_gang():
    assert build(RunFlags(name="a", image="i", machines=1))["spec"].get("start") is None
    assert build(RunFlags(name="a", image="i", machines=2))["spec"]["start"] == "Gang"


def test_variables_may_take_their_value_from_here():
    flags = RunFlags(name="a", image="i", env=("A=1=2", "B", "C="), environ={"B": "here"})
    assert build(flags)["spec"]["task_template"]["env"] == {"A": "1=2", "B": "here", "C": ""}
    with pytest.raises(UsageError, match="-e B: there is no variable B here"):
        build(RunFlags(name="a", image="i", env=("B",), environ={}))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"mem": "lots"}, "--mem: 'lots' is not a size"),
        ({"time": "60"}, "--time: '60' has no unit"),
        ({"labels": ("x",)}, "--label takes KEY=VALUE, not “x”."),
        ({"env": ("=x",)}, "-e takes KEY=VALUE, not “=x”."),
    ],
)
def test_flags_that_say_nothing(flags, message):
    with pytest.raises(UsageError, match=message):
        build(RunFlags(name="a", image="i", **flags))


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        ("spec.priority=10", ("spec", "priority"), 10),
        ("spec.preemptible=true", ("spec", "preemptible"), True),
        ("spec.cluster=main", ("spec", "cluster"), "main"),
        ("spec.task_template.env.STEPS=10", ("spec", "task_template", "env", "STEPS"), "10"),
        ('metadata.labels["a.b/c"]=true', ("metadata", "labels", "a.b/c"), "true"),
        ('metadata.labels."a.b/c"=1', ("metadata", "labels", "a.b/c"), "1"),
        ('spec.task_template.args=["-c", "x=y"]', ("spec", "task_template", "args"), ["-c", "x=y"]),
        ("spec.task_template.args[0]=-c", ("spec", "task_template", "args"), ["-c"]),
        ("spec.task_template.command=a=b", ("spec", "task_template", "command"), "a=b"),
    ],
)
def test_set(change, path, value):
    changed: Any = with_changes(MINIMAL, Changes(sets=(change,)))
    for step in path:
        changed = changed[step]
    assert changed == value
    assert "priority" not in MINIMAL["spec"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("priority=1", "--set takes PATH=VALUE"),
        ("spec.priority", "--set takes PATH=VALUE"),
        ("spec.task_template.args[3]=x", "the list has 0 elements, so “3” is no place in it"),
        ("metadata.name.x=1", "there is nothing at this place that “x” could stand in"),
    ],
)
def test_set_that_can_not_be(change, message):
    with pytest.raises(UsageError, match=message):
        with_changes(MINIMAL, Changes(sets=(change,)))


def test_config_attaches_a_file_and_replaces_the_one_at_its_path(tmp_path):
    script = tmp_path / "train: v2.py"
    script.write_text("print('ä')\n")
    changes = Changes(configs=(f"{script}:/app/train.py",))
    once = with_changes(MINIMAL, changes)
    assert once["spec"]["task_template"]["configs"] == [
        {"mounts": ["/app/train.py"], "value": "print('ä')\n"}
    ]
    assert with_changes(once, changes) == once


def test_config_keeps_a_script_executable_and_reaches_every_group(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    groups = [{"name": name, "task_template": {"image": "i"}} for name in ("a", "b")]
    document = {"metadata": {"name": "x"}, "spec": {"worker_groups": groups}}
    changed = with_changes(document, Changes(configs=(f"{script}:/run.sh",)))
    config = {"mounts": ["/run.sh"], "value": "#!/bin/sh\n", "mode": 0o555}
    assert [group["task_template"]["configs"] for group in changed["spec"]["worker_groups"]] == [
        [config],
        [config],
    ]


def test_config_that_can_not_be(tmp_path):
    binary = tmp_path / "model.bin"
    binary.write_bytes(b"\xff")
    for text, message in (
        ("nosuch.py:/x", "nosuch.py can't be read: No such file or directory"),
        (f"{binary}:/x", "is no UTF-8 text"),
        ("train.py", "--config takes LOCAL:/PATH"),
    ):
        with pytest.raises(UsageError, match=message):
            with_changes(MINIMAL, Changes(configs=(text,)))


def test_load_reports_everything_at_once(tmp_path):
    file = tmp_path / "run.json"
    file.write_text(
        json.dumps({"metadata": {"name": "A"}, "spec": {"task_template": {"image": "i", "comand": "c"}}})
    )
    with pytest.raises(InvalidDocumentError) as caught:
        load(str(file))
    paths = [error.path for error in caught.value.errors]
    assert {"metadata.name", "spec.task_template.comand"} <= set(paths)


def test_a_change_may_be_what_makes_a_document_valid(tmp_path):
    file = tmp_path / "run.json"
    file.write_text(json.dumps(MINIMAL | {"metadata": {}}))
    assert load(str(file), Changes(name="b"))["metadata"]["name"] == "b"


def test_duplicate_keys_are_found_with_changes_too(tmp_path):
    file = tmp_path / "run.json"
    file.write_text(
        '{"metadata": {"name": "a", "name": "b"}, "spec": {"task_template": {"image": "i", "command": "c"}}}'
    )
    for changes in (None, Changes(sets=("spec.priority=1",))):
        with pytest.raises(InvalidDocumentError, match=r"metadata\.name: .*more than once"):
            load(str(file), changes)
