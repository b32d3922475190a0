"""Secrets that runs name: checked when they are submitted, read when a machine asks, never stored in clear."""

import json
from typing import Any

import pytest
from django.db import connection

from common.errors import Invalid
from runs.desired import desired_load
from runs.explanations import explanation_of
from runs.models import Assignment, Run
from runs.presentation import run_present, run_reason, runs_for_display
from runs.scheduling.passes import cluster_pass
from runs.services import run_submit
from runs.states import WaitKind
from runs.stores import Needs, stores_lacking, stores_of
from tenancy.registries import credential_create, credential_remove
from tenancy.secrets import secret_change, secret_create, secret_find, secret_remove
from tests import factories
from tests.support.gangs import CRASH, SUCCESS, Gang, back_off_over, placed, replaced
from wire.assignments import RegistryLogin
from wire.spec import validate_document

pytestmark = pytest.mark.django_db
VALUE = "hf_the-value-of-it"


@pytest.fixture
def ana(house):
    return factories.actor_of(house.ana)


@pytest.fixture
def secret(house, ana):
    return secret_create(workspace=house.workspace, name="hf", value=VALUE, actor=ana)


def document_with(*refs: dict[str, str], name: str = "reader", **template) -> dict[str, Any]:
    document = factories.document_make(name, gpus=8, machines=1)
    document["spec"]["task_template"] |= {"secret_refs": list(refs), **template}
    return document


VARIABLE = {"name": "hf", "env": "HF_TOKEN"}
FILE = {"name": "hf", "mount_path": "/run/secrets/hf"}


def submitted(house, document) -> Gang:
    return Gang(factories.run_pending(house, document=document))


def errors_of(house, bea, document) -> list[tuple[str, str, str]]:
    with pytest.raises(Invalid) as refused:
        run_submit(workspace=house.workspace, actor=bea, text=json.dumps(document))
    return [(each.path, each.code, each.message) for each in refused.value.errors]


# --- Submission --------------------------------------------------------------------------------------


def test_a_secret_that_is_not_there(house, bea, secret):
    document = document_with({"name": "hff", "env": "A"}, {"name": "none-such", "env": "B"}, VARIABLE)

    assert errors_of(house, bea, document) == [
        (
            "spec.task_template.secret_refs[0].name",
            "unknown_secret",
            "vision has no secret `hff`; did you mean `hf`? An admin adds secrets on the Workspace page.",
        ),
        (
            "spec.task_template.secret_refs[1].name",
            "unknown_secret",
            "vision has no secret `none-such`. An admin adds secrets on the Workspace page.",
        ),
    ]


def test_a_secret_of_another_workspace_is_none(house, bea, ana):
    other = house.cyd.memberships.get().workspace
    secret_create(workspace=other, name="hf", value=VALUE, actor=ana)

    [(_, code, _)] = errors_of(house, bea, document_with(VARIABLE))
    assert code == "unknown_secret"


def test_registry_credentials_are_for_the_registry_of_the_image(house, bea, ana):
    order = {"workspace": house.workspace, "username": "me", "secret": "its-password", "actor": ana}
    credential_create(name="hub", registry="docker.io", **order)
    credential_create(name="ngc", registry="nvcr.io", **order)

    assert errors_of(house, bea, document_with(registry_credential="hub")) == [
        (
            "spec.task_template.registry_credential",
            "credential_registry",
            (
                "The registry credential `hub` is for docker.io, but the image comes from nvcr.io. "
                "Name another one, or leave it out."
            ),
        )
    ]
    [(path, code, _)] = errors_of(house, bea, document_with(registry_credential="gcr"))
    assert (path, code) == ("spec.task_template.registry_credential", "unknown_credential")
    assert submitted(house, document_with(registry_credential="ngc")).fresh.state == "Pending"


# --- Delivery ----------------------------------------------------------------------------------------


def test_only_the_worker_s_own_machine_gets_the_value(house, machines, secret):
    gang = replaced(submitted(house, document_with(VARIABLE, FILE)))
    [member] = gang.members
    [other] = [machine for machine in machines if machine.id != member.machine_id]

    [assignment] = desired_load(member.machine_id)[1].assignments
    assert [(each.name, each.env, each.path, each.value) for each in assignment.secrets] == [
        ("hf", "HF_TOKEN", None, VALUE),
        ("hf", None, "/run/secrets/hf", VALUE),
    ]
    assert desired_load(other.id)[1].assignments == ()
    assert VALUE not in repr(assignment)


def test_workers_that_start_on_their_own_get_it_too(house, machines, secret):
    document = factories.document_make(
        "alone", gpus=16, machines=2, start="Independent", on_failure="FailJob"
    )
    document["spec"]["task_template"]["secret_refs"] = [VARIABLE]
    document["spec"]["task_template"]["requested_resources"]["topology"] = {}
    submitted(house, document)
    cluster_pass(house.cluster.id)

    for machine in machines:
        [assignment] = desired_load(machine.id)[1].assignments
        assert [each.value for each in assignment.secrets] == [VALUE]


