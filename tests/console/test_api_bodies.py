"""Bodies and addresses as broken or hostile clients send them: told in problem+json, all mistakes at once."""

import json

import pytest

from tests import factories

pytestmark = pytest.mark.django_db
API = "/api/v1/o/acme/w/vision"
RUN = f"{API}/runs/ddp-resnet50"
MACHINE = "/api/v1/o/acme/clusters/main/machines/gpu-01"
PROBLEM = "application/problem+json"


@pytest.fixture
def owner(house, api):
    factories.run_pending(house)
    factories.machine_make(house, "gpu-01")
    return api(house.ana)


def change(client, body: bytes | str, kind="application/json"):
    answer = client.generic("PATCH", RUN, data=body, content_type=kind)
    assert answer.status_code == 200 or answer.headers["Content-Type"] == PROBLEM
    return answer


def told(answer) -> list[tuple[str, str]]:
    assert answer.status_code == 422
    return [(error["path"], error["message"]) for error in answer.json()["errors"]]


@pytest.mark.parametrize(
    ("body", "path", "message"),
    [
        ("", "", "The document is empty."),
        ("{", "", "This is not JSON: Expecting property name enclosed in double quotes in line 1, column 2."),
        ("[]", "", "The body must be an object."),
        ('"x"', "", "The body must be an object."),
        ("null", "", "The body must be an object."),
        (b"\xff", "", "The text is not UTF-8 at byte 1. Save it as UTF-8."),
        ("[" * 200_00, "", "The document is nested too deeply."),
        ('{"specs": {}}', "specs", "`specs` is not a field here; did you mean `spec`?"),
        ('{"a": 1}', "a", "`a` is not a field here. Fields here: `metadata`, `spec`."),
        (
            '{"metadata": {"label": {}}}',
            "metadata.label",
            "`label` is not a field here; did you mean `labels`?",
        ),
        ('{"spec": {"priority": "5"}}', "spec.priority", "`priority` must be a whole number."),
        ('{"spec": {"priority": true}}', "spec.priority", "`priority` must be a whole number."),
        (
            '{"spec": {"priority": 1001}}',
            "spec.priority",
            "`priority`: Input should be less than or equal to 1000.",
        ),
        (f'{{"spec": {{"priority": {"9" * 5000}}}}}', "spec.priority", "This number is too large to be meant."),
        (
            '{"spec": {"priority": NaN}}',
            "spec.priority",
            "NaN and infinite numbers are no JSON. Write an ordinary number.",
        ),
        (
            '{"spec": {"priority": 1, "priority": 2}}',
            "spec.priority",
            "`priority` stands here more than once. Keep one of them.",
        ),
        ('{"metadata": {"labels": {"a": 5}}}', "metadata.labels.a", "`a` must be text."),
        (
            '{"metadata": {"labels": {"a": "\\u0000"}}}',
            "metadata.labels.a",
            "This text has a NUL character (\\u0000). Remove it.",
        ),
    ],
)  # fmt: skip
def test_a_small_body_that_is_wrong(owner, body, path, message):
    assert told(change(owner, body)) == [(path, message)]


def test_a_label_that_turns_text_around(owner):
    [(path, message)] = told(change(owner, json.dumps({"metadata": {"labels": {"a": "x\u202ey"}}})))

    assert path == "metadata.labels.a"
    assert "`x\\u202ey` is not a label's value." in message


def test_all_mistakes_at_once(owner):
    body = '{"metadata": {"labels": {"-": "x", "b": "-"}}, "spec": {"priority": 1.5, "colour": 1}}'

    assert [path for path, _ in told(change(owner, body))] == [
        'metadata.labels["-"]',
        "metadata.labels.b",
        "spec.priority",
        "spec.colour",
    ]


def test_nested_deeply_but_readable(owner):
    deep = '{"metadata": {"labels": ' + '{"a": ' * 40 + "1" + "}" * 40 + "}}"
    assert "Nothing here is nested more than 32 levels deep." in [
        message for _, message in told(change(owner, deep))
    ]


@pytest.mark.parametrize(
    ("reason", "status"),
    [("changing a cable", 200), ("", 200), ("a\u202eb", 422), ("a\nb", 422), ("x" * 201, 422)],
)
def test_a_reason_is_one_plain_line(owner, reason, status):
    answer = owner.generic(
        "POST", f"{MACHINE}/cordon", data=json.dumps({"reason": reason}), content_type="application/json"
    )
    assert answer.status_code == status


def test_an_optional_body_may_be_left_out(owner):
    assert owner.post(f"{MACHINE}/cordon").status_code == 200
    assert owner.post(f"{MACHINE}/drain").status_code == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "application/xml", "json"]
)
def test_another_content_type(owner, kind):
    assert change(owner, b"{}", kind).status_code == 415


def test_a_charset_is_no_other_content_type(owner):
    assert change(owner, b"{}", "application/JSON; charset=utf-8").status_code == 200


def test_a_small_body_of_over_64_kib(owner):
    answer = change(owner, b" " * (64 * 1024 + 1))

    assert (answer.status_code, answer.json()["detail"]) == (413, "The body is over 64 KiB.")


@pytest.mark.parametrize("accept", ["text/html", "application/yaml", "image/*"])
def test_another_form_than_json_is_not_there(owner, accept):
    answer = owner.get(RUN, headers={"accept": accept})

    assert (answer.status_code, answer.headers["Content-Type"]) == (406, PROBLEM)
    assert answer.json()["errors"] == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", RUN),
        ("PUT", f"{API}/runs"),
        ("TRACE", RUN),
        ("OPTIONS", RUN),
        ("GET", f"{RUN}/stop"),
        ("POST", "/api/schema"),
        ("DELETE", "/api/schema/run"),
        ("PUT", "/api/docs"),
    ],
)
def test_a_method_that_the_address_does_not_take(owner, method, path):
    answer = owner.generic(method, path)

    assert (answer.status_code, answer.headers["Content-Type"]) == (405, PROBLEM)
    assert answer.headers["Allow"]
    assert method not in answer.headers["Allow"].split(", ")


@pytest.mark.parametrize(
    "path", ["/api", "/api/", "/api/v2/x", "/api/v1", f"{API}/runs/", f"{API}/runs/a/b/c", "/api/schemas"]
)
def test_an_address_that_leads_nowhere(owner, path):
    answer = owner.get(path)

    assert (answer.status_code, answer.headers["Content-Type"]) == (404, PROBLEM)


def test_an_address_is_told_back_without_what_turns_text_around(owner):
    answer = owner.get("/api/v1/%E2%80%AE%1B")

    assert answer.json()["detail"] == "The API has no /api/v1/\\u202e\\u001b. /api/schema lists what it has."


@pytest.mark.parametrize("number", ["0", "99999999999999999999", "9" * 5000])
def test_a_token_s_number_that_no_token_has(owner, number):
    assert owner.get(f"{API}/tokens/{number}").status_code == 404
