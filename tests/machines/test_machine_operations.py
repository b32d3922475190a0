"""What operators do with machines: what is done twice at once is done once."""

import pytest

from common.errors import NotFound
from machines.models import Machine
from machines.operations import machine_remove, machine_rename
from tenancy.models import AuditEvent
from tests import factories

pytestmark = pytest.mark.django_db


def test_a_machine_that_was_removed_meanwhile_is_neither_removed_again_nor_renamed(house):
    ana = factories.actor_of(house.ana)
    machine = factories.machine_make(house, "gpu-01")
    also = Machine.objects.get(id=machine.id)
    machine_remove(machine=machine, actor=ana)
    done = AuditEvent.objects.count()

    with pytest.raises(NotFound, match=r"gpu-01 was removed\."):
        machine_remove(machine=also, actor=ana)
    with pytest.raises(NotFound):
        machine_rename(machine=also, name="gpu-02", actor=ana)
    assert AuditEvent.objects.count() == done
    assert not Machine.objects.exists()
