"""The form and the document it shows: nothing of a document is lost on the way there and back."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.pages.run_form.draft import FORM, Draft, merged, opened, posted, with_files
from console.pages.run_form.entries import first
from console.pages.run_form.form import entry_at, form_apply, form_of, spots_of, summary
from console.pages.run_form.rows import ROWS
from console.pages.run_form.table import ENTRIES, SECTIONS
from tests import factories as make
from tests.wire.test_spec_properties import FULL, VALUES
from wire.spec import RunDocument, validate_document

RESOURCES = ("spec", "task_template", "requested_resources")


def sent(document: Any) -> dict[str, list[str]]:
    """What a browser sends back of the document's form when nobody has touched it."""
    form = form_of(document)
    post = {f"f-{name}": crlf(values) for shown in form.values.values() for name, values in shown.items()}
    post |= {f"f-{name}-there": ["1"] for name in form.values}
    for rows in ROWS:
        drawn = list(form.rows.get(rows.name, {}).items())
        for number, (of, row) in enumerate([*((str(of), row) for of, row in drawn), ("", {})]):
            post[f"{rows.name}-{number}-of"] = [of]
            for column in rows.columns:
                post[f"{rows.name}-{number}-{column.key}"] = crlf([row.get(column.key, "")])
    return post


def crlf(values):
    return [value.replace("\n", "\r\n") for value in values]


def changed(document, **fields):
    """The document after these inputs were filled in otherwise, and what can't be read."""
    post = sent(document) | {f"f-{name.replace('__', '-')}": [value] for name, value in fields.items()}
    applied = form_apply(document, post)
    return applied.document, dict(applied.problems)


def single(**more):
    """FULL's first group as the only one."""
    spec = {key: value for key, value in FULL["spec"].items() if key != "worker_groups"}
    template = copy.deepcopy(FULL["spec"]["worker_groups"][0]["task_template"])
    return {"metadata": FULL["metadata"], "spec": {**spec, "task_template": template | more}}


@st.composite
def documents(draw):
    """Valid documents: FULL and the guide's run with any of their fields left out or given another value."""
    document = copy.deepcopy(draw(st.sampled_from([single(), FULL, make.document_make()])))
    template = document["spec"].get("task_template") or document["spec"]["worker_groups"][0]["task_template"]
    for name in draw(st.lists(st.sampled_from(sorted(template)), max_size=6)):
        if name not in {"image", "command"}:
            template.pop(name, None)
    template["env"] = draw(
        st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), TEXTS, max_size=4)
    )
    template["args"] = draw(st.lists(TEXTS, max_size=4))
    template["configs"] = [
        {"mounts": [f"/app/{number}"], "value": value}
        for number, value in enumerate(draw(st.lists(TEXTS, max_size=3)))
    ]
    template["time_limit_seconds"] = draw(st.integers(121, 366 * 86_400))
    document["metadata"]["labels"] = draw(
        st.dictionaries(st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.sampled_from(["", "a", "a.b-c"]))
    )
    if resources := template.get("requested_resources"):
        resources.pop("machines", None)
        resources.setdefault("per_gpu", {})
        if "gpu_requests" not in resources:
            del resources["per_gpu"]
        else:
            resources["per_gpu"] = {
                "cpu_cores": draw(st.integers(1, 64)),
                "memory_bytes": draw(st.integers(2**20, 2**40)),
            }
    document["spec"]["priority"] = draw(st.integers(-1000, 1000))
    return document


TEXTS = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12
) | st.sampled_from(["a b", "'", '"', "\n", "\r\n", " x ", "$RANK", "a\n\nb", "#", '"x"', "\\", "  "])


@settings(max_examples=150, deadline=None)
@given(documents())
def test_a_valid_document_comes_back_from_its_form_as_it_was(document):
    validate_document(document)
    applied = form_apply(document, sent(document))
    assert (applied.document, applied.changed, applied.problems) == (document, False, {})
    text = json.dumps(document)
    draft = posted({"document": [text], "mode": [FORM], **sent(document)})
    assert draft == Draft(text, FORM)


