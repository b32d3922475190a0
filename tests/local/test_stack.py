"""The console's processes as `./dev up`, the demo and the tests start them: killed, started again, ended."""

import re
import signal

import httpx
import pytest

from console.local.client import Access
from console.local.report import Report
from console.local.stack import isolated_stack
from tests.local.serving import exists, wait_gone

pytestmark = pytest.mark.processes


def answers(stack, path="/readyz"):
    try:
        return httpx.get(f"{stack.base_url}{path}", trust_env=False).status_code
    except httpx.TransportError:
        return None


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    with isolated_stack(tmp_path_factory.mktemp("stack")) as found:
        yield found
        pids = [process.pid for process in found.processes.values()]
        assert all(exists(pid) for pid in pids)
    wait_gone(pids, seconds=0)  # nothing is left after the end
    assert answers(found) is None


def test_all_of_it_is_there(stack):
    assert set(stack.processes) == {"console", "celery-place", "celery-react", "celery-beat"}
    assert all(process.alive for process in stack.processes.values())
    assert answers(stack, "/healthz") == 200
    assert answers(stack) == 200


@pytest.mark.parametrize("name", ["console", "celery-place", "celery-react", "celery-beat"])
def test_each_process_can_be_killed_and_started_again(stack, name):
    stack.kill(name, signal.SIGKILL)
    assert not stack.processes[name].alive
    stack.restart(name)
    stack.wait_ready()
    assert stack.processes[name].alive


def test_the_printed_ways_in_work(stack, capsys):
    access = Access.make(stack, machines=0)
    access.tell(Report())
    printed = capsys.readouterr().out
    assert f"sign in     {access.login_url}\n" in printed
    signed_in = httpx.get(access.login_url, trust_env=False)
    assert (signed_in.status_code, signed_in.headers["location"]) == (302, "/")
    for line in ("curl", "astra"):  # each is enough alone
        assert re.search(rf"^ *{line} .*ASTRAEUS_TOKEN={access.token}$", printed, re.MULTILINE), printed


def test_manage_py_speaks_to_the_same_database(stack):
    assert "[X] 0001_initial" in stack.manage("showmigrations", "tenancy")
