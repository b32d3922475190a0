"""Labels of a machine, edited in place: what a change would do is told before it is made."""

import html

import pytest

from machines.models import MachineLabel
from machines.states import FABRIC_LABEL, RACK_LABEL
from tenancy.models import AuditEvent
from tests import factories as make

GPU4 = "/o/acme/clusters/main/machines/gpu-04"
LABEL = f"{GPU4}/label"
FRAGMENT = {"HX-Request": "true"}


def text(answer):
    return " ".join(html.unescape(answer.content.decode()).split())


def place(client, slug):
    return {each.slug: each for each in client.get(GPU4).context["places"]}[slug]


def rack_run(house, name="tune-9"):
    """Waits for two machines in one rack."""
    document = make.document_make(name)
    resources = document["spec"]["task_template"]["requested_resources"]
    resources["topology"] = {"keep_within": "rack"}
    return make.run_pending(house, name, document=document)


@pytest.fixture
def two_racks(house):
    """gpu-04 in r2 and gpu-05 in r7: no rack holds two machines."""
    return make.machine_make(house, "gpu-04", rack="r2"), make.machine_make(house, "gpu-05", rack="r7")


def test_a_label_is_set_by_a_form_without_javascript(busy, ana):
    assert "Save rack" in text(ana.get(f"{GPU4}?edit=rack"))
    answer = ana.post(LABEL, {"place": "rack", "value": " r7 ", "save": "1"})
    assert answer["Location"] == GPU4
    page = text(ana.get(GPU4))
    assert "Rack of gpu-04 is r7." in page
    assert "found: <bdi>r2</bdi>" in page
    set_ = place(ana, "rack")
    assert (set_.value, set_.found, set_.set_by) == ("r7", "r2", "ana")
    event = AuditEvent.objects.get(action="machine.label")
    assert (event.actor, event.target, event.after) == ("ana", "gpu-04", {RACK_LABEL: "r7"})


def test_a_label_is_edited_in_its_line(busy, ana):
    form = text(ana.get(f"{GPU4}?edit=rack", headers=FRAGMENT))
    assert form.startswith('<div class="place" id="place-rack">')
    assert 'value="r2"' in form
    saved = ana.post(LABEL, {"place": "rack", "value": "r7", "save": "1"}, headers=FRAGMENT)
    assert text(saved).startswith('<div class="place" id="place-rack">')
    assert "<bdi>r7</bdi>" in text(saved)
    assert 'aria-label="Edit rack" autofocus' in text(saved)
    assert "Rack of gpu-04 is r7." in saved["HX-Trigger"]


def test_cancelling_brings_the_line_back(busy, ana):
    line = text(ana.get(f"{GPU4}?place=rack", headers=FRAGMENT))
    assert "Save rack" not in line
    assert "<bdi>r2</bdi>" in line


@pytest.mark.parametrize("headers", [{}, FRAGMENT])
def test_a_wrong_value_is_told_and_kept(busy, ana, headers):
    answer = ana.post(LABEL, {"place": "rack", "value": "rack 7", "save": "1"}, headers=headers)
    assert answer.status_code == 422
    page = text(answer)
    assert "`rack 7` is not a label's value." in page
    assert 'value="rack 7"' in page
    assert 'aria-invalid="true"' in page
    assert not MachineLabel.objects.filter(found=False).exists()


def test_what_was_found_counts_again(busy, ana):
    ana.post(LABEL, {"place": "fabric", "value": "ib-z", "save": "1"})
    assert place(ana, "fabric").value == "ib-z"
    assert "Use what was found" in text(ana.get(f"{GPU4}?edit=fabric"))
    ana.post(LABEL, {"place": "fabric", "unset": "1"})
    assert place(ana, "fabric").value == "ib-a"
    assert not MachineLabel.objects.filter(key=FABRIC_LABEL).exists()


def test_other_labels_are_set_and_removed(busy, ana):
    ana.post(LABEL, {"key": "team", "value": "vision"})
    assert "Label team is vision." in text(ana.get(GPU4))
    assert "Remove label team" in text(ana.get(GPU4))
    ana.post(LABEL, {"key": "team", "unset": "1"})
    assert "Label team is gone." in text(ana.get(GPU4))


def test_a_wrong_key_is_told_and_kept(busy, ana):
    answer = ana.post(LABEL, {"key": "no good", "value": "v"})
    assert answer.status_code == 422
    page = text(answer)
    assert "`no good` is not a label's key." in page
    assert 'value="no good"' in page
    assert 'value="v"' in page


# --- What it would do, told first ---------------------------------------------------------------------


def test_typing_is_followed_by_what_saving_would_do(house, two_racks, ana):
    rack_run(house)
    typed = {"place": "rack", "value": "r7", "preview": "1"}
    answer = ana.post(LABEL, typed, headers=FRAGMENT)
    page = text(answer)
    assert page.startswith('<div class="preview" id="preview-rack">')
    assert "What saving does, tried as of pass 18,204:" in page
    assert "<bdi>tune-9</bdi>: gpu-04 and gpu-05, one rack on one InfiniBand fabric" in page
    assert answer["HX-Trigger"] == '{"astraeus:say": "Would start 1 waiting run."}'
    assert not MachineLabel.objects.filter(found=False).exists()
    assert [event.action for event in AuditEvent.objects.all()] == ["run.submit"]