@settings(max_examples=100, deadline=None)
@given(documents(), st.integers(1, 9))
def test_a_change_of_one_field_changes_nothing_else(document, restarts):
    after, problems = changed(document, max_restarts=str(restarts))
    expected = copy.deepcopy(document)
    if restarts == RunDocument.model_fields["spec"].annotation.model_fields["max_restarts"].default:
        expected["spec"].pop("max_restarts", None)
        expected["spec"].setdefault("max_restarts", 3)
        after["spec"].setdefault("max_restarts", 3)
    else:
        expected["spec"]["max_restarts"] = restarts
    assert (after, problems) == (expected, {})
    assert form_of(after).values["max_restarts"] == {"max_restarts": [str(restarts)]}


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_whatever_the_document_is_the_form_takes_nothing_from_it(value):
    try:
        text = json.dumps(value)
    except ValueError:
        return
    document, broken = opened(text)
    if not broken:
        assert not form_apply(document, sent(document)).changed


def test_the_guides_run_is_shown_in_full():
    form = form_of(make.document_make())
    assert form.hidden == ()
    assert set(form.values) == set(ENTRIES)
    said = {section.title: summary(form, section.entries) for section in SECTIONS}
    assert said == {
        "Network between workers": "InfiniBand, at least 400 Gb/s",
        "Placement": "one fabric, only healthy GPUs",
        "When something fails": "restart all workers",
        "Probes": "",
        "Environment": "1 variable",
        "Start, priority and labels": "1 label",
    }


def test_what_it_can_t_show_is_listed():
    assert [each.words for each in form_of(FULL).hidden] == ["worker_groups (2)"]
    assert form_of(single()).hidden == ()
    odd = single(command=["bash"], imagine=1)
    assert [each.words for each in form_of(odd).hidden] == ["command (1)", "args (2)", "imagine"]


PROBE = ("by", "command", "port", "path", "every", "timeout", "failures")


def probe(document, name):
    """What the inputs of a probe hold; None where the form can't show it."""
    values = form_of(document).values.get(name)
    return values and [first(values, f"{name}-{part}") for part in PROBE]


def test_probes_stand_in_their_fields():
    document = single()
    assert probe(document, "startup") == ["exec", "test -e /tmp/up", "", "", "10 s", "5 s", "3"]
    assert probe(document, "readiness") == ["http", "", "8080", "/ready", "5 s", "5 s", "3"]
    assert probe(document, "liveness") == ["tcp", "", "8080", "", "10 s", "2 s", "9"]
    section = next(each for each in SECTIONS if each.key == "probes")
    assert summary(form_of(document), section.entries) == (
        "start-up: a command in the worker, readiness: a request over HTTP, liveness: a connection to a port"
    )


def test_a_probe_s_empty_inputs_show_what_counts():
    assert ENTRIES["startup"].empty() == {
        "startup-path": "/",
        "startup-every": "10 s",
        "startup-timeout": "5 s",
        "startup-failures": "3",
    }


@pytest.mark.parametrize(
    "strange",
    [
        {"tcp": {"port": 1}, "http": {"port": 1}},
        {"period_seconds": 5},
        {"tcp": {"port": 1}, "imagine": 1},
        {"tcp": {"port": "1"}},
        {"exec": {"command": "a", "args": "b"}},
        {"exec": ["a"]},
        7,
    ],
)
def test_a_probe_that_its_fields_can_t_hold_is_listed_and_stays(strange):
    document = single(probes={"liveness": strange})
    assert probe(document, "liveness") is None
    assert [each.words for each in form_of(document).hidden] == [
        "probes.liveness" + (f" ({len(strange)})" if isinstance(strange, dict) else "")
    ]
    after, _ = changed(document, name="another")
    assert after["spec"]["task_template"]["probes"] == {"liveness": strange}


