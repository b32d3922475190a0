"""The Machines page: one filtered list, in pages by name."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console.pages.errors import is_fragment, page
from console.pages.machine_filters import NOT_KNOWN, Filters, choices_of
from console.pages.machine_rows import machine_rows, machines_for_rows
from console.pages.scope import cluster_scope
from machines.models import Machine

PAGE_SIZE = 100


@page
@require_safe
def machine_list(request: HttpRequest, organization: str, cluster: str) -> HttpResponse:
    scope = cluster_scope(request, organization, cluster)
    filters = Filters.of(request.GET)
    machines = filters.apply(Machine.objects.filter(cluster=scope.cluster))
    after = request.GET.get("after", "")
    found = list(machines_for_rows(machines.filter(name__gt=after)).order_by("name")[: PAGE_SIZE + 1])
    context = {
        "scope": scope,
        "section": "machines",
        "rows": machine_rows(found[:PAGE_SIZE]),
        "older": found[PAGE_SIZE - 1].name if len(found) > PAGE_SIZE else None,
        "after": after,
        "filters": filters,
    }
    if is_fragment(request):
        return render(request, "machines/list.html#live", {**context, "oob": True})
    context |= {"choices": choices_of(scope.cluster_here), "not_known": NOT_KNOWN, "view": "table"}
    return render(request, "machines/list.html", context)
