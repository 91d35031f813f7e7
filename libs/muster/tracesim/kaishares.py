"""KAI's fair shares: deserved quota first, the rest by weight in whole GPUs, the left-over GPUs by the largest part."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from msgspec import Struct

from muster.tracesim.model import GPU, WHOLE, TraceQueue

UNLIMITED = 2**62


class Bar(Struct):
    """The fixed part of a queue; GPUs in base units."""

    path: str
    deserved: int
    limit: int
    weight: int
    priority: int
    place: int
    """The place among all queues."""
    children: tuple[Bar, ...]


def bars(root: TraceQueue) -> Bar:
    """The tree. The weight of a queue without a weight is the deserved GPUs; equal where all siblings have neither."""
    places = {queue.path: place for place, queue in enumerate(root.walk())}

    def made(queue: TraceQueue, weight: int) -> Bar:
        weights = [child.weight * WHOLE if child.weight else child.min.get(GPU, 0) for child in queue.children]
        if not any(weights):
            weights = [WHOLE] * len(weights)
        below = tuple(made(child, part) for child, part in zip(queue.children, weights, strict=True))
        limit = queue.max.get(GPU, UNLIMITED)
        return Bar(queue.path, queue.min.get(GPU, 0), limit, weight, queue.priority, places[queue.path], below)

    return made(root, WHOLE)


def fair_shares(root: Bar, capacity: int, asked: Mapping[str, int]) -> dict[str, int]:
    """Path of each queue below the root -> its fair share, when the leaves run and wait for ``asked``."""
    shares: dict[str, int] = {}
    wanted: dict[str, int] = {}

    def ask(bar: Bar) -> int:
        below = sum(ask(child) for child in bar.children) if bar.children else asked.get(bar.path, 0)
        wanted[bar.path] = min(below, bar.limit)
        return wanted[bar.path]

    def share(bar: Bar) -> None:
        shares.update(_divided(shares[bar.path], bar.children, wanted))
        for child in bar.children:
            if child.children:
                share(child)

    ask(root)
    shares[root.path] = capacity
    share(root)
    return shares


def _divided(total: int, children: tuple[Bar, ...], wanted: Mapping[str, int]) -> dict[str, int]:
    """The share of each child: deserved quota first; then by weight, higher priorities before lower."""
    shares = {bar.path: min(bar.deserved, wanted[bar.path]) for bar in children}
    left = total - sum(shares.values())
    rests = []
    for priority in sorted({bar.priority for bar in children}, reverse=True):
        alike = [bar for bar in children if bar.priority == priority]
        left, rest = _by_weight(left, alike, shares, wanted)
        rests.append((alike, rest))
    for alike, rest in rests:
        for bar in sorted((bar for bar in alike if bar.path in rest), key=lambda bar: (-rest[bar.path], bar.place)):
            more = max(min(WHOLE, left), 0)
            shares[bar.path] += more
            left -= more
    return shares


def _by_weight(
    left: int, bars: list[Bar], shares: dict[str, int], wanted: Mapping[str, int]
) -> tuple[int, dict[str, Fraction]]:
    """Rounds of the remaining GPUs by weight, in whole GPUs, as long as a queue wants less than the queue's part.

    (remaining GPUs, queue -> missing part of a GPU)
    """
    rest: dict[str, Fraction] = {}
    again = True
    while again and left > 0:
        again = False
        open_ = [bar for bar in bars if wanted[bar.path] > shares[bar.path] and bar.weight]
        weights, whole = sum(bar.weight for bar in open_), left
        for bar in open_:
            if left <= 0:
                break
            part, want = Fraction(whole * bar.weight, weights), wanted[bar.path] - shares[bar.path]
            if want <= part:
                more = min(want, left)
                rest.pop(bar.path, None)
            else:
                more = int(part) // WHOLE * WHOLE
                if part > more:
                    rest[bar.path] = part - more
            shares[bar.path] += more
            left -= more
            again = again or (more > 0 and want < part)
    return left, rest
