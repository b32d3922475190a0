"""The command lines of the user guide, with the outputs printed there."""

import subprocess

from tests.astra.fake_server import ROOT, Log

SCRIPT = (
    "exec torchrun --nnodes=$WORLD_SIZE --nproc-per-node=$ASTRAEUS_GPU_COUNT --node-rank=$RANK "
    "--master-addr=$MASTER_ADDR --master-port=$MASTER_PORT /app/train_ddp.py"
)


def test_run(astra, console):
    result = astra(
        "astraeus", "run", "--name", "ddp-resnet50", "--image", "registry.example.com/ml/ddp-check:1",
        "--gpus", "16", "--machines", "2", "--cpus", "12", "--mem", "100G", "--time", "1h",
        "-e", "NCCL_DEBUG=INFO", "-e", "NCCL_DEBUG_SUBSYS=INIT,NET", "--", "bash", "-c", SCRIPT,
    )  # fmt: skip
    assert result.stderr == ""
    assert result.exit_code == 0
    assert result.stdout == (
        "ddp-resnet50 submitted to main: https://console.example.com/o/acme/w/vision/jobs/main/ddp-resnet50\n"
    )
    (seen,) = console.seen
    assert seen.body == {
        "metadata": {"name": "ddp-resnet50"},
        "spec": {
            "start": "Gang",
            "task_template": {
                "image": "registry.example.com/ml/ddp-check:1",
                "command": "bash",
                "args": ["-c", SCRIPT],
                "env": {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"},
                "time_limit_seconds": 3600,
                "requested_resources": {
                    "gpu_requests": {"count": 16},
                    "machines": 2,
                    "per_gpu": {"cpu_cores": 12, "memory_bytes": 107374182400},
                },
            },
        },
    }


def test_run_takes_the_command_without_two_dashes_too(astra, console):
    result = astra("astraeus", "run", "--name", "a", "--image", "i", "bash", "-c", "echo -e x")
    assert result.exit_code == 0, result.stderr
    task = console.seen[0].body["spec"]["task_template"]
    assert (task["command"], task["args"]) == ("bash", ["-c", "echo -e x"])


def test_runs(astra, console):
    console.add_run("ddp-resnet50", "Starting", "Starting together: 1 of 2 ready")
    assert astra("astraeus", "runs").stdout == (
        "NAME                          CLUSTER       STATE       REASON\n"
        "ddp-resnet50                  main          Starting    Starting together: 1 of 2 ready\n"
    )
    console.set_state("ddp-resnet50", "Running", "2 of 2 workers running")
    assert astra("astraeus", "runs").stdout == (
        "NAME                          CLUSTER       STATE       REASON\n"
        "ddp-resnet50                  main          Running     2 of 2 workers running\n"
    )


def test_logs_in_a_pipe(command, console, environ):
    console.add_run("ddp-resnet50", "Succeeded", workers=2)
    line = "worker 0 of 2 on gpu-01, leader 10.20.0.11:29500, 8 GPUs\n"
    noise = "".join(f"step {step}/300 loss 6.9\n" for step in range(500))
    result_line = "throughput: 46,912 images/s on 16 GPUs\n"
    console.logs["ddp-resnet50-0", 1] = Log(
        (noise + line + "all_reduce 1 GiB over 16 GPUs\n" + result_line).encode()
    )
    pipe = f"{' '.join(command)} astraeus logs ddp-resnet50-0 | tail -n 400 | grep -E 'worker |throughput'"
    done = subprocess.run(
        ["bash", "-c", pipe], cwd=ROOT, capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.stdout, done.stderr) == (line + result_line, "")


def test_delete_returns_when_the_run_is_gone(astra, console):
    console.add_run("ddp-resnet50")
    result = astra("astraeus", "delete", "ddp-resnet50")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "ddp-resnet50 deleted\n", "")
    assert console.runs == {}
    assert [seen.method for seen in console.seen] == ["DELETE", "GET", "GET"]
