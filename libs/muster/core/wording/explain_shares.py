"""Why a queue's fair share is what it is, in words and numbers."""

from __future__ import annotations

from collections.abc import Callable

from muster.core.quota.division.fairshare import UNLIMITED
from muster.core.quota.division.fairtree import Divided
from muster.events.shares import SharesChanged
from muster.model.resources import format_quantity, format_vector

UNBOUNDED = 10**30
"""A request of so much or more reads as all there is."""


def why_share(found: Divided, show: Callable[[int], str], *, usage: str = "") -> str:
    """One sentence, as ``fairshare`` got there. ``usage``: its past usage, where that counts."""
    sharer, share = found.sharer, found.share
    asked = "all there is" if sharer.request >= UNBOUNDED else show(sharer.request)
    if sharer.request == 0:
        return "it asks for nothing"
    parts = [f"asks for {asked}"]
    if sharer.limit != UNLIMITED and sharer.limit < sharer.request:
        parts[0] += f", of which its limit allows {show(sharer.limit)}"
    quota = "an unlimited quota" if sharer.quota == UNLIMITED else f"its quota of {show(sharer.quota)}"
    parts.append(f"{show(share.quota)} of {quota}" if sharer.quota else "no quota")
    wanted = sharer.requestable - share.quota
    if share.surplus or share.left_over or wanted > 0:
        parts.append(_surplus(found, show, wanted, usage))
    if share.left_over:
        over = ", past its request" if share.amount > sharer.requestable else ""
        parts.append(f"{show(share.left_over)} that rounding left over{over}")
    return "; ".join(parts)


def _surplus(found: Divided, show: Callable[[int], str], wanted: int, usage: str) -> str:
    sharer, share = found.sharer, found.share
    own, whole = share.weight_of
    if not sharer.weight:
        return "no surplus, as its weight is 0"
    if not whole:
        reason = f"used {usage} lately" if usage and usage != "0" else f"none was left at priority {sharer.priority}"
        return f"no surplus: {reason}"
    part = own * 1000 // whole
    percent = f"{part // 10}" + (f".{part % 10}" if part % 10 else "") + " %"
    of = f"of a surplus of {show(share.surplus_seen)} at priority {sharer.priority}"
    first = f" in the first of {share.rounds} rounds" if share.rounds > 1 else ""
    heed = f", heeding that it used {usage} lately" if usage and usage != "0" else ""
    enough = ", all it still wanted" if share.surplus == wanted else ""
    return f"{show(share.surplus)} {of}, where its weight is worth {percent}{first}{heed}{enough}"


def used_lately(millionths: int) -> str:
    """The past usage of a queue, as a part of the capacity; empty for none."""
    tenths = millionths // 1000
    return f"{tenths // 10}.{tenths % 10} %" if tenths else ""


def lately_of_all(millionths: int) -> str:
    """The same, with the noun it is a part of."""
    used = used_lately(millionths)
    return f"{used} of the capacity" if used else ""


def told_shares(event: SharesChanged) -> str:
    """Which queues have a new fair share, and their past usage."""
    changed = sorted(event.shares)[:_SHOWN]
    parts = [f"fair share of {_name(path)}: {format_vector(event.shares[path])}" for path in changed]
    parts += [f"and {len(event.shares) - _SHOWN} more queues have a new share"] if len(event.shares) > _SHOWN else []
    for path in sorted(event.usage)[:_SHOWN]:
        used = ", ".join(f"{used_lately(part)} of {name}" for name, part in sorted(event.usage[path].items()))
        parts.append(f"{_name(path)} used lately {used or 'nothing'}")
    return "; ".join(parts)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


_SHOWN = 6


def tree_share(name: str, least: int, limit: int | None, most: int | None) -> str:
    """The same of a quota in a tree: its min, its max, and the amount by weight where that is less."""
    said = f"min {format_quantity(least, name)}" if least else "no min"
    said += f", max {format_quantity(limit, name)}" if limit is not None else ", no max"
    if most is not None and most != limit:
        said += f"; by weight it may use {format_quantity(most, name)} now"
    return said
