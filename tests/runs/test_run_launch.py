"""What a launch carries of the run's document, for the agent."""

import pytest

from runs.desired import desired_load
from runs.launch import features_needed, mounts_of, probes_of, secrets_of
from runs.stores import DriveAt
from tests import factories
from tests.support import gangs
from wire.assignments import HttpTarget, Probe, Probes, Secret
from wire.spec import TaskTemplate

PROBES = {
    "startup": {"exec": {"command": "test", "args": ["-e", "/tmp/up"]}, "period_seconds": 1},
    "liveness": {"http": {"port": 8080, "path": "/health"}, "failure_threshold": 5, "timeout_seconds": 2},
}


def template(**more: object) -> TaskTemplate:
    return TaskTemplate.model_validate({"image": "img", "command": "python", **more})


@pytest.mark.django_db
def test_watching_reaches_the_agent(house, machines):
    task = {
        "probes": PROBES,
        "hang_after_seconds": 600,
        "warn_signal_seconds": 60,
        "time_limit_seconds": 3600,
    }
    document = factories.document_make()
    document["spec"]["task_template"] |= task
    gang = gangs.replaced(gangs.Gang(factories.run_pending(house, document=document)))
    member = gang.members[0]
    _, desired = desired_load(member.machine_id)
    [assignment] = desired.assignments

    assert assignment.probes == Probes(
        startup=Probe(exec=("test", "-e", "/tmp/up"), period_seconds=1, timeout_seconds=5),
        liveness=Probe(http=HttpTarget(port=8080, path="/health"), failure_threshold=5, timeout_seconds=2),
    )
    assert assignment.hang_after_seconds == 600
    assert assignment.warn_signal_seconds == 60
    assert features_needed(member.launch) == {"preflight", "probes", "hang_detection", "warn_signal"}


def test_a_plain_run_needs_nothing_that_an_old_agent_lacks():
    assert probes_of(template()) == {}
    assert features_needed({"probes": {}, "mounts": [], "secrets": [], "hang_after_seconds": None}) == set()


def test_drives_lie_where_the_machine_has_them():
    asked = template(
        datavolume_refs=[
            {"name": "imagenet", "mount_path": "/data"},
            {"name": "scratch", "mount_path": "/out", "read_only": False, "sub_path": "runs/7"},
        ]
    )
    assert mounts_of(asked, {"imagenet": DriveAt("/mnt/a"), "scratch": DriveAt("/mnt/b")}) == [
        {"drive": "imagenet", "source": "/mnt/a", "mount_path": "/data", "read_only": True, "sub_path": ""},
        {
            "drive": "scratch",
            "source": "/mnt/b",
            "mount_path": "/out",
            "read_only": False,
            "sub_path": "runs/7",
        },
    ]
    with pytest.raises(KeyError):
        mounts_of(asked, {"imagenet": DriveAt("/mnt/a")})


def test_secrets_carry_their_values_only_when_they_are_sent():
    asked = template(
        secret_refs=[{"name": "hf", "env": "HF_TOKEN"}, {"name": "key", "mount_path": "/run/key"}]
    )
    stored = secrets_of(asked, {})
    assert stored == (Secret(name="hf", env="HF_TOKEN"), Secret(name="key", path="/run/key"))
    assert secrets_of(asked, {"hf": "hf_value_of_it", "key": "-----"}) == (
        Secret(name="hf", env="HF_TOKEN", value="hf_value_of_it"),
        Secret(name="key", path="/run/key", value="-----"),
    )
    assert "hf_value_of_it" not in repr(secrets_of(asked, {"hf": "hf_value_of_it"}))
