"""What the log of a bench says of its jobs: how long each step took them, and what became of orders of eviction."""

import statistics
from collections import Counter, defaultdict

from muster.events.claims import VictimStays
from muster.events.decisions import EvictionOrdered, GangAdmitted, QuotaReleased, WorkloadQueued
from muster.events.effects import EffectApplied
from muster.events.envelope import Stored
from muster.events.facts import WorkloadFinished, WorkloadObserved
from muster.model.victims import Victim

STAGES = {
    "created to queued": ("created", "queued"),
    "admitted to resumed": ("admitted", "resumed"),
    "resumed to seen finished": ("resumed", "finished"),
    "seen finished to released": ("finished", "released"),
}
"""Of jobs that ran once, by the times in the log; the end of a job is a write of the operator's."""


def stages(log: list[Stored]) -> dict[str, float]:
    """Mean seconds that jobs spent between two steps, as the log has them."""
    at: dict[str, dict[str, int]] = defaultdict(dict)
    again: set[str] = set()
    for stored in log:
        for event in stored.commit.events:
            ref, now = getattr(event, "ref", None), stored.commit.at
            match event:
                case WorkloadObserved():
                    at[event.workload.ref.uid].setdefault("created", event.workload.created)
                case WorkloadQueued():
                    at[ref.uid].setdefault("queued", now)
                case GangAdmitted():
                    again |= {ref.uid} if "admitted" in at[ref.uid] else set()
                    at[ref.uid]["admitted"] = now
                case EffectApplied(action="resume"):
                    at[ref.uid]["resumed"] = now
                case WorkloadFinished():
                    at[ref.uid]["finished"] = now
                case QuotaReleased():
                    at[ref.uid]["released"] = now
                case _:
                    pass
    once = [times for uid, times in at.items() if uid not in again]
    found = {}
    for name, (before, after) in STAGES.items():
        spans = [(times[after] - times[before]) / 1000 for times in once if before in times and after in times]
        found[f"{name}, mean s"] = statistics.fmean(spans)
    return found


def evictions(log: list[Stored]) -> dict[str, float]:
    """Jobs that orders of eviction name. Carried out: they ran again from their beginning.

    In vain: they ended without that, so their quota came free by itself. The log learns of an end later than the job
    ends: an order may name a job whose end is not reported yet, and its suspension may then still be written.
    """
    ordered: dict[tuple[int, str], Victim] = {}
    applied: set[tuple[int, str]] = set()
    runs: Counter[str] = Counter()
    over: dict[str, int] = {}
    at: dict[int, int] = {}
    spared = outlasted = 0
    for stored in log:
        at[stored.seq] = stored.commit.at
        for event in stored.commit.events:
            match event:
                case EvictionOrdered():
                    ordered |= {(stored.seq, victim.ref.uid): victim for victim in event.suspended}
                    spared += len(event.victims) - len(event.suspended)
                case EffectApplied(action="suspend"):
                    applied.add((event.cause.seq, event.ref.uid))
                case GangAdmitted():
                    runs[event.ref.uid] = max(runs[event.ref.uid], event.attempt)
                case WorkloadFinished():
                    over.setdefault(event.ref.uid, stored.seq)
                case VictimStays(reason="not_ended"):
                    outlasted += 1
                case _:
                    pass
    vain = [key for key, victim in ordered.items() if runs[key[1]] <= victim.attempt]
    ends = [at[over[uid]] - at[seq] for seq, uid in vain if over.get(uid, 0) > seq]
    return {
        "victims left to end by themselves": float(spared),
        "of these, not ended in time": float(outlasted),
        "evictions ordered": float(len(ordered)),
        "evictions carried out": float(len(ordered) - len(vain)),
        "evictions in vain": float(len(vain)),
        "evictions in vain, % of those ordered": 100 * len(vain) / max(1, len(ordered)),
        "in vain: the log had its end before the order": float(sum(over.get(uid, seq) < seq for seq, uid in vain)),
        "in vain: suspended all the same": float(sum(key in applied for key in vain)),
        "in vain: from the order to the end in the log, mean ms": statistics.fmean(ends) if ends else 0.0,
    }
