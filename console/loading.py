"""What a server does once, before it takes its first request."""

import gc

from django.urls import get_resolver

NEW_OBJECTS = 10_000
"""A collection for so many that are new. A page makes tens of thousands that go without one: at Python's 700 each page
begins dozens."""


def load() -> None:
    """Loads every page, and keeps the garbage collector from what is loaded: it stays for as long as the process.

    A page of many lines makes the collector look at everything that lives, several times a second: at 170,000 objects
    of modules, models and addresses, of which none ever goes.
    """
    _ = get_resolver().url_patterns
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
