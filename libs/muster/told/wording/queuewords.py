"""Queues in English: pace, status, and shares.

Why a queue's fair share is as large as it is, in words and numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from muster.core import learned
from muster.core.learned import ENOUGH_ADMISSIONS, Estimate
from muster.core.quota.division.dividing import UNLIMITED, Divided
from muster.events.shares import SharesChanged
from muster.model.language import listed, say
from muster.model.resources import format_quantity, format_vector
from muster.model.text import counted, instant, span
from muster.told.codes.codetable import CODES
from muster.told.codes.values import NoPromise, Promise

# --- queues -----------------------------------------------------------------------------------------------------------


def no_estimate(estimate: Estimate) -> str:
    """Why nothing can be said; empty where something can."""
    match estimate.why:
        case "too_few":
            seen = say(
                "{intervals} in a row were seen in this queue while jobs waited",
                intervals=counted(estimate.intervals, "admission"),
            )
            return say("{seen}; {enough} are needed", seen=seen, enough=ENOUGH_ADMISSIONS)
        case "overdue":
            return say("its wait is longer already than nearly all waits of this queue")
        case _:
            return ""


def estimate(pace: Estimate, position: int, queue: str) -> str:
    """``About 12 min, in 8 of 10 cases between 5 min and 31 min: ...``."""
    spans = say(
        "About {middle}, in 8 of 10 cases between {low} and {high}",
        middle=span(pace.middle),
        low=span(pace.low),
        high=span(pace.high),
    )
    if not pace.rows:
        return say(
            "{spans}: {position} times the mean of {intervals} waits between admissions from {queue}, which has "
            "not admitted so many in a row yet.",
            spans=spans,
            position=position,
            intervals=pace.intervals,
            queue=queue,
        )
    rows = say("{position} in a row", position=counted(position, "admission")) if position > 1 else say("an admission")
    return say(
        "{spans}: so long {rows} from {queue} took {times} times while jobs waited.",
        spans=spans,
        rows=rows,
        queue=queue,
        times=pace.rows,
    )


def promised_start(promise: Promise, now: int) -> str:
    """``Starts at about 2026-03-01T09:12Z (in 12 min), and by 2026-03-01T10:00Z (in 1 h), meant to hold in ...``."""
    start, latest = (
        say("{at}Z (in {value})", at=instant(at)[:16], value=span(max(0, at - now)))
        for at in (promise.start, promise.latest)
    )
    text = say("Starts at about {start}, and by {latest}, meant to hold in 9 of 10 cases", start=start, latest=latest)
    if promise.first and promise.first // 60_000 != promise.latest // 60_000:
        text += say(" (first promised by {first}Z)", first=instant(promise.first)[:16])
    if not promise.settled:
        return say(
            "{text}: projected from how long such jobs ran; no promise after such a wait has been settled yet",
            text=text,
        )
    share = say(" ({kept} of 100)", kept=100 * promise.kept // promise.settled) if promise.settled >= 100 else ""
    kept = say(
        "of {settled} promises after such waits {kept} were kept{share}",
        settled=f"{promise.settled:,}",
        kept=f"{promise.kept:,}",
        share=share,
    )
    return say("{text}: projected from how long such jobs ran; {kept}", text=text, kept=kept)


def no_promise(why: NoPromise | Literal[""], standing: str) -> str:
    """Why no start is promised; empty with a promise. ``standing``: the code of the job."""
    match why:
        case "not_waiting":
            return say("it does not wait in a queue")
        case "standing":
            if standing in CODES and CODES[standing].lasts == "final":
                return say("it cannot start until it, or its quota, is changed")
            return say("how long {standing} lasts does not follow from its queue", standing=standing)
        case "few_runs":
            return say(
                "fewer than {enough} runs have ended, so run times cannot be projected",
                enough=learned.ENOUGH_RUNS,
            )
        case "few_waits":
            few = say(
                "fewer than {enough} jobs of its size have started after a wait as long",
                enough=learned.ENOUGH_WAITS,
            )
            return say("{few}, so no projection can be trusted yet", few=few)
        case "endless":
            return say("too few of the jobs ahead of it are known to end")
        case _:
            return ""


NOT_IN_FORCE = "it is not in force yet"


def over_quota(names: str) -> str:
    """A queue borrows. ``names``: the resources, with commas."""
    return say("it uses more than its quota of {names}", names=names)


def capacity_lowered(lacking: Iterable[tuple[str, int, int]], queues: Sequence[str], more: int) -> str:
    """Nodes of a tree that follows the nodes cannot serve. ``lacking``: (resource, amount on these nodes, amount of all
    nodes); ``queues``: the first queues whose claimants are owed less, with amounts; ``more``: how many others.
    """
    parts = [
        say(
            "{amount} of {whole} {resource}",
            amount=format_quantity(amount, name),
            whole=format_quantity(whole, name),
            resource=name,
        )
        for name, amount, whole in lacking
    ]
    on = say("{parts}: on nodes that are not ready or cordoned", parts=listed(parts))
    if not queues:
        return say("{on}. All guarantees can still be given", on=on)
    hidden = say(", and {more} more", more=more) if more else ""
    return say(
        "{on}. Until these nodes serve again, jobs that wait are owed less: {queues}{hidden}. No max changes, and what "
        "runs within its min stays",
        on=on,
        queues=", ".join(queues),
        hidden=hidden,
    )


def owed_now(queue: str, owed: int, least: int, resource: str) -> str:
    """What a queue is owed of a resource, in place of its min."""
    return say(
        "{queue} {owed} in place of {least} {resource}",
        queue=queue,
        owed=format_quantity(owed, resource),
        least=format_quantity(least, resource),
        resource=resource,
    )


def reclaim_off(tree: str, *, declared: bool) -> tuple[str, str]:
    """(sentence: no queue of a tree reclaims quota, and why; the command that enables reclaim). ``tree``:
    namespace/name.

    ``declared``: the tree itself turns reclaim off; else jobs ran at first sight.
    """
    off = say("reclaim is off in ElasticQuotaTree {tree}: ", tree=tree)
    if declared:
        namespace, _, name = tree.partition("/")
        command = f"kubectl annotate elasticquotatree -n {namespace} {name} muster.dev/reclaim=enabled --overwrite"
        return say("{off}its annotation muster.dev/reclaim is disabled", off=off), say(
            "`{command}` enables it", command=command
        )
    why = say("jobs that Muster had not admitted were running when it first saw the cluster")
    return off + why, say("`muster resume evictions` enables it")


# --- fair shares ------------------------------------------------------------------------------------------------------


UNBOUNDED = 10**30
"""A request of so much or more reads as all there is."""


def why_share(divided: Divided, show: Callable[[int], str], *, usage: str = "") -> str:
    """One sentence with the steps of ``fairshare``. ``usage``: the past usage, where past usage counts."""
    sharer, share = divided.sharer, divided.share
    asked = say("all there is") if sharer.request >= UNBOUNDED else show(sharer.request)
    if sharer.request == 0:
        return say("it asks for nothing")
    parts = [say("asks for {asked}", asked=asked)]
    if sharer.limit != UNLIMITED and sharer.limit < sharer.request:
        parts[0] += say(", of which its limit allows {show}", show=show(sharer.limit))
    quota = (
        say("an unlimited quota") if sharer.quota == UNLIMITED else say("its quota of {show}", show=show(sharer.quota))
    )
    parts.append(say("{show} of {quota}", show=show(share.quota), quota=quota) if sharer.quota else say("no quota"))
    wanted = sharer.requestable - share.quota
    if share.surplus or share.left_over or wanted > 0:
        parts.append(_surplus(divided, show, wanted, usage))
    if share.left_over:
        over = say(", past its request") if share.amount > sharer.requestable else ""
        parts.append(say("{show} that rounding left over{over}", show=show(share.left_over), over=over))
    return say("; ").join(parts)


def _surplus(divided: Divided, show: Callable[[int], str], wanted: int, usage: str) -> str:
    sharer, share = divided.sharer, divided.share
    own, whole = share.weight_of
    if not sharer.weight:
        return say("no surplus, as its weight is 0")
    if not whole:
        reason = (
            say("used {usage} lately", usage=usage)
            if usage and usage != "0"
            else say("none was left at priority {priority}", priority=sharer.priority)
        )
        return say("no surplus: {reason}", reason=reason)
    part = own * 1000 // whole
    percent = f"{part // 10}" + (f".{part % 10}" if part % 10 else "") + " %"
    of = say("of a surplus of {show} at priority {priority}", show=show(share.surplus_seen), priority=sharer.priority)
    first = say(" in the first of {rounds} rounds", rounds=share.rounds) if share.rounds > 1 else ""
    heed = say(", heeding that it used {usage} lately", usage=usage) if usage and usage != "0" else ""
    enough = say(", all it still wanted") if share.surplus == wanted else ""
    return say(
        "{show} {of}, where its weight is worth {percent}{first}{heed}{enough}",
        show=show(share.surplus),
        of=of,
        percent=percent,
        first=first,
        heed=heed,
        enough=enough,
    )


def used_lately(millionths: int) -> str:
    """The past usage of a queue, as a part of the capacity; empty for none."""
    tenths = millionths // 1000
    return f"{tenths // 10}.{tenths % 10} %" if tenths else ""


def lately_of_all(millionths: int) -> str:
    """The past usage with its noun, the capacity."""
    used = used_lately(millionths)
    return say("{used} of the capacity", used=used) if used else ""


def told_shares(event: SharesChanged) -> str:
    """The queues with a new fair share, and the past usage of the queues."""
    changed = sorted(event.shares)[:_SHOWN]
    parts = [
        say("fair share of {name}: {shares}", name=_name(path), shares=format_vector(event.shares[path]))
        for path in changed
    ]
    parts += (
        [say("and {shares} more queues have a new share", shares=len(event.shares) - _SHOWN)]
        if len(event.shares) > _SHOWN
        else []
    )
    for path in sorted(event.usage)[:_SHOWN]:
        used = listed(
            say("{used} of {name}", used=used_lately(part), name=name)
            for name, part in sorted(event.usage[path].items())
        )
        parts.append(say("{name} used lately {used}", name=_name(path), used=used or say("nothing")))
    return say("; ").join(parts)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


_SHOWN = 6


def tree_share(name: str, least: int, limit: int | None, most: int | None) -> str:
    """A quota in a tree: min, max, and the amount by weight if less."""
    guarantee = say("min {least}", least=format_quantity(least, name)) if least else say("no min")
    guarantee += say(", max {limit}", limit=format_quantity(limit, name)) if limit is not None else say(", no max")
    if most is not None and most != limit:
        guarantee += say("; by weight it may use {most} now", most=format_quantity(most, name))
    return guarantee