def test_typing_what_is_no_value_says_so_below_the_field(house, two_racks, ana):
    page = text(ana.post(LABEL, {"place": "rack", "value": "rack 7", "preview": "1"}, headers=FRAGMENT))
    assert '<p class="error" id="problem-rack">`rack 7` is not a label' in page


def test_a_change_that_affects_runs_is_asked_back_for_without_javascript(house, two_racks, ana):
    rack_run(house)
    question = ana.post(LABEL, {"place": "rack", "value": "r7", "save": "1"})
    page = text(question)
    assert "Save rack anyway" in page
    assert '<input type="hidden" name="seen" value="=r7">' in page
    assert 'value="r7"' in page
    assert not MachineLabel.objects.filter(found=False).exists()
    ana.post(LABEL, {"place": "rack", "value": "r7", "seen": "=r7", "save": "1"})
    assert MachineLabel.objects.get(found=False).value == "r7"


def test_what_was_shown_for_another_value_does_not_count(house, two_racks, ana):
    rack_run(house)
    answer = ana.post(LABEL, {"place": "rack", "value": "r7", "seen": "=r8"}, headers=FRAGMENT)
    assert "Save rack anyway" in text(answer)
    assert not MachineLabel.objects.filter(found=False).exists()


def test_what_affects_nothing_is_saved_at_once(house, two_racks, ana):
    typed = {"place": "rack", "value": "r8"}
    preview = ana.post(LABEL, {**typed, "preview": "1"}, headers=FRAGMENT)
    assert "No waiting or running run is affected." in text(preview)
    ana.post(LABEL, typed)
    assert "Rack of gpu-04 is r8." in text(ana.get(GPU4))


def test_a_gang_that_would_be_split_is_told_never_blocked(house, two_racks, ana):
    ana.post("/o/acme/clusters/main/machines/gpu-05/label", {"place": "rack", "value": "r2"})
    run = rack_run(house, "llm-7")
    make.run_start(make.run_place(house, run, list(two_racks)))
    page = text(ana.post(LABEL, {"place": "rack", "value": "r9"}, headers=FRAGMENT))
    assert (
        "<bdi>llm-7</bdi> runs in r2 and would span r2 and r9. It goes on; "
        "a restart needs 2 machines in one rack."
    ) in page
    ana.post(LABEL, {"place": "rack", "value": "r9", "seen": "=r9"}, headers=FRAGMENT)
    assert place(ana, "rack").value == "r9"


def test_taking_back_what_was_set_is_asked_back_for_too(house, two_racks, ana):
    ana.post(LABEL, {"place": "rack", "value": "r7"})
    run = rack_run(house, "llm-7")
    make.run_start(make.run_place(house, run, list(two_racks)))
    page = text(ana.post(LABEL, {"place": "rack", "value": "r7", "unset": "1"}))
    assert "Use what was found anyway" in page
    assert "would span r2 and r7" in page
    ana.post(LABEL, {"place": "rack", "value": "r7", "unset": "1", "seen": "unset"})
    assert place(ana, "rack").value == "r2"


def test_a_label_that_runs_select_by_tells_what_it_does(house, two_racks, ana):
    document = make.document_make("tune-9", gpus=8, machines=1)
    selection = {"mode": "Labels", "match_labels": {"team": "vision"}}
    document["spec"]["task_template"]["requested_resources"]["node_selection"] = selection
    make.run_pending(house, "tune-9", document=document)
    page = text(ana.post(LABEL, {"key": "team", "value": "vision"}))
    assert "Set label anyway" in page
    assert "<bdi>tune-9</bdi>: gpu-04, " in page
    ana.post(LABEL, {"key": "team", "value": "vision", "seen": "=vision"})
    assert MachineLabel.objects.get(key="team").value == "vision"


@pytest.mark.parametrize("headers", [{}, FRAGMENT])
def test_what_another_person_set_meanwhile_is_not_overwritten_unseen(house, two_racks, ana, headers):
    ana.post(LABEL, {"place": "rack", "value": "r8"})
    page = text(ana.post(LABEL, {"place": "rack", "value": "r9", "was": "r2"}, headers=headers))
    assert "ana set this to r8 meanwhile. Yours was not saved; save again to set it." in page
    assert 'name="was" value="r8"' in page
    assert place(ana, "rack").value == "r8"


@pytest.mark.parametrize("key", ["astraeus.io/owner", "topology.astraeus.io/row"])
def test_reserved_keys_are_refused(house, two_racks, ana, key):
    answer = ana.post(LABEL, {"key": key, "value": "v"})
    assert answer.status_code == 422
    assert f"Keys below astraeus.io are reserved; `{key}` is none that can be set." in text(answer)
    assert not MachineLabel.objects.filter(found=False).exists()


def test_a_key_that_only_ends_like_a_reserved_one_is_free(house, two_racks, ana):
    ana.post(LABEL, {"key": "notastraeus.io/owner", "value": "v"})
    assert MachineLabel.objects.get(found=False).key == "notastraeus.io/owner"


def test_a_hundred_labels_are_too_many(house, two_racks, ana):
    machine, _ = two_racks
    MachineLabel.objects.bulk_create(
        MachineLabel(machine=machine, key=f"k{number}", value="v", set_by="ana") for number in range(64)
    )
    answer = ana.post(LABEL, {"key": "one-more", "value": "v"})
    assert answer.status_code == 422
    assert "gpu-04 has 64 labels already. Remove one first." in text(answer)
    ana.post(LABEL, {"key": "k3", "value": "other"})
    assert MachineLabel.objects.get(key="k3").value == "other"
