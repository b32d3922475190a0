"""What a server does before its first request."""

import gc

import pytest

from console import loading
from console.pages import queue


@pytest.fixture
def loaded():
    usual = gc.get_threshold()
    loading.load()
    yield
    gc.set_threshold(*usual)
    gc.unfreeze()


def test_the_garbage_collector_leaves_what_is_loaded_alone(loaded):
    looked_at = {id(each) for each in gc.get_objects()}
    assert id(vars(queue)) not in looked_at

    begun_since = [object()]
    assert id(begun_since) in {id(each) for each in gc.get_objects()}
