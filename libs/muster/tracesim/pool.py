"""The free amounts of a cluster, as one pool: gangs take their whole request or nothing."""

from __future__ import annotations

from muster.model.resources import Vector


class Pool:
    """``free`` names what is limited; everything else is ample. May be below zero after a loss of nodes."""

    def __init__(self, capacity: Vector) -> None:
        self.free = dict(capacity)

    def fits(self, request: Vector) -> bool:
        free = self.free
        return all(amount <= free.get(name, amount) for name, amount in request.items())

    def take(self, request: Vector) -> bool:
        """Take all of it, if there is room."""
        if not self.fits(request):
            return False
        self.add(request, -1)
        return True

    def give(self, request: Vector) -> None:
        self.add(request, 1)

    def add(self, request: Vector, times: int) -> None:
        free = self.free
        for name, amount in request.items():
            if name in free:
                free[name] += amount * times
