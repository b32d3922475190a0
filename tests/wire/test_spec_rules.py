"""Refused runs and templates: the change, and the exact path, code and sentence that it gets."""

from typing import Any

import pytest

from tests.wire.refusals import (
    GONE,
    RELATIVE,
    Found,
    R,
    S,
    T,
    changed,
    found,
)

RULES: list[tuple[str, list[tuple[str, Any]], Found]] = [
    *(
        (
            f"the mount {path!r}",
            [(f"{T}.configs", [{"mounts": [path], "value": ""}])],
            [(f"{T}.configs[0].mounts[0]", "bad_mount_path", sentence)],
        )
        for path, sentence in (
            ("app/x.py", f"`app/x.py` is relative. {RELATIVE}"),
            ("/app/../x.py", "`/app/../x.py` has `..` in it. Write the path that it leads to."),
            ("/app//x.py", "`/app//x.py` is not in its shortest form. Write `/app/x.py`."),
            ("//app", "`//app` is not in its shortest form. Write `/app`."),
            ("/data/", "`/data/` is not in its shortest form. Write `/data`."),
            ("/", "A mount at `/` would cover the whole system. Choose a directory below it."),
            ("/proc", "`/proc` covers `/proc`, which belongs to the system. Choose another path."),
            ("/sys/fs", "`/sys/fs` covers `/sys`, which belongs to the system. Choose another path."),
            ("/dev/shm", "`/dev/shm` covers `/dev`, which belongs to the system. Choose another path."),
            (
                "/a\u202eb",
                (
                    "`/a\\u202eb` has control characters, line breaks or marks that change the writing direction. "
                    "Remove them."
                ),
            ),
        )
    ),
    (
        "one path for two things",
        [
            (f"{T}.configs", [{"mounts": ["/data"], "value": ""}]),
            (f"{T}.datavolume_refs", [{"name": "imagenet", "mount_path": "/data"}]),
        ],
        [
            (
                f"{T}.datavolume_refs[0].mount_path",
                "duplicate_mount",
                f"`/data` is used twice; first in {T}.configs[0].mounts[0]. Change one.",
            )
        ],
    ),
    (
        "a mount below a file",
        [
            (f"{T}.configs", [{"mounts": ["/app"], "value": ""}]),
            (f"{T}.secret_refs", [{"name": "key", "mount_path": "/app/key"}]),
        ],
        [
            (
                f"{T}.secret_refs[0].mount_path",
                "mount_below_file",
                "`/app/key` lies below `/app`, which is a file. Change one.",
            )
        ],
    ),
    (
        "more than 1 MiB of files",
        [(f"{T}.configs", [{"mounts": [f"/{n}"], "value": "x" * 2**19} for n in range(3)])],
        [
            (
                f"{T}.configs",
                "configs_too_large",
                (
                    "The files are 1,572,864 bytes together; at most 1 MiB a run is allowed. Put large files on a "
                    "drive or into the image."
                ),
            )
        ],
    ),
    (
        "a variable that no shell accepts",
        [(f"{T}.env", {"1ST-NAME": "x"})],
        [
            (
                f'{T}.env["1ST-NAME"]',
                "bad_env_name",
                (
                    "No shell accepts `1ST-NAME` as a variable's name. Use letters, digits and `_`, and no digit at "
                    "the beginning."
                ),
            )
        ],
    ),
    *(
        (
            f"the port {port!r}",
            [(f"{T}.env", {"MASTER_PORT": port})],
            [(f"{T}.env.MASTER_PORT", "bad_port", f'`{port}` is no port. Write one from "1" to "65535".')],
        )
        for port in ("", "0", "65536", "-1", "29500 ", "http", "1e4")
    ),
    (
        "a secret that goes nowhere, and one that goes to two places",
        [(f"{T}.secret_refs", [{"name": "a"}, {"name": "b", "env": "B", "mount_path": "/b"}])],
        [
            (
                f"{T}.secret_refs[{index}]",
                "secret_target",
                "Give exactly one of `env` (a variable) and `mount_path` (a file).",
            )
            for index in (0, 1)
        ],
    ),
    (
        "a secret in a variable that is set",
        [(f"{T}.env", {"HF_TOKEN": "x"}), (f"{T}.secret_refs", [{"name": "hf", "env": "HF_TOKEN"}])],
        [
            (
                f"{T}.secret_refs[0].env",
                "duplicate_variable",
                "The variable `HF_TOKEN` is set twice. Remove one.",
            )
        ],
    ),
    (
        "a warning without a limit",
        [(f"{T}.warn_signal_seconds", 60)],
        [
            (
                f"{T}.warn_signal_seconds",
                "warn_without_limit",
                "A warning before the time limit needs `time_limit_seconds`.",
            )
        ],
    ),
    (
        "a warning before the start",
        [(f"{T}.warn_signal_seconds", 3600), (f"{T}.time_limit_seconds", 3600)],
        [
            (
                f"{T}.warn_signal_seconds",
                "warn_before_start",
                "The warning would come before the start: the time limit is 1 h. Use less than 3600.",
            )
        ],
    ),
    (
        "a probe of two kinds, and one of none",
        [(f"{T}.probes", {"startup": {}, "liveness": {"tcp": {"port": 80}, "http": {"port": 80}}})],
        [
            (f"{T}.probes.{name}", "probe_kind", "Give exactly one of `exec`, `tcp` and `http`.")
            for name in ("startup", "liveness")
        ],
    ),
    (
        "a gang that restarts single workers",
        [(f"{R}.machines", 2), (f"{S}.on_failure", "RestartTask")],
        [
            (
                f"{S}.on_failure",
                "restart_task_in_gang",
                (
                    "`RestartTask` restarts one worker alone, which a gang of several workers can't do. Use "
                    "`RestartJob`, or `start`: `Independent`."
                ),
            )
        ],
    ),
    (
        "no template",
        [(T, GONE)],
        [(T, "missing", "`task_template` is missing. It says what the workers run.")],
    ),
    (
        "a template and groups",
        [(f"{S}.worker_groups", [{"name": "a", "task_template": {"image": "x", "command": "y"}}])],
        [
            (
                f"{S}.worker_groups",
                "both_templates",
                "Give either `task_template` (one group of workers) or `worker_groups` (several), not both.",
            )
        ],
    ),
    (
        "two groups of one name",
        [
            (T, GONE),
            (f"{S}.worker_groups", [{"name": "a", "task_template": {"image": "x", "command": "y"}}] * 2),
        ],
        [(f"{S}.worker_groups[1].name", "duplicate_name", "Another group is called `a`. Rename one.")],
    ),
    (
        "worker names that get too long",
        [
            ("metadata.name", "r" * 50),
            (T, GONE),
            (
                f"{S}.worker_groups",
                [
                    {
                        "name": "g" * 10,
                        "task_template": {
                            "image": "x",
                            "command": "y",
                            "requested_resources": {"machines": 11},
                        },
                    }
                ],
            ),
        ],
        [
            (
                f"{S}.worker_groups[0].name",
                "worker_name_too_long",
                (
                    f"The worker `{'r' * 50}-{'g' * 10}-10` would have a name of 64 characters; 63 are allowed. "
                    "Shorten the run's or the group's name by 1."
                ),
            )
        ],
    ),
]