def test_probes_are_written_changed_and_removed():
    document, problems = changed(
        make.document_make(),
        liveness__by="http",
        liveness__port="80",
        liveness__every="1 min",
        liveness__failures="2",
    )
    assert problems == {}
    assert document["spec"]["task_template"]["probes"] == {
        "liveness": {"http": {"port": 80}, "period_seconds": 60, "failure_threshold": 2}
    }
    document, _ = changed(document, liveness__by="exec", liveness__command="sh -c 'test -e /up'")
    assert document["spec"]["task_template"]["probes"] == {
        "liveness": {
            "exec": {"command": "sh", "args": ["-c", "test -e /up"]},
            "period_seconds": 60,
            "failure_threshold": 2,
        }
    }
    assert changed(document, liveness__by="")[0] == make.document_make()


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ({"by": "exec", "port": "80"}, "Write the command, or choose none."),
        ({"by": "tcp", "command": "true"}, "Write the port, or choose none."),
        ({"by": "http", "port": "web"}, "“web” is not a whole number. Write digits only, such as 16."),
    ],
)
def test_a_probe_without_what_it_needs_is_told(typed, problem):
    fields = {f"startup__{part}": text for part, text in typed.items()}
    assert changed(make.document_make(), **fields) == (make.document_make(), {"startup": problem})


def test_a_number_that_is_none_is_told_and_the_document_keeps_what_it_had():
    document = make.document_make()
    after, problems = changed(
        document, gpus="17x", patience="ten", amounts__memory="much", command="bash -c 'x"
    )
    assert after == document
    assert problems == {
        "gpus": "“17x” is not a whole number. Write digits only, such as 16.",
        "patience": "'ten' is not a duration. Write numbers with units, such as 1h30m, 45s or 2d.",
        "amounts": "'much' is not a size. Write a number and a unit, such as 100G, 1.5T or 512M.",
        "command": "A quotation mark has no partner. Add the one that closes it.",
    }


@pytest.mark.parametrize(
    ("fields", "resources"),
    [
        ({"machines__mode": "any"}, {"machines": None}),
        (
            {"machines__mode": "between", "machines__least": "2", "machines__most": "4"},
            {"machines": None, "topology": {"keep_within": "fabric", "min_nodes": 2, "max_nodes": 4}},
        ),
        (
            {"amounts__mode": "worker", "amounts__memory": "1.5T"},
            {"per_gpu": None, "cpu_cores": 12, "memory_bytes": 3 * 2**39},
        ),
        ({"amounts__memory": "64"}, {"per_gpu": {"cpu_cores": 12, "memory_bytes": 64 * 2**30}}),
        ({"keep_within": ""}, {"topology": None}),
        (
            {"selection__mode": "Labels", "selection__list": "tier=a\nzone=b"},
            {"node_selection": {"mode": "Labels", "match_labels": {"tier": "a", "zone": "b"}}},
        ),
    ],
)
def test_each_choice_writes_its_places(fields, resources):
    after, problems = changed(make.document_make(), **fields)
    asked = make.document_make()["spec"]["task_template"]["requested_resources"] | resources
    expected = {name: value for name, value in asked.items() if value is not None}
    assert (after["spec"]["task_template"]["requested_resources"], problems) == (expected, {})


def test_a_choice_without_its_number_is_told():
    document = make.document_make()
    _, problems = changed(document, machines__mode="exactly", machines__exactly="")
    assert problems == {"machines": "Write how many machines, or let Astraeus choose."}
    _, problems = changed(document, selection__mode="Pools")
    assert problems == {"selection": "Write at least one entry, or choose all of the workspace's pools."}


