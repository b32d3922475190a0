"""The log viewer in a real browser: hostile text, a million lines, search, errors, addresses of lines, following."""

import re
import time

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from runs.models import Assignment, LogChunk
from tests import factories as make
from tests.pages.test_browser_looks import violations

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

W = "/o/acme/w/vision"
DDP = f"{W}/jobs/main/ddp-resnet50"
WORKER = f"{W}/workers/ddp-resnet50-0"
PRINTED = "document.body.dispatchEvent(new Event('log-changed'))"
MILLION = 1_000_000
SIGHT = """(box) => [...box.querySelectorAll('.line')].filter(line => {
  const at = line.getBoundingClientRect(), frame = box.getBoundingClientRect();
  return at.top >= frame.top - 1 && at.bottom <= frame.bottom + 1;
}).map(line => line.querySelector('.n').dataset.n)"""


@pytest.fixture
def pair(house):
    """The assignments of a run that runs on two machines."""
    machines = [make.machine_make(house, f"gpu-0{number}") for number in (1, 2)]
    attempt = make.run_place(house, make.run_pending(house), machines)
    make.run_start(attempt)
    return list(attempt.assignments.order_by("worker__rank"))


def texts(page):
    """What the drawn lines say, without their numbers."""
    return page.locator(".log .line").evaluate_all("lines => lines.map(line => line.textContent)")


def write_many(assignment, lines, special):
    """A log of so many lines; `special`: number → line."""
    piece, offset, chunks = [], 0, []
    for number in range(lines):
        piece.append(special.get(number, f"step {number} loss 6.912 lr 0.0003\n").encode())
        if len(piece) == 7000 or number == lines - 1:
            data = b"".join(piece)
            row = {"offset": offset, "size": len(data), "lines": len(piece), "data": data}
            chunks.append(LogChunk(assignment=assignment, at=timezone.now(), **row))
            piece, offset = [], offset + len(data)
    LogChunk.objects.bulk_create(chunks, batch_size=20)
    Assignment.objects.filter(id=assignment.id).update(log_size=offset)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_log_is_drawn_as_text_with_colours_and_marks(pair, house, browse, theme):
    make.log_write(
        pair[0],
        b"plain <b>not bold</b><script>document.title='mine'</script>\n"
        b"\x1b[1;31mred\x1b[0m and \x1b[38;5;46mgreen\x1b[0m \x1b[48;2;0;0;255mon blue\x1b[0m\n"
        b"10%\r55%\r100%\n"
        b"\x1b]0;title\x07\x07bell \xe2\x80\xaetnorf\n"
        b"RuntimeError: CUDA error: out of memory\n"
        b"half a li",
    )
    page = browse(house.bea, theme=theme)
    page.goto(WORKER)
    expect(page.locator(".log .line")).to_have_text(
        [
            "plain <b>not bold</b><script>document.title='mine'</script>",
            "red and green on blue",
            "100% (2 updates folded)",
            "␇bell ⟨U+202E⟩tnorf",
            "RuntimeError: CUDA error: out of memory",
            "half a li",
        ]
    )
    expect(page.locator(".ansi-bold.ansi-1")).to_have_text("red")
    expect(page.locator(".ansi-2")).to_have_text("green")
    expect(page.locator(".ansi-on-4")).to_have_text("on blue")
    expect(page.locator(".line.bad")).to_have_count(1)
    assert page.locator(".log b").count() == 0
    assert page.title() == "Running · ddp-resnet50-0 · Astraeus"
    page.goto(f"{DDP}/log")
    expect(page.locator(".log .rank").first).to_have_text("0")
    assert violations(page) == []
    assert page.errors == []


