"""The database's clock: deadlines are compared by one clock, whichever process compares them."""

from datetime import datetime

from django.db import connection


def database_now() -> datetime:
    """Now, by the database, also inside a long transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row = cursor.fetchone()
    now: datetime = row[0]
    return now
