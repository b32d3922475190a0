"""Secrets reach the worker, and nothing and nobody else: no disk, no log, no report."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.agent.agents import AgentProcess, alive, eventually, worker
from tests.agent.fake_console import FakeConsole
from wire.agent_messages import Exit
from wire.assignments import Assignment, Probe, Probes, Secret

pytestmark = pytest.mark.processes

TOKEN = "hf_token_of_the_test"
KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\n-----END KEY-----\n"
SECRETS = (
    Secret(name="hf", env="HF_TOKEN", value=TOKEN),
    Secret(name="key", path="/run/secrets/key.pem", value=KEY),
)
LOOP = "echo up; while :; do sleep 0.05; done"
WORDS = (TOKEN, "MIIEvQIBADANBgkq")


def secret_worker(script: str, **more: Any) -> Assignment:
    return worker(script=script, **{"secrets": SECRETS, **more})


def on_disk(agent: AgentProcess) -> list[str]:
    """Files of the agent in which a secret stands."""
    files = [path for path in agent.state.rglob("*") if path.is_file()]
    assert any(path.name == "sandbox.args" for path in files)
    return [str(path) for path in files if any(word.encode() in path.read_bytes() for word in WORDS)]


def test_a_variable_and_a_file(console: FakeConsole, agent: AgentProcess) -> None:
    script = (
        'echo ${#HF_TOKEN} ${HF_TOKEN:0:3}; stat -c "%a %u" /run/secrets/key.pem; '
        "grep -c KEY /run/secrets/key.pem; echo x 2> /dev/null >> /run/secrets/key.pem || echo read-only; "
        "while [ ! -e /tmp/go ]; do sleep 0.05; done"
    )
    console.want(secret_worker(script))
    console.wait_log("a1", "read-only\n")
    assert console.log("a1") == f"{len(TOKEN)} hf_\n400 {os.getuid()}\n2\nread-only\n"
    assert on_disk(agent) == []
    (Path(f"/proc/{agent.record('a1')['child']}/root/tmp/go")).touch()
    assert console.wait_gone("a1").exit == Exit(kind="exited", code=0)
    assert on_disk(agent) == []


def test_two_at_once_get_their_own(console: FakeConsole, agent: AgentProcess) -> None:
    """Only one of them finds a supervisor that was started ahead."""
    names = [f"a{number}" for number in range(1, 4)]
    values = {name: (Secret(name="s", env="SECRET", value=f"secret-of-{name}"),) for name in names}
    console.want(*(worker(name, "echo ${SECRET:7}; echo $SECRET", secrets=values[name]) for name in names))
    for name in names:
        assert console.wait_whole_log(name) == f"of-{name}\n***\n"


def test_values_are_masked_in_the_log_however_they_are_written(
    console: FakeConsole, agent: AgentProcess
) -> None:
    code = (
        "import os, sys, time\n"
        "for character in 'token ' + os.environ['HF_TOKEN'] + ' end\\n':\n"
        "    sys.stdout.write(character); sys.stdout.flush(); time.sleep(0.002)\n"
        "print(open('/run/secrets/key.pem').read(), end='')\n"
        "print(('x' * 999 + os.environ['HF_TOKEN']) * 1000, flush=True)\n"
        "sys.exit('ValueError: bad token ' + os.environ['HF_TOKEN'])\n"
    )
    console.want(worker(command="python", args=("-c", code), secrets=SECRETS))
    gone = console.wait_gone("a1")
    log = console.wait_whole_log("a1")
    long = ("x" * 999 + "***") * 1000
    assert log.splitlines() == ["token *** end", "***", long, "ValueError: bad token ***"]
    assert not any(word in gone.model_dump_json() for word in WORDS)
    assert on_disk(agent) == []


def test_the_cause_and_a_probes_message_are_masked(console: FakeConsole, agent: AgentProcess) -> None:
    look = Probe(
        exec=("bash", "-c", "printf 'token %0190d ' 0; echo $HF_TOKEN is refused; exit 1"),
        period_seconds=0.1,
        failure_threshold=1,
    )
    script = f"trap 'echo bash: $HF_TOKEN: command not found; exit 1' TERM; {LOOP}"
    console.want(secret_worker(script, probes=Probes(liveness=look)))
    end = console.wait_gone("a1").exit
    assert end is not None
    assert end.message == "liveness probe failed 1 time: exit 1: token " + "0" * 190 + " ***"
    assert end.cause == "bash: ***: command not found"
    assert on_disk(agent) == []


def test_a_killed_agent_asks_for_them_again(console: FakeConsole, agent: AgentProcess) -> None:
    """What was only prepared when its supervisor died has to be built anew, and its secrets are on no disk."""
    console.want(secret_worker("echo $HF_TOKEN | wc -c", phase="prepare"))
    console.wait_state("a1", "ready")
    agent.kill()
    os.kill(agent.record("a1")["supervisor"], 9)
    before = len(console.requests)
    agent.start()
    assert console.requests[before].applied_revision == 0, (
        "else a console with nothing new would send nothing"
    )
    console.wait_state("a1", "preparing")
    console.wait_state("a1", "ready")
    console.want(secret_worker("echo $HF_TOKEN | wc -c"))
    assert console.wait_gone("a1").exit == Exit(kind="exited", code=0)
    assert console.wait_whole_log("a1") == f"{len(TOKEN) + 1}\n"
    assert on_disk(agent) == []


def test_without_the_console_a_worker_waits_for_its_secrets(
    console: FakeConsole, agent: AgentProcess
) -> None:
    console.want(secret_worker("true", phase="prepare"))
    console.wait_state("a1", "ready")
    console.want(secret_worker("true", phase="prepare", secrets=(Secret(name="hf", env="HF_TOKEN"),)))
    agent.kill()
    os.kill(agent.record("a1")["supervisor"], 9)
    agent.start()
    waiting = "Waiting for the console to send the secret hf, key"
    console.wait(lambda: (found := console.report("a1")) and found.detail == waiting, "it waits")
    console.want(secret_worker("true"))
    assert console.wait_gone("a1").exit == Exit(kind="exited", code=0)


def test_masking_goes_on_when_the_agent_is_killed(console: FakeConsole, agent: AgentProcess) -> None:
    script = f"echo up; until [ -e /tmp/go ]; do sleep 0.05; done; echo $HF_TOKEN; {LOOP}"
    console.want(secret_worker(script))
    console.wait_log("a1", "up\n")
    agent.kill()
    child = agent.record("a1")["child"]
    Path(f"/proc/{child}/root/tmp/go").touch()
    eventually(lambda: (agent.directory("a1") / "log").read_text().count("up\n") == 2, "more output")
    assert (agent.directory("a1") / "log").read_text() == "up\n***\nup\n"
    agent.start()
    console.wait_log("a1", "up\n***\nup\n")
    assert alive(child)


def test_probes_have_the_secrets_again_after_a_restart(console: FakeConsole, agent: AgentProcess) -> None:
    look = Probe(
        exec=("bash", "-c", f'[ "$HF_TOKEN" = {TOKEN} ] && [ ! -e /tmp/sick ]'),
        period_seconds=0.1,
        failure_threshold=1,
    )
    probes = Probes(readiness=look)
    console.want(secret_worker("exec sleep 1000", probes=probes))
    console.wait(lambda: (found := console.report("a1")) and found.detail == "Ready", "ready")
    agent.kill()
    Path(f"/proc/{agent.record('a1')['child']}/root/tmp/sick").touch()
    agent.start()
    sick = "Not ready: readiness probe failed 1 time: exit 1"
    console.wait(lambda: (found := console.report("a1")) and found.detail == sick, "sick")
    Path(f"/proc/{agent.record('a1')['child']}/root/tmp/sick").unlink()
    console.wait(lambda: (found := console.report("a1")) and found.detail == "Ready", "ready again")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts workers as others")
def test_a_secret_file_is_its_users(console: FakeConsole, agent: AgentProcess) -> None:
    script = "stat -c '%a %u' /run/secrets/key.pem; wc -l < /run/secrets/key.pem"
    console.want(secret_worker(script, user="4321:99", command="/bin/bash"))
    assert console.wait_gone("a1").exit == Exit(kind="exited", code=0)
    assert console.wait_whole_log("a1") == "400 4321\n3\n"


def test_a_secret_that_no_variable_takes(console: FakeConsole, agent: AgentProcess) -> None:
    secrets = (Secret(name="odd", env="ODD", value="with\0NUL and more"),)
    console.want(secret_worker("true", secrets=secrets, phase="prepare"))
    assert console.wait_gone("a1").exit == Exit(
        kind="not_prepared",
        message="The value of a secret has a NUL character, which no variable takes. Use a file.",
    )
