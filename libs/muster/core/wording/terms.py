"""The terms of a quota API: an ElasticQuotaTree has quotas with min and max, KAI has queues with quota and limit."""

from __future__ import annotations

from typing import NamedTuple

from muster.model.demand import Shortfall
from muster.model.quota import KAI_ROOT
from muster.model.resources import format_quantity


class Terms(NamedTuple):
    """``where``: a quota or queue, as its owners name it; ``least`` and ``most``: its guarantee and its limit."""

    where: str
    least: str
    most: str
    firm: str = "non-preemptible"
    owed: str = "min"
    """Up to which a queue may reclaim quota from other queues,"""
    right: str = "guarantee"
    """and the name of that right."""


def terms(path: str) -> Terms:
    """Those of the API that a path belongs to."""
    if path.partition("/")[0] != KAI_ROOT:
        return Terms(f"quota {path}", "min", "max")
    kai = Terms(f"queue {path.rpartition('/')[2]}", "quota", "limit", owed="fair share", right="fair share")
    return kai._replace(where="the cluster", most="capacity") if path == KAI_ROOT else kai


def amounts(short: Shortfall, limit: str, by: str = "") -> str:
    """``request 8, max 64, used 61, held 8 for video/big``. ``limit``: its name; ``by``: which jobs use it."""
    asked, most, used = (format_quantity(each, short.resource) for each in (short.asked, short.limit, short.used))
    return f"request {asked}, {limit} {most}, used {used}{f' by {by}' if by else ''}{beside(short)}"


def beside(short: Shortfall) -> str:
    """Quota that is neither used nor free; empty where there is none."""
    held, kept = (format_quantity(each, short.resource) for each in (short.held, short.kept))
    said = f", held {held} for {short.claimant or 'others'}" if short.held else ""
    return f"{said}, kept {kept} for the guarantees of others" if short.kept else said
