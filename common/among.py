"""Rows by hundreds of ids."""

from collections.abc import Collection

from django.db.models import BooleanField, F, Func, Q, Value


def among(field: str, ids: Collection[int]) -> Func | Q:
    """Whether `field` is one of these, for `filter`.

    PostgreSQL gets them as one array: as so many parameters of an `IN` they take longer than the query itself.
    """
    if not ids:
        return Q((f"{field}__in", ()))  # for which Django asks nothing
    array = Value(f"{{{','.join(map(str, ids))}}}")
    return Func(
        F(field),
        array,
        template="%(expressions)s::bigint[])",
        arg_joiner=" = ANY(",
        output_field=BooleanField(),
    )
