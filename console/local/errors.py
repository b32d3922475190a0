"""The one kind of error that `./dev` prints as a sentence instead of a traceback."""


class LocalError(Exception):
    """What was wrong, where, and what to do: the text is shown to the person at the terminal as it is."""
