"""Commands of machines and tokens against a fake console: what they print and what they send."""

from datetime import UTC, datetime, timedelta


def test_machines(astra, console):
    console.machines["gpu-01"] = {
        "metadata": {"name": "gpu-01", "labels": {"topology.astraeus.io/rack": "r7"}},
        "spec": {"pool": "h100"},
        "status": {
            "state": "Ready",
            "gpus_total": 8,
            "gpus_free": 3,
            "gpu_model": "H100",
            "fabric": "ib-a",
            "rack": "r7",
        },
    }
    assert astra("astraeus", "machines").stdout.splitlines() == [
        "NAME                STATE        POOL  GPUS FREE  MODEL  FABRIC  RACK  REASON",
        "gpu-01              Ready        h100  3 of 8     H100   ib-a    r7",
    ]
    assert "Labels      topology.astraeus.io/rack=r7" in astra("astraeus", "machine", "gpu-01").stdout


def test_what_operators_do(astra, console):
    console.machines["gpu-01"] = {"metadata": {"name": "gpu-01"}}
    assert astra("astraeus", "cordon", "gpu-01", "--reason", "changing a cable").stdout == "gpu-01 cordoned\n"
    assert astra("astraeus", "uncordon", "gpu-01").stdout == "gpu-01 uncordoned\n"
    assert astra("astraeus", "drain", "gpu-01", "--within", "30m").stdout == "gpu-01 draining\n"
    assert astra("astraeus", "label", "gpu-01", "a/rack=r7", "old-").stdout == "gpu-01 labelled\n"
    base = "/api/v1/o/acme/clusters/main/machines/gpu-01"
    assert [(seen.method, seen.path.removeprefix(base), seen.body) for seen in console.seen] == [
        ("POST", "/cordon", {"reason": "changing a cable"}),
        ("POST", "/uncordon", {}),
        ("POST", "/drain", {"within_seconds": 1800}),
        ("PATCH", "", {"metadata": {"labels": {"a/rack": "r7", "old": None}}}),
    ]


def test_a_machine_s_failures_and_an_old_agent_are_told(astra, console):
    failure = {"run": "eval-3", "kind": "lost", "text": "never heard again", "times": 2, "counts": 1.0}
    status = {
        "agent_version": "0.0.9",
        "agent_old": True,
        "lemon_score": 1.75,
        "failures": [failure, failure],
    }
    console.answers = [(200, {"metadata": {"name": "gpu-01"}, "status": status}, {})]
    told = astra("astraeus", "machine", "gpu-01").stdout
    assert "Agent         0.0.9 (old)\nLemon score   1.75 (2 runs failed here)\n" in told

    console.answers = [
        (200, {"metadata": {"name": "gpu-02"}, "status": {"lemon_score": 0.0, "failures": []}}, {})
    ]
    assert "Lemon" not in astra("astraeus", "machine", "gpu-02").stdout


def test_machines_are_filtered_by_the_server(astra, console):
    astra(
        "astraeus",
        "machines",
        "--state",
        "cordoned",
        "--state",
        "Draining",
        "--pool",
        "h100",
        "--label",
        "a=b",
    )
    assert console.seen[0].query == {
        "state": "Cordoned,Draining",
        "pool": "h100",
        "label": "a=b",
        "limit": "500",
    }
    assert astra("astraeus", "machines", "--state", "Broken").exit_code == 2


def test_a_label_s_dry_run_tells_what_it_would_do(astra, console):
    text = "gpu-01 would be in rack r7 instead of r1. No run that waits would start, or wait longer, for it."
    console.answers = [(200, {"text": text, "would_start": [], "would_wait": []}, {})]
    assert astra("astraeus", "label", "gpu-01", "a/rack=r7", "--dry-run").stdout == f"{text}\n"
    assert console.seen[0].query == {"dry_run": "true"}


def test_a_bad_deadline_is_not_sent(astra, console):
    result = astra("astraeus", "drain", "gpu-01", "--within", "30")
    assert (result.exit_code, console.seen) == (2, [])
    assert "'30' has no unit" in result.stderr


# --- Tokens -------------------------------------------------------------------------------------------

TOKEN = {"id": 12, "name": "ci", "role": "editor", "user": "adi", "expires_at": None, "last_used_at": None}


def test_a_new_token_stands_alone_on_standard_output(astra, console):
    console.answers = [(201, {**TOKEN, "secret": "ast_secret"}, {})]
    result = astra("astraeus", "token", "create", "ci", "--role", "editor")
    assert (result.stdout, result.stderr) == ("ast_secret\n", "Token 12 (ci) is shown this once:\n")
    assert console.seen[0].body == {"name": "ci", "role": "editor", "expires_at": None}


def test_a_token_that_expires(astra, console):
    console.answers = [(201, {**TOKEN, "secret": "ast_secret"}, {})]
    before = datetime.now(UTC)
    astra("astraeus", "token", "create", "ci", "--expires", "90d")
    expiry = datetime.fromisoformat(console.seen[0].body["expires_at"])
    assert timedelta(days=90) <= expiry - before <= timedelta(days=90, minutes=1)
    assert console.seen[0].body["role"] == "viewer"
    for wrong in ("90", "99999999d"):
        refused = astra("astraeus", "token", "create", "ci", "--expires", wrong)
        assert (refused.exit_code, len(console.seen)) == (2, 1)
        assert "--expires: " in refused.stderr


def test_tokens_are_listed_and_revoked(astra, console):
    page = {"items": [{**TOKEN, "revoked_at": "2026-03-01T14:03:07Z"}], "next": None}
    console.answers = [(200, page, {}), (200, page, {}), (200, TOKEN, {})]
    assert astra("astraeus", "token", "list").stdout.splitlines() == [
        "ID  NAME  ROLE    BY   EXPIRES  LAST USED",
        "12  ci    editor  adi  never    never      revoked",
    ]
    assert astra("astraeus", "token", "list", "-o", "name").stdout == "12\n"
    assert astra("astraeus", "token", "revoke", "12").stdout == "token 12 revoked\n"
    assert (console.seen[-1].method, console.seen[-1].path) == ("DELETE", "/api/v1/o/acme/w/vision/tokens/12")
