"""A small maximum flow: machines of several kinds shared out among groups that each need so many.

source → group (as many as it needs) → place (one, where the group is spread) → kind of machine (as many as there are)
"""

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

_Graph = dict[Hashable, dict[Hashable, int]]

_SOURCE, _SINK = "source", "sink"


@dataclass(frozen=True, slots=True)
class Supply:
    """Machines that are alike to every group."""

    count: int
    places: tuple[int | None, ...]
    """Per group: the place where they stand for its `spread`, or None when the group cannot use them."""


def share_out(
    supplies: Sequence[Supply], needed: Sequence[int], spread: Sequence[bool]
) -> list[list[int]] | None:
    """Per supply and group, how many machines the group takes there; None when not all needs can be met.

    A group that is spread takes at most one machine in each place.
    """
    graph = _graph(supplies, needed, spread)
    if _fill(graph) < sum(needed):
        return None
    # What has flowed towards a supply is the capacity of the edge back.
    shares = [[0] * len(needed) for _ in supplies]
    for number, share in enumerate(shares):
        for node, flowed in graph[("supply", number)].items():
            if isinstance(node, tuple) and node[0] in ("group", "place"):
                share[node[1]] += flowed
    return shares


def _graph(supplies: Sequence[Supply], needed: Sequence[int], spread: Sequence[bool]) -> _Graph:
    graph: _Graph = {_SOURCE: {}, _SINK: {}}

    def edge(tail: Hashable, head: Hashable, capacity: int) -> None:
        graph.setdefault(tail, {})[head] = capacity
        graph.setdefault(head, {}).setdefault(tail, 0)

    for group, workers in enumerate(needed):
        edge(_SOURCE, ("group", group), workers)
    for number, supply in enumerate(supplies):
        edge(("supply", number), _SINK, supply.count)
        for group, place in enumerate(supply.places):
            if place is None:
                continue
            if spread[group]:
                edge(("group", group), ("place", group, place), 1)
                edge(("place", group, place), ("supply", number), 1)
            else:
                edge(("group", group), ("supply", number), supply.count)
    return graph


def _fill(graph: _Graph) -> int:
    """Push flow along shortest free paths until there is none; returns the flow."""
    flow = 0
    while path := _free_path(graph):
        pushed = min(graph[tail][head] for tail, head in path)
        for tail, head in path:
            graph[tail][head] -= pushed
            graph[head][tail] += pushed
        flow += pushed
    return flow


def _free_path(graph: _Graph) -> list[tuple[Hashable, Hashable]]:
    reached: dict[Hashable, Hashable] = {_SOURCE: _SOURCE}
    queue: deque[Hashable] = deque([_SOURCE])
    while queue and _SINK not in reached:
        tail = queue.popleft()
        for head, capacity in graph[tail].items():
            if capacity > 0 and head not in reached:
                reached[head] = tail
                queue.append(head)
    if _SINK not in reached:
        return []
    path: list[tuple[Hashable, Hashable]] = []
    node: Hashable = _SINK
    while node != _SOURCE:
        path.append((reached[node], node))
        node = reached[node]
    return path
