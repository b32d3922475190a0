"""`runs`, `show`, `why` and `events` against a fake console."""

import json
import signal

import yaml


def test_no_runs_are_a_head_only(astra):
    assert (
        astra("astraeus", "runs").stdout == "NAME                          CLUSTER       STATE       REASON\n"
    )


def test_long_names_widen_the_column_of_all(astra, console):
    console.add_run("a" * 40, "Pending", "waiting")
    console.add_run("b", "Running")
    assert astra("astraeus", "runs").stdout.splitlines() == [
        "NAME" + " " * 38 + "CLUSTER       STATE       REASON",
        "a" * 40 + "  main          Pending     waiting",
        "b" + " " * 41 + "main          Running",
    ]


def test_runs_reads_all_pages(astra, console):
    for number in range(7):
        console.add_run(f"run-{number}")
    console.page_size = 3
    expected = [f"run-{number}" for number in range(7)]
    assert astra("astraeus", "runs", "-o", "name").stdout.split() == expected
    assert astra("astraeus", "runs", "-o", "name", "--limit", "4").stdout.split() == expected[:4]


def test_runs_filters(astra, console):
    result = astra(
        "astraeus",
        "runs",
        "--state",
        "running",
        "--state",
        "failed",
        "--label",
        "a=b",
        "-q",
        "llm",
        "--cluster",
        "main",
        "--limit",
        "5",
    )
    assert result.exit_code == 0
    assert console.seen[0].query == {
        "state": "Running,Failed",
        "label": "a=b",
        "q": "llm",
        "cluster": "main",
        "limit": "5",
    }
    assert astra("astraeus", "runs", "--state", "Sleeping").exit_code == 2


def test_runs_for_programs(astra, console):
    console.add_run("ddp", "Running", "\u202efine\x9b")
    as_json, as_yaml = (astra("astraeus", "runs", "-o", form).stdout for form in ("json", "yaml"))
    assert json.loads(as_json) == yaml.safe_load(as_yaml) == {"items": [console.runs["ddp"]]}
    for text in (as_json, as_yaml):
        assert not set("\u202e\x9b") & set(text)


def test_watch_in_a_pipe_prints_what_changes(start, console):
    console.add_run("a", "Pending", "waiting")
    console.add_run("b", "Running")
    process = start("astraeus", "runs", "--watch")
    shown = [process.stdout.readline().split()[:3] for _ in range(3)]
    assert shown == [
        [b"NAME", b"CLUSTER", b"STATE"],
        [b"a", b"main", b"Pending"],
        [b"b", b"main", b"Running"],
    ]
    console.set_state("a", "Running")
    assert process.stdout.readline().split() == [b"a", b"main", b"Running"]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert (process.returncode, out, err) == (130, b"", b"")


def test_hostile_text_in_a_table(astra, console):
    console.add_run("ddp", "Running", "\x1b]0;owned\x07one\ntwo \u202eevil")
    assert astra("astraeus", "runs").stdout.splitlines()[1:] == [
        "ddp                           main          Running     one two evil"
    ]


def test_show(astra, console):
    console.add_run(
        "ddp", "Running", "2 of 2 workers running", workers=2, restarts=1, shape=[{"machines": 2, "gpus": 8}],
        network={"code": "infiniband", "text": "one InfiniBand fabric"}, started_at="2026-03-01T14:03:07Z",
    )  # fmt: skip
    console.runs["ddp"]["metadata"]["labels"] = {"project": "fabric-check"}
    lines = astra("astraeus", "show", "ddp").stdout.splitlines()
    assert lines[:7] == [
        "Run       ddp",
        "State     Running",
        "Reason    2 of 2 workers running",
        "Cluster   main",
        "Network   one InfiniBand fabric",
        "Shape     2 machines x 8 GPUs",
        "Attempt   1, 1 restart",
    ]
    assert lines[7].startswith("Started   2026-03-01 14:03:07 (")
    assert lines[8:] == [
        "Labels    project=fabric-check",
        "Page      https://console.example.com/o/acme/w/vision/jobs/main/ddp",
        "",
        "WORKER  STATE    MACHINE  GPUS  REASON",
        "ddp-0   Running  gpu-01   8",
        "ddp-1   Running  gpu-02   8",
    ]
    assert json.loads(astra("astraeus", "show", "ddp", "-o", "json").stdout) == console.runs["ddp"]
    assert astra("astraeus", "show", "ddp", "-o", "name").stdout == "ddp\n"