def test_the_value_is_stored_nowhere_and_shown_nowhere(house, machines, secret):
    gang = replaced(submitted(house, document_with(VARIABLE))).start()
    gang.end(0, SUCCESS)
    gang.advance()

    assert tables_with(VALUE) == []
    run = runs_for_display(Run.objects.filter(id=gang.run.id)).get()
    assert VALUE not in json.dumps(run_present(run), default=str)
    assert Assignment.objects.get().launch["secrets"] == [
        {"name": "hf", "env": "HF_TOKEN", "path": None, "value": None}
    ]


def tables_with(text: str) -> list[str]:
    """Tables of the database of which any row has the text, or its bytes."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        tables = [name for (name,) in cursor.fetchall()]
        found = []
        for table in tables:
            sought = [f"%{text}%", f"%{text.encode().hex()}%"]
            cursor.execute(f'SELECT count(*) FROM "{table}" t WHERE t::text LIKE ANY(%s)', [sought])
            if cursor.fetchone()[0]:
                found.append(table)
    return found


def test_the_search_of_all_tables_finds_what_is_there(house, machines):
    gang = placed(house)
    factories.log_write(gang.members[0], b"it printed a-token-unmasked")

    assert tables_with("bea@example.com") == ["tenancy_user"]
    assert tables_with("a-token-unmasked") == ["runs_logchunk"]


def test_a_worker_that_is_stopped_gets_no_value_any_more(house, machines, secret):
    gang = replaced(submitted(house, document_with(VARIABLE))).start()
    Assignment.objects.update(phase="stop")

    [assignment] = desired_load(gang.members[0].machine_id)[1].assignments
    assert [each.value for each in assignment.secrets] == [None]


def test_the_next_attempt_gets_the_new_value(house, machines, secret, ana):
    gang = replaced(submitted(house, document_with(VARIABLE)))
    secret_change(secret=secret, value="another-value-of-it", actor=ana)

    [assignment] = desired_load(gang.members[0].machine_id)[1].assignments
    assert [each.value for each in assignment.secrets] == ["another-value-of-it"]


def test_a_secret_that_goes_before_the_worker_is_prepared_is_withheld(house, machines, secret, ana):
    gang = replaced(submitted(house, document_with(VARIABLE)))
    secret_remove(secret=secret, actor=ana)

    desired = desired_load(gang.members[0].machine_id)[1]
    assert [each.value for each in desired.assignments[0].secrets] == [None]
    assert desired.withheld()


def test_machines_get_the_registry_credential_and_no_table_has_its_password(house, machines, ana):
    order = {"workspace": house.workspace, "username": "robot", "actor": ana}
    credential = credential_create(name="ngc", registry="nvcr.io", secret="a-password-of-nvcr", **order)
    gang = replaced(submitted(house, document_with(registry_credential="ngc")))

    [assignment] = desired_load(gang.members[0].machine_id)[1].assignments
    assert assignment.registry == RegistryLogin(
        name="ngc", registry="nvcr.io", username="robot", password="a-password-of-nvcr"
    )
    assert assignment.stored().registry.password is None
    assert tables_with("a-password-of-nvcr") == []

    credential_remove(credential=credential, actor=ana)
    [assignment] = desired_load(gang.members[0].machine_id)[1].assignments
    assert assignment.withheld() == "the registry credential ngc"


# --- Waiting -----------------------------------------------------------------------------------------


def test_a_run_whose_secret_is_gone_waits_with_the_reason(house, machines, secret, ana):
    gang = submitted(house, document_with(VARIABLE))
    other = submitted(house, factories.document_make("other", gpus=8, machines=1))
    secret_remove(secret=secret, actor=ana)
    cluster_pass(house.cluster.id)

    run = gang.fresh
    assert (run.state, run.wait_kind, run.queue_position) == ("Pending", WaitKind.POLICY, None)
    assert run_reason(run) == (
        "The secret hf is gone from the workspace. An admin can add it again; or edit the run."
    )
    assert [(wait.kind, wait.cause) for wait in run.waits.all()] == [("policy", "secret_gone")]
    assert other.fresh.state == "Starting", "nobody waits behind it"

    secret_create(workspace=house.workspace, name="hf", value=VALUE, actor=ana)
    replaced(gang)
    assert [(wait.cause, wait.until is None) for wait in run.waits.all()] == [("secret_gone", False)]


def test_its_explanation_says_so_too(house, machines, secret, ana):
    gang = submitted(house, document_with(VARIABLE))
    secret_remove(secret=secret, actor=ana)
    cluster_pass(house.cluster.id)

    explained = explanation_of(gang.fresh)
    assert (explained["kind"], explained["cause"]) == ("policy", "secret_gone")
    assert explained["headline"].startswith("The secret hf is gone from the workspace.")


def test_a_restart_waits_as_well(house, machines, secret, ana):
    document = document_with(VARIABLE)
    document["spec"]["on_failure"] = "RestartJob"
    gang = replaced(submitted(house, document)).start()
    secret_remove(secret=secret_find(house.workspace, "hf"), actor=ana)
    gang.end(0, CRASH)
    gang.advance()
    back_off_over(gang)
    cluster_pass(house.cluster.id)

    assert gang.fresh.wait_kind == WaitKind.POLICY
    assert gang.fresh.attempt_no == 1


def test_runs_without_secrets_cost_no_query(house, machines, django_assert_num_queries):
    stores = stores_of(validate_document(placed(house).run.document))
    with django_assert_num_queries(0):
        assert stores_lacking(house.cluster.id, {1: Needs(house.workspace.id, stores)}) == {}
