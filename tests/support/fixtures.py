"""What the tests of the console's core share: a house with two machines, and a Redis without leftovers."""

from pathlib import Path

import pytest
from django.conf import settings as django_settings
from rest_framework.test import APIClient

from common import nudge
from tests import factories
from tests.support.gangs import Gang, placed

__all__ = ["api", "bea", "empty_redis", "gang", "house", "machines", "running", "static_root"]

QUEUES = ("place", "react", "bulk")


@pytest.fixture(scope="session", autouse=True)
def static_root():
    """whitenoise warns when nothing was collected, and a warning is an error here."""
    Path(django_settings.STATIC_ROOT).mkdir(parents=True, exist_ok=True)


@pytest.fixture(autouse=True)
def empty_redis():
    """Nothing of ours from an earlier test: neither nudges nor queued tasks."""
    redis = nudge.client()
    for key in [*redis.scan_iter("astraeus:*"), *QUEUES]:
        redis.delete(key)
    return redis


@pytest.fixture
def house(db) -> factories.House:
    return factories.house_make()


@pytest.fixture
def machines(house):
    """gpu-01 and gpu-02: 8 H100s each, one rack, one InfiniBand fabric."""
    return [factories.machine_make(house, name) for name in ("gpu-01", "gpu-02")]


@pytest.fixture
def bea(house):
    """The editor, as services see her."""
    return factories.actor_of(house.bea)


@pytest.fixture
def gang(house, machines) -> Gang:
    """The reference's run, placed on both machines; nobody is ready yet."""
    return placed(house)


@pytest.fixture
def running(gang: Gang) -> Gang:
    """The reference's run, running on both machines."""
    return gang.start()


@pytest.fixture
def api():
    """An API client of a person: `api(user).get(…)`."""

    def client(user=None) -> APIClient:
        made = APIClient()
        if user is not None:
            made.force_login(user, backend="allauth.account.auth_backends.AuthenticationBackend")
        return made

    return client
