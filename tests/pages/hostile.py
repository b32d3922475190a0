"""The worst that people and machines may write, written everywhere where they may write something.

Names keep to their rules and are as long as those allow. Free text is HTML that would run a script, with quotes that
would end an attribute, zero-width and combining marks, an emoji, one unbroken word as long as the field allows, and
letters that run from right to left.
"""

import json
import re
from datetime import timedelta
from typing import Any

from django.utils import timezone

from machines.models import (
    Cluster,
    DataVolume,
    Fabric,
    Gpu,
    HealthEvent,
    HealthOverride,
    Machine,
    MachineLabel,
    Pool,
    RdmaPort,
)
from machines.states import RACK_LABEL, Health
from runs.events import run_note
from runs.models import Assignment, MachineFailure, MetricSample, Run, Worker, WorkerEvent
from runs.states import Fault
from tenancy.models import Organization, RegistryCredential, Secret, User, Workspace
from tenancy.services import token_create
from tests import factories as make
from tests.pages import scenes

BEGIN = "<b data-hurt>'\"&amp;"
END = "שלום"
RUNS = ("ddp-resnet50", "llm-7", "eval-3", "tune-9")
STORES = ("hf", "ngc", "imagenet")

LOG = (
    "<script>document.body.dataset.hurt = 1</script><b data-hurt>bold</b>\n"
    "\x1b[31mred \x1b]8;;javascript:alert(1)\x07link\x1b]8;;\x07 \x1b[2J\x1b[?1049h\x1b]0;title\x07\n"
    "abc\u202edcba\u2066\u2067\u061c zero\u200bwidth e\u0301\u0302\u0303\u0304 👩🏽‍🚀\n"
    + "W" * 9000
    + "".join(f"\r{percent}%" for percent in range(100))
    + "\nTraceback (most recent call last): \x00\x01\x7f\u2028\u2029\n"
).encode() + b"\xff\xfe\xc3 not UTF-8\n"


def evil(longest: int) -> str:
    """Text of exactly this length that does all that it can."""
    script = '<img src=x onerror="document.body.dataset.hurt=1"></title></script><script>alert(1)</script>'
    words = f"{BEGIN}{script if longest > 130 else ''}e\u0301\u0302\u200b👩‍🚀{{% x %}}"
    words = words if len(words) + len(END) <= longest else BEGIN
    return f"{words}{'W' * (longest - len(words) - len(END))}{END}"


LONG = {
    **{name: f"{name}-{'w' * (51 - len(name))}" for name in RUNS},
    "h100": f"h100-{'w' * 35}",
    **{name: f"{name}-{'w' * (62 - len(name))}" for name in ("ib-a", *STORES)},
    **{f"gpu-0{n}": f"gpu-0{n}-{'w' * 56}" for n in range(1, 7)},
}
"""Name → the same, as long as it may be."""
_NAMED = re.compile(rf"(?<=[/=])({'|'.join(LONG)})(?=-0$|[/?]|$)")


def address_of(address: str) -> str:
    """The same page with its long names."""
    return _NAMED.sub(lambda found: LONG[found[1]], address)


def hostile_cluster(house: make.House) -> None:
    """`scenes.busy_cluster` whose people and machines are all hostile."""
    Pool.objects.filter(id=house.pool.id).update(slug=LONG["h100"])
    runs = scenes.busy_cluster(house, LONG.__getitem__)
    for store in STORES:
        _renamed(store)
    Fabric.objects.filter(name="ib-a").update(name=LONG["ib-a"])
    for kind in (Organization, Workspace, Cluster, Pool):
        kind.objects.update(name=evil(100))
    User.objects.filter(id=house.vic.id).update(username=f"vic-{'w' * 140}@שלום")
    token_create(
        user=house.ana,
        organization=house.organization,
        workspace=house.workspace,
        role="editor",
        name=evil(60),
    )
    _machines()
    _runs(house, runs)


def _renamed(store: str) -> None:
    for kind in (Secret, RegistryCredential, DataVolume):
        kind.objects.filter(name=store).update(name=LONG[store], changed_by=evil(200))


