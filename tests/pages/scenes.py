"""A cluster with a bit of everything, for the tests that look at whole pages."""

from collections.abc import Callable

from runs.models import Assignment, MetricSample, Run
from runs.scheduling.passes import cluster_pass
from tests import factories as make

LOG = (
    b"worker 0 of 2 on gpu-02, leader 10.20.0.12:29500, 8 GPUs\n"
    b"gpu-02:212:390 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]\n"
    b"all_reduce 1 GiB over 16 GPUs: 5.6 ms, \x1b[1;32mbus bandwidth 360 GB/s\x1b[0m\n"
    b"\x1b[33mwarning:\x1b[0m <b>not bold</b> & \xe2\x80\xaereversed\n"
    b"10%\r50%\r100% done\n"
    b"Traceback (most recent call last):\n"
    b"step 50/300 loss 6.912\n"
)


def busy_cluster(house: make.House, named: Callable[[str], str] = str) -> dict[str, Run]:
    """Runs by name: one that waits and is explained, one that starts, one that runs, one that failed.

    `named` gives runs, machines and what the workspace stores another name than they have here.
    """
    machines = {
        name: make.machine_make(house, named(name), rack=rack, **more)
        for name, rack, more in (
            ("gpu-01", "r1", {}),
            ("gpu-02", "r1", {}),
            ("gpu-03", "r2", {}),
            ("gpu-04", "r2", {"suspect": (5,), "faulty": (7,)}),
            ("gpu-05", None, {"fabric": None, "simulated": False}),
            ("gpu-06", "r3", {"model": "A100", "fabric": "ib-b", "gbps": 200}),
        )
    }
    make.stores_make(house)
    runs = {}
    running = make.run_pending(house, named("llm-7"))
    make.queued_ago(running, hours=2)
    attempt = make.run_place(house, running, [machines["gpu-02"], machines["gpu-03"]])
    runs["llm-7"] = make.run_start(attempt)
    make.log_write(attempt.assignments.order_by("worker__rank")[0], LOG)
    single = make.document_make(named("eval-3"), gpus=8, machines=1)
    failed = make.run_pending(house, named("eval-3"), by=house.ana, document=single)
    lost = make.run_place(house, failed, [machines["gpu-01"]])
    make.run_start(lost)
    runs["eval-3"] = make.run_fail(lost, code=137)
    small = make.document_make(named("tune-9"), gpus=4, machines=1)
    starting = make.run_pending(house, named("tune-9"), document=small)
    make.run_place(house, starting, [machines["gpu-04"]], gpus=4)
    runs["tune-9"] = starting
    runs["ddp-resnet50"] = make.run_pending(house, named("ddp-resnet50"))
    make.queued_ago(runs["ddp-resnet50"], minutes=12)
    cluster_pass(house.cluster.id)
    for run in runs.values():
        run.refresh_from_db()
    return runs


def metrics_draw(run: Run) -> None:
    """Two metrics over three steps of every worker: charts on the run's page."""
    for assignment in Assignment.objects.filter(attempt__run=run):
        MetricSample.objects.bulk_create(
            MetricSample(assignment=assignment, name=name, step=step, value=value / (step + 1))
            for name, value in (("loss", 4.5), ("lr", 0.001))
            for step in (0, 50, 100)
        )
