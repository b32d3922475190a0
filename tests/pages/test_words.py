"""Requests and counts in words."""

from console.pages.words import request_words
from console.templatetags.astraeus import coarse, lower_first
from tests.factories import document_make
from wire.spec import validate_document


def words(document):
    return request_words(validate_document(document))


def resources(document):
    return document["spec"]["task_template"]["requested_resources"]


def test_the_references_request():
    assert words(document_make()) == [
        "16 GPUs",
        "exactly 2 machines",
        "H100, only healthy GPUs",
        "InfiniBand, at least 400 Gb/s",
        "one fabric",
        "12 cores and 100 GiB with each GPU",
    ]


def test_machines_left_open_and_in_a_range():
    document = document_make()
    del resources(document)["machines"]
    assert words(document)[1] == "Astraeus chooses the machines"
    resources(document)["topology"] = {"min_nodes": 2, "max_nodes": 4}
    assert words(document)[1] == "2 to 4 machines"


def test_a_run_without_gpus():
    document = document_make()
    document["spec"]["task_template"]["requested_resources"] = {}
    assert words(document) == ["no GPU", "1 core and 2 GiB each"]


def test_groups_are_told_one_by_one():
    document = document_make()
    template = document["spec"].pop("task_template")
    small = {**template, "requested_resources": {"cpu_cores": 4}}
    document["spec"]["worker_groups"] = [
        {"name": "trainer", "task_template": template},
        {"name": "loader", "task_template": small},
    ]
    assert words(document)[0] == "16 GPUs"
    assert words(document)[1].startswith("trainer: 16 GPUs, exactly 2 machines, H100")
    assert words(document)[2] == "loader: no GPU, 4 cores and 2 GiB each"


def test_ages_have_one_unit_but_hours_have_minutes():
    assert [coarse(each) for each in (-5, 41, 750, 5400, 200_000)] == [
        "0 s",
        "41 s",
        "12 min",
        "1 h 30 min",
        "2 d",
    ]


def test_titles_inside_sentences():
    assert [lower_first(each) for each in ("Rack", "NVLink domain")] == ["rack", "NVLink domain"]