@pytest.mark.parametrize(
    ("changes", "expected"), [case[1:] for case in RULES], ids=[case[0] for case in RULES]
)
def test_rule_between_fields(changes, expected):
    assert found(changed(changes)) == expected


def test_a_field_of_a_template_in_a_group_is_sent_to_its_own_group():
    template = {"image": "x", "command": "y", "machines": 2}
    groups = [
        {"name": "a", "task_template": {"image": "x", "command": "y"}},
        {"name": "b", "task_template": template},
    ]

    assert found(changed([(T, GONE), (f"{S}.worker_groups", groups)])) == [
        (
            "spec.worker_groups[1].task_template.machines",
            "unknown_field",
            (
                "`machines` is not a field here; it belongs in "
                "`spec.worker_groups[1].task_template.requested_resources`."
            ),
        )
    ]


def test_all_mistakes_come_at_once():
    data = changed(
        [
            ("metadata.name", "Bad"),
            (f"{S}.max_restarts", True),
            (f"{T}.image", GONE),
            (f"{T}.env", {"A-B": "x", "MASTER_PORT": "0"}),
            (f"{T}.configs", [{"mounts": ["x", "/y", "/y"], "value": ""}]),
            (f"{R}.gpu_requests.count", 17),
            (f"{R}.machines", 2),
            (f"{R}.network", {"interconnect": "ethernet", "min_gbps": 200}),
        ]
    )

    assert {(path, code) for path, code, _ in found(data)} == {
        ("metadata.name", "bad_name"),
        (f"{S}.max_restarts", "wrong_type"),
        (f"{T}.image", "missing"),
        (f'{T}.env["A-B"]', "bad_env_name"),
        (f"{T}.env.MASTER_PORT", "bad_port"),
        (f"{T}.configs[0].mounts[0]", "bad_mount_path"),
        (f"{T}.configs[0].mounts[2]", "duplicate_mount"),
        (f"{R}.gpu_requests.count", "not_divisible"),
        (f"{R}.network.min_gbps", "min_gbps_without_rdma"),
    }


def test_a_rule_is_silent_where_a_value_it_needs_is_broken():
    data = changed([(f"{R}.gpu_requests.count", "17"), (f"{R}.machines", 2)])

    assert [code for _, code, _ in found(data)] == ["wrong_type"]


def test_a_list_of_broken_entries_is_not_called_empty():
    data = changed([(f"{T}.configs", [{"mounts": ["x"], "value": ""}, {"mounts": [], "value": ""}])])

    assert [(path, code) for path, code, _ in found(data)] == [
        (f"{T}.configs[0].mounts[0]", "bad_mount_path"),
        (f"{T}.configs[1].mounts", "too_short"),
    ]


def test_a_single_worker_may_restart_alone():
    assert found(changed([(f"{R}.machines", 1), (f"{S}.on_failure", "RestartTask")])) == []
    independent = [(f"{R}.machines", 2), (f"{S}.on_failure", "RestartTask"), (f"{S}.start", "Independent")]
    assert found(changed(independent)) == []


def test_workers_that_start_on_their_own_are_not_too_many():
    many = [(f"{R}.gpu_requests.count", 1008), (f"{R}.machines", 1008), (f"{S}.start", "Independent")]
    assert found(changed(many)) == [
        (
            f"{S}.start",
            "too_many_independent",
            (
                "This run can have 1,008 workers; at most 1,000 of one run start on their own. "
                "Ask for fewer `machines`, or submit several runs."
            ),
        )
    ]


@pytest.mark.parametrize(("spread", "refused"), [("machine", False), ("rack", True), ("fabric", True)])
def test_workers_that_start_on_their_own_are_spread_over_machines_only(spread, refused):
    apart = [(f"{R}.topology", {"spread": spread}), (f"{R}.network", {}), (f"{S}.start", "Independent")]
    sentence = (
        "Workers that start on their own are always on different machines, but in no other way apart. "
        "Leave out `spread`, or use `start`: `Gang`."
    )
    problems = [(f"{R}.topology.spread", "spread_of_independent", sentence)] if refused else []
    assert found(changed(apart)) == problems
