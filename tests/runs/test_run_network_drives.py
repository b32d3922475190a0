"""Drives that other machines reach: exported to those whose workers need them, as long as they do."""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from machines.models import Machine
from runs.desired import desired_load
from runs.launch import features_needed
from runs.models import Assignment, DriveExport
from tests import factories
from tests.runs.drives import document_with, local, ref, submitted
from tests.support.gangs import CRASH, ended, replaced, tell

pytestmark = pytest.mark.django_db


def exports(gang, rank):
    _, desired = desired_load(gang.members[rank].machine_id)
    return [(each.path, each.client, each.read_only) for each in desired.exports]


def test_a_drive_that_other_machines_reach_is_exported_to_them_while_they_need_it(house, machines):
    local(house, "scratch", "gpu-02", reach="network")
    document = document_with(ref("scratch", read_only=False, sub_path="runs/7"), machines=2)
    gang = replaced(submitted(house, document))
    there, here = gang.members
    assert [member.machine.name for member in gang.members] == ["gpu-01", "gpu-02"]

    own = {
        "drive": "scratch",
        "source": "/srv/scratch",
        "mount_path": "/data/scratch",
        "read_only": False,
        "sub_path": "runs/7",
    }
    assert (here.launch["mounts"], here.launch["network_mounts"]) == ([own], [])
    over = own | {"machine": "gpu-02", "address": here.machine.address}
    assert (there.launch["mounts"], there.launch["network_mounts"]) == ([], [over])
    assert features_needed(there.launch) >= {"network_drives"}
    assert exports(gang, 1) == [("/srv/scratch", there.machine.address, False)]
    assert exports(gang, 0) == []

    before = desired_load(here.machine_id)[0]
    gang.end(0, CRASH)
    assert exports(gang, 1) == []
    assert not DriveExport.objects.exists()
    assert desired_load(here.machine_id)[0] > before, "its agent is told"


def test_a_drive_is_exported_for_reading_where_it_is_only_read(house, machines):
    local(house, "scratch", "gpu-02", reach="network")
    gang = replaced(submitted(house, document_with(ref("scratch"), machines=2)))

    assert exports(gang, 1) == [("/srv/scratch", gang.members[0].machine.address, True)]


def test_a_drive_that_others_reach_binds_no_worker_to_its_machine(house, machines):
    local(house, "scratch", "gpu-02", reach="network")
    local(house, "models", "gpu-01")
    [member] = replaced(submitted(house, document_with(ref("scratch"), ref("models")))).members

    assert member.machine.name == "gpu-01"
    assert [mount["drive"] for mount in member.launch["network_mounts"]] == ["scratch"]


def test_workers_that_go_together_lock_all_exporting_machines_at_once(house, machines):
    """One after the other, two reports could each wait for the other's machines."""
    factories.machine_make(house, "gpu-03")
    local(house, "pin", "gpu-02")
    local(house, "low", "gpu-01", reach="network")
    local(house, "high", "gpu-03", reach="network")
    gangs = [
        replaced(submitted(house, document_with(ref("pin"), ref(name), name=name, gpus=4)))
        for name in ("high", "low")
    ]
    leaving = [gang.members[0] for gang in gangs]
    assert {member.machine.name for member in leaving} == {"gpu-02"}

    with CaptureQueriesContext(connection) as queries:
        tell(leaving[0].machine, *(ended(member, CRASH) for member in leaving))

    lock = r'FROM "machines_machine" .*"id" IN \(([\d, ]+)\).* FOR UPDATE'
    locks = [found[1] for each in queries if (found := re.search(lock, each["sql"]))]
    names = ("gpu-01", "gpu-02", "gpu-03")
    of_all = set(Machine.objects.filter(name__in=names).values_list("id", flat=True))
    assert {int(each) for each in locks[0].split(",")} == of_all
    assert Assignment.objects.held().count() == 0
