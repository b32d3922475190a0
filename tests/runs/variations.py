"""The user guide's variations of its run, with a cluster that has room for each and one that has not."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from console.local.instance import ROOT
from machines.drives import DriveOrder, drive_create
from machines.models import Fabric, Gpu, Machine, Pool, RdmaPort, WorkspacePool
from tests import factories
from tests.runs.explained import holding


@dataclass(frozen=True)
class Box:
    """A machine. Its RDMA ports are on an InfiniBand fabric or are RoCE; "" for neither."""

    name: str
    gpus: int = 8
    model: str = "H100"
    rack: str | None = "r1"
    rdma: str = "ib-a"
    domain: str = ""
    """Its multi-node NVLink domain."""
    pool: str = "h100"
    held: bool = False
    """All of it, by another run."""


@dataclass(frozen=True)
class Variation:
    """What the guide writes, and what it promises of it."""

    resources: Mapping[str, Any]
    """Fields of `requested_resources` in place of run.json's; None: without the field."""
    room: Sequence[Box]
    machines: Sequence[str]
    """In rank order."""
    network: tuple[str, str]
    """Code and words."""
    no_room: Sequence[Box]
    headline: str
    rows: Mapping[str, str]
    """Without room: machine → why not there."""
    gpus: int = 8
    nodelist: str = "gpu-[01-02]"
    ports: int = 8
    """RDMA ports of every worker; 0: it gets no RDMA devices."""
    imex: bool = False
    cpu_cores: float = 96
    template: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `task_template` besides."""

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((ROOT / "worker_image" / "run.json").read_text())
        template = document["spec"]["task_template"] | dict(self.template)
        asked = template["requested_resources"] | dict(self.resources)
        template["requested_resources"] = {name: value for name, value in asked.items() if value is not None}
        document["spec"]["task_template"] = template
        return document


def boxes(*names: str, **fields: Any) -> list[Box]:
    return [Box(name, **fields) for name in names]


def trays(*names: str, **fields: Any) -> list[Box]:
    """Machines of an NVL72 rack."""
    return boxes(*names, gpus=4, model="GB200", **fields)


def held(name: str, gpus: int = 8) -> str:
    """Why not on that machine, which another run has."""
    return f"0 of {gpus} GPUs free, {gpus} needed; {gpus} held by of-{name}"


FOUR = ("gpu-01", "gpu-02", "gpu-03", "gpu-04")
FREE = "8 of 8 GPUs free"
FREE_4 = "4 of 4 GPUs free"
GB200 = {"count": 8, "models": ["GB200"]}


VARIATIONS: Mapping[str, Variation] = {
    "Let Astraeus choose: two of 8": Variation(
        resources={"machines": None, "gpu_requests": {"count": 16, "min_per_machine": 8}},
        room=boxes("gpu-01", "gpu-02"),
        machines=["gpu-01", "gpu-02"],
        network=("ib_rack", "one rack on one InfiniBand fabric"),
        no_room=[Box("gpu-01"), Box("gpu-02", held=True)],
        headline="2 machines with 8 free GPUs on one fabric are needed; fabric ib-a has 1 (gpu-01).",
        rows={"gpu-01": FREE, "gpu-02": held("gpu-02")},
    ),
    "Let Astraeus choose: one of 16": Variation(
        resources={"machines": None, "gpu_requests": {"count": 16, "min_per_machine": 8}},
        room=[*boxes("gpu-01", "gpu-02"), Box("big-01", gpus=16)],
        machines=["big-01"],
        gpus=16,
        ports=16,
        cpu_cores=192,
        nodelist="big-01",
        network=("one_machine", "one machine"),
        no_room=[Box("gpu-01"), Box("gpu-02", held=True), Box("big-01", gpus=16, held=True)],
        headline=(
            "2 machines with 8 free GPUs on one fabric, or 1 with 16, are needed; fabric ib-a has 1 (gpu-01)."
        ),
        rows={
            "gpu-01": FREE,
            "gpu-02": held("gpu-02"),
            "big-01": "0 of 16 GPUs free, 8 needed; 16 held by of-big-01",
        },
    ),
    "A range of machines: 2 of 16": Variation(
        resources={
            "machines": None,
            "gpu_requests": {"count": 32},
            "topology": {"min_nodes": 2, "max_nodes": 4},
        },
        room=boxes(*FOUR, gpus=16),
        machines=["gpu-01", "gpu-02"],
        gpus=16,
        ports=16,
        cpu_cores=192,
        network=("ib_rack", "one rack on one InfiniBand fabric"),
        no_room=[Box("gpu-01", gpus=16), *boxes("gpu-02", "gpu-03", "gpu-04", gpus=16, held=True)],
        headline=(
            "2 machines with 16 free GPUs on one fabric, or 4 with 8, are needed; fabric ib-a has 1 (gpu-01)."
        ),
        rows={"gpu-01": "16 of 16 GPUs free", **{name: held(name, 16) for name in FOUR[1:]}},
    ),
    "A range of machines: 4 of 8": Variation(
        resources={
            "machines": None,
            "gpu_requests": {"count": 32},
            "topology": {"min_nodes": 2, "max_nodes": 4},
        },
        room=boxes(*FOUR),
        machines=FOUR,
        nodelist="gpu-[01-04]",
        network=("ib_rack", "one rack on one InfiniBand fabric"),
        no_room=[*boxes("gpu-01", "gpu-02", "gpu-03"), Box("gpu-04", held=True)],
        headline=(
            "4 machines with 8 free GPUs on one fabric are needed;"
            " fabric ib-a has 3 (gpu-01, gpu-02, gpu-03)."
        ),
        rows={**dict.fromkeys(FOUR[:3], FREE), "gpu-04": held("gpu-04")},
    ),
    "One NVLink domain": Variation(
        resources={
            "gpu_requests": GB200,
            "topology": {"keep_within": "nvlink_domain"},
            "network": None,
        },
        room=[*trays("gpu-03", domain="d1"), *trays("gpu-01", "gpu-02", domain="d2")],
        machines=["gpu-01", "gpu-02"],
        gpus=4,
        ports=0,
        imex=True,
        cpu_cores=48,
        network=("nvlink_domain", "one NVLink domain"),
        no_room=[
            *trays("gpu-01", domain="d1"),
            *trays("gpu-02", domain="d2"),
            *trays("gpu-03", domain="d2", held=True),
        ],
        headline=(
            "2 machines with 4 free GB200s in one NVLink domain are needed;"
            " NVLink domain d1 has 1 (gpu-01), d2 has 1 (gpu-02)."
        ),
        rows={"gpu-01": FREE_4, "gpu-02": FREE_4, "gpu-03": held("gpu-03", 4)},
    ),
    "One NVLink domain, and InfiniBand as in run.json": Variation(
        resources={"gpu_requests": GB200, "topology": {"keep_within": "nvlink_domain"}},
        room=[*trays("gpu-03", domain="d1"), *trays("gpu-01", "gpu-02", domain="d2")],
        machines=["gpu-01", "gpu-02"],
        gpus=4,
        ports=4,
        imex=True,
        cpu_cores=48,
        network=("ib_rack", "one rack on one InfiniBand fabric"),
        no_room=[*trays("gpu-01", domain="d2"), *trays("gpu-02", domain="d2", rdma="")],
        headline=(
            "2 machines with 4 GB200s in one NVLink domain are needed;"
            " the largest NVLink domain (d2 on ib-a) has 1, even when all are free."
        ),
        rows={"gpu-01": FREE_4, "gpu-02": "No InfiniBand port; 4 of 4 GPUs free"},
    ),
    "NVLink between the workers: one domain": Variation(
        resources={"gpu_requests": GB200, "network": {"interconnect": "nvlink"}},
        room=[*trays("gpu-03"), *trays("gpu-01", "gpu-02", domain="d2")],
        machines=["gpu-01", "gpu-02"],
        gpus=4,
        ports=0,
        imex=True,
        cpu_cores=48,
        network=("nvlink_domain", "one NVLink domain"),
        no_room=[
            *trays("gpu-01"),
            *trays("gpu-02", domain="d2"),
            *trays("gpu-03", domain="d2", held=True),
        ],
        headline=(
            "2 machines with 4 free GB200s on one fabric are needed; NVLink domain d2 on ib-a has 1 (gpu-02)."
        ),
        rows={
            "gpu-01": "In no NVLink domain; 4 of 4 GPUs free",
            "gpu-02": FREE_4,
            "gpu-03": held("gpu-03", 4),
        },
    ),
    "NVLink between the workers: one machine": Variation(
        resources={"gpu_requests": {"count": 8}, "machines": None, "network": {"interconnect": "nvlink"}},
        room=boxes("gpu-01", "gpu-02"),
        machines=["gpu-01"],
        ports=0,
        nodelist="gpu-01",
        network=("one_machine", "one machine"),
        no_room=boxes("gpu-01", "gpu-02", gpus=4),
        headline=(
            "2 machines with 4 GPUs on one fabric, or 4 with 2, or 8 with 1, are needed;"
            " this cluster has no NVLink domain for them."
        ),
        rows=dict.fromkeys(["gpu-01", "gpu-02"], "In no NVLink domain; 4 of 4 GPUs free"),
    ),
    "RoCE": Variation(
        resources={"network": {"interconnect": "rdma"}, "topology": None},
        room=[*boxes("gpu-01", "gpu-02", rdma="roce"), Box("gpu-03", rdma="")],
        machines=["gpu-01", "gpu-02"],
        network=("roce_rack", "RoCE in one rack"),
        no_room=[Box("gpu-01", rdma="roce"), Box("gpu-02", rdma="")],
        headline=(
            "2 machines with 8 H100s on one fabric are needed;"
            " the largest fabric (of RoCE ports without a fabric) has 1, even when all are free."
        ),
        rows={"gpu-01": FREE, "gpu-02": "No RDMA port; 8 of 8 GPUs free"},
    ),
    "RoCE, kept within a fabric as in run.json": Variation(
        resources={"network": {"interconnect": "rdma"}},
        room=boxes("gpu-01", "gpu-02", rdma="roce-a"),
        machines=["gpu-01", "gpu-02"],
        network=("roce_rack", "RoCE in one rack"),
        no_room=boxes("gpu-01", "gpu-02", rdma="roce"),
        headline=(
            "2 machines with 8 H100s on one fabric are needed; this cluster has no RDMA fabric for them."
        ),
        rows=dict.fromkeys(["gpu-01", "gpu-02"], "On no fabric that is known; 8 of 8 GPUs free"),
    ),
    "RoCE: InfiniBand first": Variation(
        resources={"network": {"interconnect": "rdma"}},
        room=[*boxes("gpu-03", "gpu-04", rdma="roce-a"), *boxes("gpu-01", "gpu-02")],
        machines=["gpu-01", "gpu-02"],
        network=("ib_rack", "one rack on one InfiniBand fabric"),
        no_room=[Box("gpu-01", rdma="roce-a"), Box("gpu-02")],
        headline=(
            "2 machines with 8 H100s on one fabric are needed;"
            " the largest fabric (ib-a) has 1, even when all are free."
        ),
        rows={"gpu-01": FREE, "gpu-02": FREE},
    ),
    "Spread for resilience": Variation(
        resources={"topology": {"spread": "rack"}},
        room=[*boxes("gpu-01", "gpu-03"), Box("gpu-02", rack="r2")],
        machines=["gpu-01", "gpu-02"],
        network=("ib_fabric", "one InfiniBand fabric"),
        no_room=[*boxes("gpu-01", "gpu-03"), Box("gpu-02", rack="r2", held=True)],
        headline=(
            "2 machines with 8 free H100s on one fabric in different racks are needed;"
            " fabric ib-a has 1 (gpu-01)."
        ),
        rows={"gpu-01": FREE, "gpu-03": FREE, "gpu-02": held("gpu-02")},
    ),
    "Training data": Variation(
        resources={},
        template={
            "datavolume_refs": [
                {"name": "imagenet", "mount_path": "/data"},
                {"name": "checkpoints", "mount_path": "/out", "read_only": False},
            ]
        },
        room=[*boxes("gpu-01", "gpu-02"), Box("apart-01", pool="apart")],
        machines=["gpu-01", "gpu-02"],
        network=("ib_rack", "one rack on one InfiniBand fabric"),
        no_room=[Box("gpu-01"), Box("apart-01", pool="apart")],
        headline=(
            "2 machines with 8 H100s on one fabric are needed;"
            " the largest fabric (ib-a) has 1, even when all are free."
        ),
        rows={
            "gpu-01": FREE,
            "apart-01": "Cannot mount drive checkpoints and imagenet; 8 of 8 GPUs free",
        },
    ),
}


def build(house: factories.House, fleet: Sequence[Box]) -> None:
    """The machines, and two drives on a shared filesystem that those of one pool mount."""
    apart = Pool.objects.create(cluster=house.cluster, slug="apart", name="Apart")
    WorkspacePool.objects.create(workspace=house.workspace, pool=apart)
    pools = {pool.slug: pool for pool in (house.pool, apart)}
    for box in fleet:
        machine = factories.machine_make(
            house,
            box.name,
            gpus=box.gpus,
            model=box.model,
            fabric=box.rdma if box.rdma.startswith("ib") else None,
            rack=box.rack,
        )
        Gpu.objects.filter(machine=machine).update(nvlink_domain=box.domain)
        Machine.objects.filter(id=machine.id).update(pool=pools[box.pool])
        if box.rdma.startswith("roce"):
            roce_make(house, machine, box)
        if box.held:
            holding(house, f"of-{box.name}", machine, gpus=box.gpus)
    for name, read_only in (("imagenet", True), ("checkpoints", False)):
        order = DriveOrder(
            name=name, kind="shared", path=f"/srv/{name}", pool="h100", access={"vision": read_only}
        )
        drive_create(cluster=house.cluster, order=order, actor=factories.actor_of(house.ana))


def roce_make(house: factories.House, machine: Machine, box: Box) -> None:
    """RoCE ports, on the fabric `roce-a` if an administrator has said so: ports don't know of any."""
    fabric = None
    if box.rdma != "roce":
        fabric, _ = Fabric.objects.get_or_create(cluster=house.cluster, key=box.rdma, name=box.rdma)
    RdmaPort.objects.bulk_create(
        RdmaPort(
            machine=machine,
            device=f"mlx5_{index}",
            port=1,
            link_layer="Ethernet",
            state="ACTIVE",
            rate_gbps=400,
            fabric=fabric,
        )
        for index in range(box.gpus)
    )
