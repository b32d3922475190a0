"""New run: a document as JSON. All errors at once, at their lines, and nothing typed is lost."""

import html
import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from console.pages.run_form import preview
from runs.models import Run
from tests import factories as make
from tests.pages.conftest import signed_in

NEW = "/o/acme/w/vision/jobs/new"


def text(answer):
    return html.unescape(answer.content.decode())


def send(client, document, **fields):
    document = document if isinstance(document, str) else json.dumps(document, indent=2)
    return client.post(NEW, {"document": document, "start": "1", **fields})


def test_a_right_document_starts_and_leads_to_the_run(house, bea):
    answer = send(bea, make.document_make())
    assert answer["Location"] == "/o/acme/w/vision/jobs/main/ddp-resnet50"
    run = Run.objects.get()
    assert (run.state, run.created_by) == ("Pending", house.bea)
    page = text(bea.get(answer["Location"]))
    assert "ddp-resnet50 is in the queue." in page
    assert "data-draft-sent" in page


def test_all_errors_come_at_once_each_at_its_line(house, bea):
    document = make.document_make(machines=3)
    document["spec"]["task_template"]["imagine"] = 1
    answer = send(bea, document)
    assert answer.status_code == 422
    lines = json.dumps(document, indent=2).splitlines()
    placed = {each.path: lines[each.line - 1].strip() for each in answer.context["placed"]}
    assert placed["spec.task_template.imagine"] == '"imagine": 1'
    assert placed["spec.task_template.requested_resources.gpu_requests.count"] == '"count": 16,'
    page = text(answer)
    assert "<title>Error: New run" in page
    assert "The run was not started: 2 entries need a change." in page
    assert page.count("data-line=") == 2
    assert not Run.objects.exists()


def test_what_was_typed_stays_as_it_was_typed(house, bea):
    typed = '{"metadata": {"name": "<b>&amp; </textarea>"},\n\n  "spec": }'
    answer = send(bea, typed)
    assert answer.status_code == 422
    assert typed in text(answer)
    assert "</textarea>&quot;" not in answer.content.decode()


def test_a_text_that_begins_with_a_line_break_keeps_it(house, bea):
    page = send(bea, "\n\n{").content.decode()
    assert 'data-bad-lines="3">\n\n\n{</textarea>' in page


def test_broken_json_is_told_at_its_line(house, bea):
    [placed] = send(bea, '{\n  "metadata": {"name": "a"}\n  "spec": {}\n}').context["placed"]
    assert (placed.line, placed.excerpt) == (3, '"spec": {}')


def test_an_empty_document_is_told(house, bea):
    assert "The document is empty." in text(send(bea, ""))


def test_a_name_that_is_taken(house, bea):
    send(bea, make.document_make())
    answer = send(bea, make.document_make())
    assert answer.status_code == 409
    [placed] = answer.context["placed"]
    assert placed.excerpt == '"name": "ddp-resnet50",'
    assert Run.objects.count() == 1


def test_a_file_is_taken_instead_of_the_text(house, bea):
    file = SimpleUploadedFile("run.json", json.dumps(make.document_make("from-file")).encode())
    assert send(bea, "", file=file)["Location"].endswith("/from-file")


def test_a_file_can_be_looked_at_first(house, bea):
    file = SimpleUploadedFile("run.json", b'\xef\xbb\xbf{"metadata": {}}')
    answer = bea.post(NEW, {"document": "", "load": "1", "file": file})
    assert '{"metadata": {}}</textarea>' in text(answer)
    assert not Run.objects.exists()


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"\x00" * 1000, b"[" * 5000])
def test_a_file_that_is_no_document_is_refused_in_words(house, bea, content):
    answer = send(bea, "", file=SimpleUploadedFile("x", content))
    assert answer.status_code == 422
    assert answer.context["placed"]


def test_a_document_that_is_too_large(house, bea):
    answer = send(bea, "", file=SimpleUploadedFile("x", b'{"a": "' + b"x" * 2_100_000 + b'"}'))
    assert "larger than 2 MiB" in text(answer)


def test_the_text_of_someone_signed_out_is_kept(house):
    answer = send(Client(), '{"metadata": 1}')
    assert answer.status_code == 401
    page = text(answer)
    assert '{"metadata": 1}</textarea>' in page
    assert "What you typed is kept." in page
    again = signed_in(house.bea).post(NEW, {"document": '{"metadata": 1}', "load": "1"})
    assert '{"metadata": 1}</textarea>' in text(again)
    assert "error-summary" not in text(again)


def test_a_page_from_before_the_sign_in_keeps_its_text(house):
    client = Client(enforce_csrf_checks=True)
    client.force_login(house.bea, backend="allauth.account.auth_backends.AuthenticationBackend")
    answer = client.post(NEW, {"document": "{}"}, headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 403
    assert "{}</textarea>" in text(answer)


def test_another_sites_form_is_refused_and_not_shown_back(house):
    client = Client(enforce_csrf_checks=True)
    client.force_login(house.bea, backend="allauth.account.auth_backends.AuthenticationBackend")
    answer = client.post(NEW, {"document": "evil"}, headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403
    assert "evil" not in text(answer)


def test_viewers_may_not(house, vic):
    answer = send(vic, make.document_make())
    assert answer.status_code == 403
    assert "Your role does not allow you to submit, stop, restart and delete runs." in text(answer)


def test_a_run_that_is_filled_in_is_not_asked_for_what_it_has(house, bea):
    make.run_pending(house)
    asked = "Enter image, command and GPUs"
    assert asked in text(bea.get(NEW))
    for filled in ("/o/acme/w/vision/jobs/main/ddp-resnet50/edit", f"{NEW}?start=resnet50"):
        page = text(bea.get(filled))
        assert asked not in page
        assert "Trying where it would run…" in page


def test_a_preview_that_fails_names_the_pages_own_button(house, bea, monkeypatch):
    make.run_pending(house)
    monkeypatch.setattr(preview, "run_foresee", lambda **_: 1 / 0)
    sent = {"document": json.dumps(make.document_make()), "mode": "json", "preview": "1"}
    buttons = {NEW: "Start run", "/o/acme/w/vision/jobs/main/ddp-resnet50/edit": "Save and requeue"}
    for address, button in buttons.items():
        assert f"No preview right now. {button} works all the same." in text(bea.post(address, sent))