def test_a_million_lines_stay_smooth(pair, house, browse):
    """Few elements, any line within a moment, a search over everything, errors and addresses of lines."""
    write_many(pair[0], MILLION, {123_455: "NET/IB : no device\n", 765_432: "RuntimeError: boom\n"})
    page = browse(house.bea)
    page.goto(WORKER)
    box = page.locator(".log")
    expect(page.locator(".log.live .line").last).to_contain_text("step 999999 ", timeout=30_000)
    assert page.locator(".log .line").count() < 500

    began = time.monotonic()
    for part in (0.1, 0.35, 0.5, 0.75, 0.9):
        box.evaluate("(box, part) => { box.scrollTop = box.scrollHeight * part; }", part)
        page.wait_for_function(
            "part => { const lines = [...document.querySelectorAll('.log .line')];"
            " return lines.length && lines.every(line => line.textContent.includes('step ')"
            " || /NET|boom/.test(line.textContent))"
            " && Math.abs(Number(lines[0].querySelector('.n').hash.slice(2)) - part * 1e6) < 2000; }",
            arg=part,
        )
        assert page.locator(".log .line").count() < 500
    print(f"five jumps in a log of a million lines: {time.monotonic() - began:.2f} s")  # noqa: T201 - the figure
    expect(page.locator("[data-follow]")).to_have_attribute("aria-pressed", "false")

    page.fill("#log-find", "net/ib")
    began = time.monotonic()
    page.keyboard.press("Enter")
    expect(page.locator("[data-found]")).to_have_text("1 of 1", timeout=60_000)
    print(f"a search over a million lines: {time.monotonic() - began:.2f} s")  # noqa: T201 - the figure
    expect(page.locator(".log .hit")).to_contain_text("NET/IB : no device")
    assert "123,456" in box.evaluate(SIGHT)

    page.click("[data-error]")
    expect(page.locator("[data-note]")).to_have_text("Error 1 of 1, line 765,433", timeout=60_000)
    expect(page.locator(".log .now")).to_contain_text("RuntimeError: boom")
    assert page.url.endswith("#L765433")

    page.goto(f"{WORKER}?again#L500000-L500002")
    expect(page.locator(".log .now")).to_have_count(3)
    assert {"500,000", "500,001", "500,002"} <= set(box.evaluate(SIGHT))
    box.focus()
    page.keyboard.press("End")
    expect(page.locator("[data-follow]")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".log .line").last).to_contain_text("step 999999 ")
    assert "1,000,000" in box.evaluate(SIGHT)
    assert page.errors == []


def test_it_follows_only_at_its_end(pair, house, browse):
    make.log_write(pair[0], b"".join(b"old %d\n" % number for number in range(500)))
    page = browse(house.bea)
    page.goto(WORKER)
    box = page.locator(".log")
    expect(page.locator(".log .line").last).to_contain_text("old 499")
    make.log_write(pair[0], b"new 500\n")
    page.evaluate(PRINTED)
    expect(page.locator(".log .line").last).to_contain_text("new 500")
    box.evaluate("(box) => { box.scrollTop = 100; }")
    expect(page.locator("[data-follow]")).to_have_attribute("aria-pressed", "false")
    top = box.evaluate("(box) => box.scrollTop")
    make.log_write(pair[0], b"new 501\nnew 502\n")
    page.evaluate(PRINTED)
    expect(page.locator("[data-follow]")).to_have_text("Follow · 2 new lines")
    assert box.evaluate("(box) => box.scrollTop") == top
    page.click("[data-follow]")
    expect(page.locator(".log .line").last).to_contain_text("new 502")
    assert page.errors == []


