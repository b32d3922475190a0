"""Signing in: with a password, by the demo's link, and what those who are not signed in get."""

import time

import pytest
from django.core import signing
from django.test import Client

from tests.factories import PASSWORD

RUNS = "/o/acme/w/vision/jobs"


def demo_link(user):
    return f"/demo-login/{signing.TimestampSigner(salt='demo-login').sign(str(user.id))}"


def test_a_password_leads_to_the_runs(house):
    client = Client()
    answer = client.post("/accounts/login/", {"login": "bea", "password": PASSWORD}, follow=True)
    assert answer.redirect_chain == [("/", 302), (RUNS, 302)]
    assert "No runs yet." in answer.content.decode()


def test_an_e_mail_address_does_too(house):
    answer = Client().post("/accounts/login/", {"login": "bea@example.com", "password": PASSWORD})
    assert (answer.status_code, answer["Location"]) == (302, "/")


def test_a_wrong_password_says_so_and_keeps_the_name(house):
    answer = Client().post("/accounts/login/", {"login": "bea", "password": "wrong"})
    page = answer.content.decode()
    assert "<title>Error: Sign in · Astraeus</title>" in page
    assert 'value="bea"' in page
    assert "are not correct" in page


def test_nobody_can_sign_up(house):
    assert Client().get("/accounts/signup/").status_code == 404


@pytest.mark.parametrize("address", ["/", RUNS, f"{RUNS}/new", "/o/acme/clusters/main/machines"])
def test_who_is_not_signed_in_is_sent_there_and_back(house, address):
    answer = Client().get(address)
    assert (answer.status_code, answer["Location"]) == (302, f"/accounts/login/?next={address}")


def test_a_fragment_for_nobody_is_401_and_no_page(house):
    answer = Client().get(RUNS, headers={"HX-Request": "true"})
    assert (answer.status_code, answer.content) == (401, b"You were signed out.")


def test_signing_out_needs_a_press(bea):
    assert "Sign out?" in bea.get("/accounts/logout/").content.decode()
    assert bea.get(RUNS).status_code == 200
    bea.post("/accounts/logout/")
    assert bea.get(RUNS).status_code == 302


def test_the_password_can_be_changed(bea, house):
    new = "another-long-password"
    bea.post("/accounts/password/change/", {"oldpassword": PASSWORD, "password1": new, "password2": new})
    house.bea.refresh_from_db()
    assert house.bea.check_password(new)


def test_the_demos_link_signs_in(house, settings):
    settings.DEMO_LOGIN = True
    client = Client()
    assert client.get(demo_link(house.bea))["Location"] == "/"
    assert client.get(RUNS).status_code == 200


def test_the_demos_link_is_nothing_elsewhere(house, settings):
    settings.DEMO_LOGIN = False
    assert Client().get(demo_link(house.bea)).status_code == 404


def test_the_demos_link_ends_after_twelve_hours(house, settings, monkeypatch):
    settings.DEMO_LOGIN = True
    link = demo_link(house.bea)
    later = time.time() + 12 * 3600 + 60
    monkeypatch.setattr("django.core.signing.time.time", lambda: later)
    assert Client().get(link).status_code == 404


@pytest.mark.parametrize("token", ["x", "1:x:y", "%00"])
def test_a_forged_link_is_nothing(house, settings, token):
    settings.DEMO_LOGIN = True
    assert Client().get(f"/demo-login/{token}").status_code == 404


def test_the_theme_is_kept_in_a_cookie_and_drawn_by_the_server(bea):
    answer = bea.post("/theme", {"theme": "dark", "next": RUNS})
    assert answer["Location"] == RUNS
    assert '<html lang="en" data-theme="dark">' in bea.get(RUNS).content.decode()
    bea.post("/theme", {"theme": "", "next": RUNS})
    assert '<html lang="en">' in bea.get(RUNS).content.decode()


def test_the_theme_leads_to_no_other_host(bea):
    assert bea.post("/theme", {"theme": "dark", "next": "https://elsewhere.example/"})["Location"] == "/"


def test_home_remembers_the_workspace(ana, house):
    from tenancy.models import Workspace

    Workspace.objects.create(organization=house.organization, slug="audio", name="Audio")
    assert ana.get("/")["Location"] == "/o/acme/w/audio/jobs"
    ana.get(RUNS)
    assert ana.get("/")["Location"] == RUNS


def test_a_member_without_a_workspace_sees_machines(house):
    from tenancy.models import Membership
    from tests.pages.conftest import signed_in

    Membership.objects.filter(user=house.vic).delete()
    assert signed_in(house.vic).get("/")["Location"] == "/o/acme/clusters/main/machines"


def test_someone_new_is_told_whom_to_ask(db):
    from tests.factories import user_make
    from tests.pages.conftest import signed_in

    assert "You belong to no workspace yet." in signed_in(user_make("dan")).get("/").content.decode()
