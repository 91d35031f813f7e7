"""Work taken by workers that have just joined. Pure.

For some seconds a head still counts a task as waiting although a new worker has taken the task: the head's count of
waiting tasks comes later than the worker's report of free resources. Until then the taken resources count as free, so
that nothing is asked for a second time.
"""

from __future__ import annotations

from muster.ray.reading import Reading

JOINS_MS = 30_000
"""How long a worker is new."""
LATE_MS = 5_000
"""How much later the head counts."""


class Joining:
    """What is known of the nodes of one head, reading by reading."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}
        """id of a node -> when it was first seen; 0: it was there when we came"""
        self._free: dict[str, dict[str, int]] = {}
        self._taken: dict[str, tuple[int, dict[str, int]]] = {}

    def taken(self, reading: Reading, now: int) -> dict[str, dict[str, int]]:
        """{id of a node: what it took a moment ago}"""
        first = not self._since
        for node in reading.nodes:
            since = self._since.setdefault(node.id, 0 if first else now)
            before = self._free.get(node.id, node.total)
            took = {name: more for name, whole in before.items() if (more := whole - node.free.get(name, 0)) > 0}
            if took and node.total and since and now - since < JOINS_MS:
                known = self._taken.get(node.id, (0, {}))[1]
                names = {**known, **took}
                self._taken[node.id] = (now, {name: known.get(name, 0) + took.get(name, 0) for name in names})
        there = {node.id: node.free for node in reading.nodes}
        self._free = there
        self._since = {pod: since for pod, since in self._since.items() if pod in there}
        self._taken = {
            pod: (at, took) for pod, (at, took) in self._taken.items() if pod in there and now - at < LATE_MS
        }
        return {pod: took for pod, (_, took) in self._taken.items()}
