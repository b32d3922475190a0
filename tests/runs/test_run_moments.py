"""What two write at the same moment: reports, logs, decisions, removals."""

import threading
import time
from collections.abc import Callable

import pytest
from django.db import connection, transaction

from runs.gang.apply import run_advance
from runs.logs import logs_store
from runs.models import LogChunk, Run
from runs.services import run_delete, run_remove, run_stop
from tests.support.gangs import Gang
from wire.agent_messages import LogChunkHeader, LogsHeader

PATIENCE_SECONDS = 20


@pytest.fixture
def ended(running: Gang, bea) -> Gang:
    """A run that is to be deleted and of which nothing runs any more."""
    run_delete(run=running.run, actor=bea)
    running.advance()
    for rank in range(2):
        running.end(rank)
    running.advance()
    return running


def store(gang: Gang, data: bytes) -> None:
    member = gang.members[0]
    header = LogsHeader(
        chunks=(LogChunkHeader(assignment=str(member.id), offset=0, size=len(data), at=time.time()),)
    )
    logs_store(machine_id=member.machine_id, header=header, body=memoryview(data))


def beside(work: Callable[[], object], errors: list[Exception]) -> threading.Thread:
    """`work` in a started thread, which hands its error over."""

    def run() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - handed over to the test
            errors.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def somebody_waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return cursor.fetchone() is not None


def meanwhile(first: Callable[[], object], second: Callable[[], object]) -> list[Exception]:
    """`second` waits for a lock of `first`, whose transaction then ends. The errors of both."""
    errors: list[Exception] = []
    done, finish = threading.Event(), threading.Event()

    def slowly() -> None:
        with transaction.atomic():
            first()
            done.set()
            assert finish.wait(PATIENCE_SECONDS)

    threads = [beside(slowly, errors)]
    assert done.wait(PATIENCE_SECONDS)
    threads.append(beside(second, errors))
    wait_until(somebody_waits_for_a_lock)
    finish.set()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    return errors


@pytest.mark.django_db(transaction=True)
def test_a_log_that_is_being_stored_meanwhile_is_removed_with_its_run(ended):
    assert meanwhile(lambda: store(ended, b"late\n"), lambda: run_remove(ended.run.id)) == []

    assert not Run.objects.exists()
    assert not LogChunk.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_report_and_a_decision_at_the_same_moment_do_not_wait_for_each_other(running, bea):
    """The report writes its row twice; then PostgreSQL looks at the attempt, which the decision has locked."""
    run_stop(run=running.run, actor=bea)

    assert meanwhile(lambda: running.end(0), lambda: run_advance(running.run.id)) == []

    assert [member.gone_at is not None for member in running.members] == [True, False]
    assert running.fresh.state == "Stopping"