def test_why(astra, console):
    console.add_run("ddp", "Pending", workers=1)
    console.explanations["ddp"] = {
        "headline": "2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-01).",
        "pass": 18204,
        "causes": [
            {"kind": "order", "met": True, "text": "Nothing goes first: number 1 in the queue."},
            {"kind": "fit", "met": False, "text": "No set of machines can hold it now."},
        ],
        "changes": [{"text": "Uncordon gpu-04", "result": "gpu-01 and gpu-04, one InfiniBand fabric"}],
        "when": {"text": "At the latest 14:05, when eval-3 reaches its time limit."},
        "domains": [{"name": "ib-a", "found": 1, "needed": 2}, {"name": "ib-b", "found": 0, "needed": 2}],
        "machines": [
            {"name": "gpu-04", "group": "Cordoned", "text": "Cordoned by ops."},
            {
                "name": "gpu-02",
                "group": "Too few free GPUs",
                "causes": ["4 of 8 GPUs free", "held by eval-3"],
            },
        ],
    }
    expected = """\
2 machines with 8 free H100s on one fabric are needed; fabric ib-a has 1 (gpu-01).
As of pass 18204

ok  Order  Nothing goes first: number 1 in the queue.
no  Fit    No set of machines can hold it now.

What would start it now
  Uncordon gpu-04  -> gpu-01 and gpu-04, one InfiniBand fabric

When
  At the latest 14:05, when eval-3 reaches its time limit.

Domains
  ib-a  1 of 2 found
  ib-b  0 of 2 found

Machines
  Cordoned (1)
    gpu-04  Cordoned by ops.
  Too few free GPUs (1)
    gpu-02  4 of 8 GPUs free; held by eval-3
"""
    shown = astra("astraeus", "why", "ddp").stdout
    assert [line.split() for line in shown.splitlines()] == [line.split() for line in expected.splitlines()]
    console.explanations["ddp-0"] = "No fabric has room: ib-a has 1 of 2."
    assert astra("astraeus", "why", "ddp-0").stdout == "No fabric has room: ib-a has 1 of 2.\n"
    assert astra("astraeus", "why", "nosuch").exit_code == 3


def test_why_says_once_what_is_so_on_several_machines(astra, console):
    """As the server answers: a row holds the names of all machines about which the same is to be said."""
    console.add_run("ddp", "Pending", workers=1)
    short = "32 GiB of memory free, 800 GiB needed"
    console.explanations["ddp"] = {
        "headline": "2 machines with 8 free H100s are needed; 1 is free now (gpu-01).",
        "domains": [{"kind": "cluster", "name": "", "found": 1, "needed": 2, "machines": ["gpu-01"]}],
        "machines": [
            {"group": "Ready for this run", "machines": ["gpu-01"], "text": "8 of 8 GPUs free"},
            {"group": "Too little free memory", "machines": ["gpu-02", "gpu-03"], "text": short},
            {
                "group": "Cordoned",
                "machines": [f"gpu-{number}" for number in range(10, 20)],
                "text": "Cordoned; 8 of 8 GPUs free",
            },
        ],
    }
    expected = """\
2 machines with 8 free H100s are needed; 1 is free now (gpu-01).

Machines
  Ready for this run (1)
    gpu-01  8 of 8 GPUs free
  Too little free memory (2)
    gpu-02, gpu-03  32 GiB of memory free, 800 GiB needed
  Cordoned (10)
    gpu-10, gpu-11, gpu-12, gpu-13, gpu-14, gpu-15, gpu-16, gpu-17 and 2 more  Cordoned; 8 of 8 GPUs free
"""
    assert astra("astraeus", "why", "ddp").stdout == expected


def test_events(astra, console):
    console.add_run("ddp")
    console.events["ddp"] = [
        {"at": "2026-03-01T14:03:07Z", "attempt": 0, "state": "Pending", "text": "Submitted by ops"},
        {"at": "2026-03-01T14:03:09Z", "attempt": 1, "state": "Starting", "text": "Placed on 2 machines"},
    ]
    assert astra("astraeus", "events", "ddp").stdout.splitlines() == [
        "TIME                 ATTEMPT  STATE     WHAT",
        "2026-03-01 14:03:07  0        Pending   Submitted by ops",
        "2026-03-01 14:03:09  1        Starting  Placed on 2 machines",
    ]


def test_metrics(astra, console):
    console.add_run("ddp")
    console.metrics["ddp"] = [
        series("ddp-0", 0.125, 6.9078123, {0: 6.9078123, 300: 0.125}),
        series("ddp-1", None, None, {50: None}),
    ]
    result = astra("astraeus", "metrics", "ddp", "--name", "loss", "--worker", "ddp-0", "--from-step", "0")
    assert result.stdout.splitlines() == [
        "NAME  WORKER  SAMPLES  STEPS  FIRST    LAST   LOW    HIGH",
        "loss  ddp-0   2        0-300  6.90781  0.125  0.125  6.90781",
        "loss  ddp-1   1        50-50  -        -      -      -",
    ]
    assert console.seen[-1].query == {"name": "loss", "worker": "ddp-0", "from_step": "0", "points": "2"}


def series(worker, low, high, values):
    samples = [{"step": step, "value": value} for step, value in values.items()]
    return {
        "name": "loss",
        "worker": worker,
        "attempt": 1,
        "count": len(samples),
        "low": low,
        "high": high,
        "samples": samples,
    }


def test_metrics_for_programs(astra, console):
    console.add_run("ddp")
    console.metrics["ddp"] = [series("ddp-0", 1.5, 1.5, {50: 1.5}), series("ddp-1", None, None, {50: None})]
    whole = astra("astraeus", "metrics", "ddp", "-o", "json")
    assert json.loads(whole.stdout) == {"items": console.metrics["ddp"]}
    assert console.seen[-1].query == {}
    assert astra("astraeus", "metrics", "ddp", "-o", "name", "--points", "5").stdout == "loss\n"
    assert console.seen[-1].query == {"points": "5"}


def test_a_run_that_told_no_metrics(astra, console):
    console.add_run("ddp")
    told = astra("astraeus", "metrics", "ddp")
    assert (told.exit_code, told.stdout) == (0, "")
    assert told.stderr.startswith("No metrics of ddp yet.")
    assert astra("astraeus", "metrics", "none").exit_code == 3