def _machines() -> None:
    """What agents report of machines, and what people note at them."""
    now = timezone.now()
    said = {"health": Health.SUSPECT, "evidence": evil(300), "reported_evidence": evil(300)}
    Machine.objects.update(
        kernel=evil(120),
        agent_version=evil(40),
        boot_id=evil(64),
        address=evil(64),
        limits=[evil(500)],
        checks=[{"what": evil(40), "verdict": "wrong", "found": evil(500), "fix": evil(500)}],
        hardware={"host": _host(), "split_gpus": [_split()]},
        mesh_flaw=evil(300),
        cordoned_by=evil(200),
        cordon_reason=evil(200),
        **said,
    )
    Machine.objects.filter(name=LONG["gpu-04"]).update(cordoned_at=now)
    Gpu.objects.update(product=evil(128), nvlink_domain=evil(80), pci_bus=evil(32), **said)
    Gpu.objects.filter(model="A100").update(model=evil(60))
    RdmaPort.objects.update(state=evil(32), netdev=evil(32), guid=evil(40), gids=[evil(64)], **said)
    RdmaPort.objects.filter(device="mlx5_0").update(device=evil(64))
    MachineLabel.objects.filter(key=RACK_LABEL, value="r2").update(value=evil(63))
    for machine in Machine.objects.all():
        MachineLabel.objects.create(machine=machine, key=evil(253), value=evil(63), found=True)
        MachineLabel.objects.create(machine=machine, key="set", value="w" * 63, set_by=evil(200), set_at=now)
        told = {"subject": "machine", "health": Health.SUSPECT}
        HealthEvent.objects.create(
            machine=machine, event_id="1", at=now, name=evil(100), was="healthy", evidence=evil(300), **told
        )
        HealthOverride.objects.create(
            machine=machine,
            reason=evil(200),
            set_by=evil(200),
            set_at=now,
            until=now + timedelta(hours=1),
            **told,
        )


def _host() -> dict[str, Any]:
    return {
        "cpu_product": evil(128),
        "sockets": 2,
        "numa_nodes": [{"node": 0, "cpus": evil(1000), "memory_bytes": 1}],
        "disks": [{"name": evil(64), "size_bytes": 1, "kind": "ssd", "product": evil(128)}],
        "system": evil(128),
        "driver_version": evil(40),
        "cuda_version": evil(20),
        "container_toolkit": evil(40),
    }


def _split() -> dict[str, Any]:
    instance = {"uuid": evil(96), "product": evil(128), "memory_bytes": 1}
    return {"index": 9, "product": evil(128), "pci_bus": evil(32), **instance, "instances": [instance]}


def _runs(house: make.House, runs: dict[str, Run]) -> None:
    """What runs ask for and what their workers say."""
    ended = {"kind": "not_prepared", "message": evil(500), "cause": evil(300), "code": None}
    for run in runs.values():
        document = run.document
        document["metadata"]["labels"] = {f"{'k' * 63}{n}"[-63:]: "v" * 63 for n in range(8)}
        document["spec"]["task_template"] |= {"env": {"E" * 255: evil(3000)}, "args": [evil(3000)]}
        Run.objects.filter(id=run.id).update(
            document=document, submitted=json.dumps(document), labels=document["metadata"]["labels"]
        )
        run_note(run, {"code": "failed", "worker": f"{run.name}-0", "machine": LONG["gpu-01"], "exit": ended})
    for assignment in Assignment.objects.select_related("machine", "attempt__run"):
        assignment.detail = evil(300)
        assignment.launch = assignment.launch | {"env": {"E" * 255: evil(3000)}}
        assignment.save()
        make.log_write(assignment, LOG)
        for step in (0, 50):
            MetricSample.objects.create(assignment=assignment, name=evil(64), step=step, value=1.5)
        MachineFailure.objects.create(
            machine=assignment.machine,
            workspace=house.workspace,
            run=assignment.attempt.run,
            run_name=assignment.attempt.run.name,
            kind=Fault.PREPARE,
            at=timezone.now(),
            text=evil(500),
        )
    failed = runs["eval-3"]
    reason = failed.reason | {"exit": ended}
    Run.objects.filter(id=failed.id).update(reason=reason)
    for worker in Worker.objects.filter(run=failed):
        told = {"code": "exited", "machine": LONG["gpu-01"], "exit": ended}
        Worker.objects.filter(id=worker.id).update(reason=told)
        WorkerEvent.objects.create(
            worker=worker, at=timezone.now(), attempt_no=1, state="Failed", reason=told
        )
