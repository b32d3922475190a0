"""A run whose workers start on their own, on its page, its workers' pages and in the list."""

import html

import pytest

from tests import factories as make
from tests.support.families import independent

RUNS = "/o/acme/w/vision/jobs"
SWEEP = "/o/acme/w/vision/jobs/main/sweep"
WORKER = "/o/acme/w/vision/workers/sweep"


def text(answer):
    assert answer.status_code == 200
    return html.unescape(answer.content.decode())


@pytest.fixture
def family(house):
    """Two of three workers run; the third waits for them."""
    for name in ("gpu-01", "gpu-02"):
        make.machine_make(house, name)
    return independent(house, workers=3).start(0, 1)


def test_its_page_shows_every_worker_with_a_reason_of_its_own(family, bea):
    page = text(bea.get(SWEEP))
    assert 'data-say="sweep is Running: 2 of 3 workers running, 1 waits"' in page
    assert "waits with the whole run" not in page
    assert "Every machine of this cluster already has a worker of this run (2)." in page
    assert [name in page for name in ("sweep-0", "sweep-1", "sweep-2")] == [True] * 3
    assert "<b>ready</b>" not in page, "nobody waits for others to be ready"
    assert "Both workers get SIGTERM and 30 s, then SIGKILL. 16 GPUs become free." in text(
        bea.get(f"{SWEEP}/stop")
    )


def test_a_worker_that_waits_is_explained_by_itself(family, bea):
    page = text(bea.get(f"{WORKER}-2"))
    assert "Why it is not running yet" in page
    assert "start together" not in page
    assert f"{WORKER}-1" in page, "its neighbour"
    running = text(bea.get(f"{WORKER}-0"))
    assert "Running on gpu-01" in running
    assert "Why it is not running yet" not in running


def test_in_the_list_it_is_one_line_that_says_what_its_first_worker_lacks(house, bea):
    make.machine_make(house, "gpu-01", gpus=4)
    independent(house, workers=2, gpus=4)
    independent(house, "other", workers=2, gpus=4)
    page = text(bea.get(RUNS))
    assert page.count(">sweep<") == page.count(">other<") == 1
    assert "sweep-0" not in page
    assert "2 of 2 workers wait. 1 machine with 4 free H100s is needed" in page


def test_while_all_wait_its_page_explains_the_first(house, bea):
    independent(house, workers=2)
    page = text(bea.get(SWEEP))
    assert "2 of 2 workers wait. This cluster has no machines." in page
    assert "Why it is waiting" in page
