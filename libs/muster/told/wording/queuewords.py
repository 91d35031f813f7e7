"""Queues in English: pace, status, and shares.

Why a queue's fair share is as large as it is, in words and numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from muster.core import learned
from muster.core.learned import ENOUGH_ADMISSIONS, Estimate
from muster.core.promising import promises
from muster.core.quota.division.dividing import UNLIMITED, Divided
from muster.events.shares import SharesChanged
from muster.model.resources import format_quantity, format_vector
from muster.model.text import counted, instant, span
from muster.told.codes.codetable import CODES
from muster.told.codes.values import NoPromise, Promise

# --- queues -----------------------------------------------------------------------------------------------------------


def no_estimate(estimate: Estimate) -> str:
    """Why nothing can be said; empty where something can."""
    match estimate.why:
        case "too_few":
            seen = f"{counted(estimate.intervals, 'admission')} in a row were seen in this queue while jobs waited"
            return f"{seen}; {ENOUGH_ADMISSIONS} are needed"
        case "overdue":
            return "its wait is longer already than nearly all waits of this queue"
        case _:
            return ""


def estimate(pace: Estimate, position: int, queue: str) -> str:
    """``About 12 min, in 8 of 10 cases between 5 min and 31 min: ...``."""
    spans = f"About {span(pace.middle)}, in 8 of 10 cases between {span(pace.low)} and {span(pace.high)}"
    if not pace.rows:
        return (
            f"{spans}: {position} times the mean of {pace.intervals} waits between admissions from {queue}, which has "
            "not admitted so many in a row yet."
        )
    rows = f"{counted(position, 'admission')} in a row" if position > 1 else "an admission"
    return f"{spans}: so long {rows} from {queue} took {pace.rows} times while jobs waited."


def promised_start(promise: Promise, now: int) -> str:
    """``Starts at about 2026-03-01T09:12Z (in 12 min), and by 2026-03-01T10:00Z (in 1 h), meant to hold in ...``."""
    start, latest = (f"{instant(at)[:16]}Z (in {span(max(0, at - now))})" for at in (promise.start, promise.latest))
    text = f"Starts at about {start}, and by {latest}, meant to hold in 9 of 10 cases"
    if promise.first and promise.first // 60_000 != promise.latest // 60_000:
        text += f" (first promised by {instant(promise.first)[:16]}Z)"
    if not promise.settled:
        return f"{text}: projected from how long such jobs ran; no promise after such a wait has been settled yet"
    share = f" ({100 * promise.kept // promise.settled} of 100)" if promise.settled >= 100 else ""
    kept = f"of {promise.settled:,} promises after such waits {promise.kept:,} were kept{share}"
    return f"{text}: projected from how long such jobs ran; {kept}"


def no_promise(why: NoPromise | Literal[""], standing: str) -> str:
    """Why no start is promised; empty with a promise. ``standing``: the code of the job."""
    match why:
        case "not_waiting":
            return "it does not wait in a queue"
        case "standing":
            if standing in CODES and CODES[standing].lasts == "final":
                return "it cannot start until it, or its quota, is changed"
            return f"how long {standing} lasts does not follow from its queue"
        case "few_runs":
            return f"fewer than {learned.ENOUGH_RUNS} runs have ended, so run times cannot be projected"
        case "few_waits":
            few = f"fewer than {promises.ENOUGH_WAITS} jobs of its size have started after a wait as long"
            return f"{few}, so no projection can be trusted yet"
        case "endless":
            return "too few of the jobs ahead of it are known to end"
        case _:
            return ""


NOT_IN_FORCE = "it is not in force yet"


def over_quota(names: str) -> str:
    """A queue borrows. ``names``: the resources, with commas."""
    return f"it uses more than its quota of {names}"


def reclaim_off(tree: str, *, declared: bool) -> tuple[str, str]:
    """(sentence: no queue of a tree reclaims quota, and why; the command that enables reclaim). ``tree``:
    namespace/name.

    ``declared``: the tree itself turns reclaim off; else jobs ran at first sight.
    """
    off = f"reclaim is off in ElasticQuotaTree {tree}: "
    if declared:
        namespace, _, name = tree.partition("/")
        command = f"kubectl annotate elasticquotatree -n {namespace} {name} muster.dev/reclaim=enabled --overwrite"
        return f"{off}its annotation muster.dev/reclaim is disabled", f"`{command}` enables it"
    why = "jobs that Muster had not admitted were running when it first saw the cluster"
    return off + why, "`muster resume evictions` enables it"


# --- fair shares ------------------------------------------------------------------------------------------------------


UNBOUNDED = 10**30
"""A request of so much or more reads as all there is."""


def why_share(divided: Divided, show: Callable[[int], str], *, usage: str = "") -> str:
    """One sentence with the steps of ``fairshare``. ``usage``: the past usage, where past usage counts."""
    sharer, share = divided.sharer, divided.share
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
        parts.append(_surplus(divided, show, wanted, usage))
    if share.left_over:
        over = ", past its request" if share.amount > sharer.requestable else ""
        parts.append(f"{show(share.left_over)} that rounding left over{over}")
    return "; ".join(parts)


def _surplus(divided: Divided, show: Callable[[int], str], wanted: int, usage: str) -> str:
    sharer, share = divided.sharer, divided.share
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
    """The past usage with its noun, the capacity."""
    used = used_lately(millionths)
    return f"{used} of the capacity" if used else ""


def told_shares(event: SharesChanged) -> str:
    """The queues with a new fair share, and the past usage of the queues."""
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
    """A quota in a tree: min, max, and the amount by weight if less."""
    guarantee = f"min {format_quantity(least, name)}" if least else "no min"
    guarantee += f", max {format_quantity(limit, name)}" if limit is not None else ", no max"
    if most is not None and most != limit:
        guarantee += f"; by weight it may use {format_quantity(most, name)} now"
    return guarantee