def test_rows_are_changed_removed_and_added():
    document = single()
    post = sent(document)
    post["files-0-value"] = ["new\r\ntext"]
    post["secrets-0-remove"] = ["1"]
    post["drives-1-name"], post["drives-1-mount_path"] = ["more"], ["/more"]
    template = form_apply(document, post).document["spec"]["task_template"]
    assert template["configs"] == [
        {"mounts": ["/app/train.py", "/app/copy.py"], "value": "new\ntext", "mode": 365}
    ]
    assert template["secret_refs"] == [{"name": "key", "mount_path": "/run/key"}]
    assert template["datavolume_refs"][1] == {"name": "more", "mount_path": "/more"}
    assert template["datavolume_refs"][0]["sub_path"] == "imagenet/train"


def test_variables_are_read_as_env_files_are():
    after, _ = changed(make.document_make(), env='# a comment\n\nexport A=1\nB="two\\nlines"\nC=a=b')
    assert after["spec"]["task_template"]["env"] == {"A": "1", "B": "two\nlines", "C": "a=b"}
    _, problems = changed(make.document_make(), env="A=1\nB")
    assert problems == {"env": "Line 2 has no “=”. Write NAME=value, one on each line."}


def test_errors_find_their_fields():
    paths = {
        "spec.task_template.requested_resources.gpu_requests.count": "gpus",
        "spec.task_template.requested_resources.gpu_requests.models[0]": "models",
        "spec.task_template.requested_resources.topology.min_nodes": "machines",
        "spec.task_template.requested_resources.per_gpu": "amounts",
        "spec.task_template.configs[0].mounts[0]": "files",
        'metadata.labels["a b"]': "labels",
        "spec.task_template.probes.liveness": "liveness",
        "spec.task_template.probes.startup.http.port": "startup",
    }
    assert {path: entry_at(path) for path in paths} == paths


def test_errors_in_lists_find_their_cells():
    document = single()
    template = document["spec"]["task_template"]
    template["configs"] = [{"odd": 1}, {"mounts": ["/a"], "value": ""}, {"mounts": ["/b"], "value": ""}]
    post = sent(document)
    configs, secrets = "spec.task_template.configs", "spec.task_template.secret_refs"
    drawn = spots_of(form_of(document))
    assert drawn.of(f"{configs}[2].mounts[0]") == "files-1-mounts"
    assert drawn.of(f"{configs}[0].odd") == "files"
    assert drawn.of(f"{secrets}[0].mount_path") == "secrets-0-target"
    assert drawn.of(configs) == "files"
    # Rows that are taken out or left empty have numbers, and no place in the document.
    post["files-0-remove"] = ["1"]
    post |= {"files-3-of": [""], "files-3-mounts": ["/c"], "files-3-value": [""]}
    sent_ = spots_of(form_of(form_apply(document, post).document), post)
    assert sent_.of(f"{configs}[1].mounts[0]") == "files-1-mounts"
    assert sent_.of(f"{configs}[2].mounts[0]") == "files-3-mounts"


def test_an_offered_change_is_made_and_marked():
    document = make.document_make()
    patch = {"spec": {"task_template": {"requested_resources": {"network": {"min_gbps": 200}}}}}
    draft = merged(Draft(json.dumps(document), FORM), patch)
    assert draft.marked == {"min_gbps"}
    assert json.loads(draft.text)["spec"]["task_template"]["requested_resources"]["network"] == {
        "interconnect": "infiniband",
        "min_gbps": 200,
    }


def test_files_are_attached_and_replaced_by_their_path():
    draft = with_files(Draft(json.dumps(make.document_make())), [("a.py", "1"), ("b.py", "2")])
    draft = with_files(draft, [("a.py", "3")])
    configs = json.loads(draft.text)["spec"]["task_template"]["configs"]
    assert configs == [{"mounts": ["/app/b.py"], "value": "2"}, {"mounts": ["/app/a.py"], "value": "3"}]
    with pytest.raises(ValueError, match="Edit it as JSON"):
        with_files(Draft(json.dumps(FULL)), [("a.py", "1")])