def test_it_works_by_keyboard_only(pair, house, browse):
    make.log_write(
        pair[0], b"".join(b"line %d\n" % number for number in range(900)) + b"ValueError: no\nlast\n"
    )
    page = browse(house.bea, permissions=["clipboard-read", "clipboard-write"])
    page.goto(DDP)
    page.keyboard.press("?")
    expect(page.locator("#help")).to_contain_text("Open the log")
    page.keyboard.press("Escape")
    page.keyboard.press("h")
    expect(page.locator("#history")).to_be_focused()
    page.keyboard.press("l")
    page.wait_for_url(f"**{DDP}/log")
    expect(page.locator(".log .line").last).to_contain_text("last")
    page.keyboard.press("l")
    expect(page.locator(".log")).to_be_focused()
    page.keyboard.press("e")
    expect(page.locator(".log .now")).to_contain_text("ValueError: no")
    page.keyboard.press("/")
    page.keyboard.type("line 44")
    page.keyboard.press("Enter")
    expect(page.locator("[data-found]")).to_have_text("1 of 11")
    page.locator(".log").focus()
    page.keyboard.press("n")
    expect(page.locator("[data-found]")).to_have_text("2 of 11")
    expect(page.locator(".log .hit.now")).to_contain_text("line 440")
    page.keyboard.press("w")
    expect(page.locator("[data-wrap]")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("f")
    expect(page.locator(".log .line").last).to_contain_text("last")
    page.click("[data-link]")
    expect(page.locator("[data-note]")).to_contain_text("Copied #L")
    assert f"{DDP}/log#L" in page.evaluate("navigator.clipboard.readText()")
    assert page.errors == []


def test_what_a_reader_can_have_of_a_log(pair, house, browse):
    """Errors marked beside the scroll bar and read out, times, repeats folded and unfolded, all of it as a file."""
    steps = b"".join(b"step %d loss %d.5\n" % (number, 900 - number) for number in range(900))
    make.log_write(pair[0], b"begin\n" + steps + b"ValueError: no\n" + b"last\n")
    make.log_write(pair[1], b"from one\n")
    page = browse(house.bea)
    page.goto(f"{DDP}/log")
    box = page.locator(".log")
    expect(page.locator(".log .line").last).to_contain_text("from one")
    expect(page.locator(".error-ticks path")).to_have_attribute("d", re.compile(r"^M0 \d+"))
    bad = page.locator(".line.bad .n")
    margin = "getComputedStyle(document.querySelector('.line.bad .n'), '::before').content"
    assert "✕" in page.evaluate(
        margin
    )  # in one piece: lines may be drawn anew between finding one and asking it
    assert bad.get_attribute("aria-label") == "Line 902, an error"

    page.click("[data-times]")
    expect(page.locator(".log .time").last).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$"))

    page.click("[data-folding]")
    expect(page.locator(".log .line")).to_have_count(5)
    folded = page.locator(".log .line").nth(1)
    expect(folded).to_contain_text("step 899 loss 1.5")
    expect(folded.locator(".unfold")).to_have_text("899 lines like it folded")
    assert folded.locator(".n").get_attribute("data-n") == "901"
    make.log_write(pair[0], b"step 1 loss 1\nstep 2 loss 2\nstep 3 loss 3\n")
    page.evaluate(PRINTED)
    expect(page.locator(".log .line")).to_have_count(6)
    page.fill("#log-find", "step 450 ")
    page.keyboard.press("Enter")
    expect(page.locator("[data-found]")).to_have_text("1 of 1")
    assert "901" in box.evaluate(SIGHT)
    expect(folded).to_have_class("line hit now")
    folded.locator(".unfold").click()
    page.click("[aria-label='Next match']")
    expect(page.locator(".log .hit")).to_contain_text("step 450 loss 450.5")
    assert page.locator(".log .unfold").count() <= 1
    page.click("[data-folding]")

    page.click("[data-announce]")
    make.log_write(pair[1], b"RuntimeError: again\n")
    page.evaluate(PRINTED)
    expect(page.locator("#say")).to_have_text("1 new error, line 908", timeout=20_000)
    page.keyboard.press("Control+f")
    expect(page.locator("[data-note]")).to_contain_text("sees only the lines on screen")
    assert page.locator("text=Download").get_attribute("download") == "ddp-resnet50.log"
    assert violations(page) == []
    assert page.errors == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_folds_open_and_close_by_keyboard(pair, house, browse, theme):
    first = b"".join(b"step %d loss 1\n" % number for number in range(400))
    second = b"".join(b"saved part %d\n" % number for number in range(300))
    make.log_write(pair[0], b"begin\n" + first + b"between\n" + second + b"last\n")
    page = browse(house.bea, theme=theme)
    page.goto(f"{DDP}/log")
    lines, focused = page.locator(".log .line"), page.locator(".log .unfold:focus")
    expect(lines.last).to_contain_text("last")
    page.keyboard.press("l")
    page.keyboard.press("z")
    expect(page.locator("[data-note]")).to_have_text("Fold repeats is off")
    page.click("[data-folding]")
    expect(lines).to_have_count(5)
    assert page.locator(".log .unfold").evaluate_all("all => all.map(each => each.tabIndex)") == [-1, -1]

    page.locator(".log").focus()
    page.keyboard.press("z")
    expect(focused).to_have_text("399 lines like it folded")
    expect(focused).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("Enter")
    expect(focused).to_have_attribute("aria-expanded", "true")
    expect(focused).to_have_text("399 lines like it")
    expect(lines.nth(1)).to_contain_text("step 0 loss 1")
    expect(lines.nth(2)).to_contain_text("step 1 loss 1")
    make.log_write(pair[0], b"later\n")
    page.evaluate(PRINTED)
    page.keyboard.press("t")
    expect(page.locator(".log .time").first).to_be_visible()
    expect(focused).to_have_attribute("data-fold", "1")

    page.keyboard.press("z")
    expect(focused).to_have_text("299 lines like it folded")
    assert "702" in page.locator(".log").evaluate(SIGHT)
    page.keyboard.press("z")
    expect(page.locator("#say")).to_have_text("No fold below")
    page.keyboard.press("Shift+Z")
    expect(focused).to_have_attribute("data-fold", "1")
    page.keyboard.press("Space")
    expect(focused).to_have_attribute("aria-expanded", "false")
    expect(lines).to_have_count(6)
    assert violations(page) == []
    assert page.errors == []


def test_a_lost_connection_is_made_good(pair, house, browse):
    make.log_write(pair[0], b"one\n")
    page = browse(house.bea)
    lost = []

    def answer(route):
        lost.append(route)
        if len(lost) == 1:
            route.abort()
        else:
            route.continue_()

    page.route("**/log/lines?*", answer)
    page.goto(WORKER)
    expect(page.locator("[data-note]")).to_have_text("The connection was lost. Trying again.")
    expect(page.locator(".log.live .line")).to_have_text(["one"])
    page.route("**/log/lines?*", lambda route: route.fulfill(status=404, body=""))
    page.evaluate(PRINTED)
    expect(page.locator("[data-note]")).to_have_text("This log is no longer here.")


def test_a_restarted_runs_log_goes_on_with_the_next_attempt(pair, house, browse):
    make.log_write(pair[1], b"first words\n")
    make.run_fail(pair[0].attempt)  # of which rank 1 is to blame
    page = browse(house.bea)
    page.goto(DDP)
    expect(page.locator(".log.live .line")).to_have_text(["first words"])
    again = make.run_place(house, pair[0].attempt.run, [each.machine for each in pair])
    make.run_start(again)
    make.log_write(again.assignments.get(worker__rank=1), b"second words\n")
    page.evaluate(PRINTED)
    expect(page.locator(".log.live .line")).to_contain_text(["second words"])


def test_without_javascript_the_last_lines_stand_in_the_page(pair, house, browse):
    make.log_write(pair[0], b"".join(b"line %d\n" % number for number in range(1500)))
    page = browse(house.bea, java_script_enabled=False)
    page.goto(WORKER)
    expect(page.locator(".log .line")).to_have_count(1000)
    expect(page.locator(".log .line").last).to_have_text("line 1499")
    expect(page.locator("a:has-text('Download')")).to_have_attribute(
        "href", "/api/v1" + WORKER + "/logs?attempt=1"
    )


@pytest.mark.parametrize("width", [390, 320])
def test_it_fits_a_phone(pair, house, browse, width):
    make.log_write(pair[0], b"a long line " * 40 + b"\nshort\n")
    page = browse(house.bea, viewport={"width": width, "height": 800})
    for address in (WORKER, f"{DDP}/log"):
        page.goto(address)
        expect(page.locator(".log.live .line")).to_have_count(2)
        expect(page.locator(".log.wrap")).to_have_count(1)
        expect(page.locator("[data-times]")).to_be_hidden()
        page.click("[data-more]")
        expect(page.locator("[data-times]")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, address
