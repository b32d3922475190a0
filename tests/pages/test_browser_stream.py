"""The run's page and its log by the real streams, over a line that breaks: nothing is lost, nothing comes twice."""

import time
from urllib.parse import urlsplit

import pytest
from django.contrib.staticfiles import finders
from playwright.sync_api import Route, expect

from runs.events import run_announce
from runs.logs import logs_store
from tests import factories as make
from tests.pages.broken_line import BrokenLine
from tests.support.served import served
from wire.agent_messages import LogChunkHeader, LogsHeader

__all__ = ["served"]

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

DDP = "/o/acme/w/vision/jobs/main/ddp-resnet50"
PATIENCE_MS = 40_000


@pytest.fixture
def line(served):
    made = BrokenLine(served)
    yield made
    made.close()


class Writer:
    """A worker that prints numbered lines, which its agent ships."""

    def __init__(self, assignment):
        self.assignment, self.offset, self.printed = assignment, 0, []

    def write(self, count):
        lines = [f"step {number}" for number in range(len(self.printed), len(self.printed) + count)]
        data = "".join(f"{line}\n" for line in lines).encode()
        chunk = LogChunkHeader(
            assignment=str(self.assignment.id), offset=self.offset, size=len(data), at=time.time()
        )
        header = LogsHeader(chunks=(chunk,))
        logs_store(machine_id=self.assignment.machine_id, header=header, body=memoryview(data))
        self.offset, self.printed = self.offset + len(data), [*self.printed, *lines]


def static_serve(context):
    """Static files by the test itself: under ASGI their server leaves them to the garbage collector to close."""
    prefix = "/static/"

    def answer(route):
        route.fulfill(path=finders.find(urlsplit(route.request.url).path.removeprefix(prefix)))

    context.route(f"**{prefix}**", answer)


def texts(page):
    """What the lines say, without their numbers and ranks."""
    script = "lines => lines.map(line => line.lastChild.textContent)"
    return page.locator(".log.live .line").evaluate_all(script)


def test_a_line_that_breaks_loses_and_doubles_nothing(house, browsing, line):
    machines = [make.machine_make(house, f"gpu-0{number}") for number in (1, 2)]
    run = make.run_pending(house)
    page = browsing(line, house.bea)
    static_serve(page.context)
    page.goto(DDP)
    expect(page.locator("#run-state .chip")).to_have_text("Pending")

    attempt = make.run_place(house, run, machines)
    run_announce(make.run_start(attempt))
    expect(page.locator("#run-state .chip")).to_have_text("Running", timeout=PATIENCE_MS)
    log = page.context.new_page()
    log.goto(f"{DDP}/log")
    worker = Writer(attempt.assignments.order_by("worker__rank")[0])
    for _ in range(5):
        worker.write(10)
    for each in (page, log):
        expect(each.locator(".log.live .line").last).to_contain_text("step 49", timeout=PATIENCE_MS)

    line.cut()
    worker.write(20)
    run_announce(make.run_fail(attempt))
    expect(log.locator("#live-lost")).to_contain_text("No live updates since", timeout=PATIENCE_MS)
    assert line.refused
    assert texts(log) == worker.printed[:50]
    expect(page.locator("#run-state .chip")).to_have_text("Running")
    worker.write(10)
    line.mend()

    for each in (page, log):
        expect(each.locator(".log.live .line").last).to_contain_text("step 79", timeout=PATIENCE_MS)
        expect(each.locator("#live-lost")).to_have_count(0)
    expect(page.locator("#run-state .chip")).to_have_text("Failed", timeout=PATIENCE_MS)
    assert texts(log) == worker.printed
    assert texts(page) == worker.printed[-20:]
    # htmx notes each request that the broken line cost it.
    assert [each for each in page.errors if not each.startswith("htmx:")] == []


def test_what_happens_before_the_stream_listens_is_seen(house, browsing, line):
    machines = [make.machine_make(house, f"gpu-0{number}") for number in (1, 2)]
    run = make.run_pending(house)
    page = browsing(line, house.bea)
    static_serve(page.context)
    held: list[Route] = []

    def hold(route):
        held.append(route)

    page.route("**/live/**", hold)
    with page.expect_request("**/live/**"):
        page.goto(DDP)
    expect(page.locator("#run-state .chip")).to_have_text("Pending")
    run_announce(make.run_start(make.run_place(house, run, machines)))
    held[0].continue_()
    expect(page.locator("#run-state .chip")).to_have_text("Running", timeout=PATIENCE_MS)
    assert page.errors == []
