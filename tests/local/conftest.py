"""Real servers in directories of their own, started by a process of their own, as `./dev` does."""

import json
import os
import shutil
import signal

import pytest

from tests.local.serving import Serving, first_line, spawn


@pytest.fixture
def serve():
    """Starts services below a directory; whatever the test leaves of them is ended."""
    started = []

    def start(root, *, durable=False, prefix=()):
        process = spawn(root, durable=durable, prefix=prefix)
        started.append(process)
        facts = json.loads(first_line(process))
        return Serving(process, facts["pid"], facts["pids"], facts["DATABASE_URL"], facts["REDIS_URL"])

    yield start
    for process in started:
        with process:  # closes its pipes and waits
            process.send_signal(signal.SIGTERM)


@pytest.fixture
def another_user(unprivileged):
    """A command prefix for another user than ours, which only root can become."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user; as any other, all tests here run unprivileged anyway")
    return unprivileged


@pytest.fixture(scope="session")
def unprivileged():
    """A command prefix that runs something as the user `nobody`, when we are root; empty otherwise.

    The prefix grants one right beyond that user's: to read, so that the test also runs where the clone and
    its interpreter lie below a directory that is closed to others.
    """
    if os.geteuid() != 0:
        return []
    user = ["--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    return [shutil.which("setpriv"), *user, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
