"""What holds at each sequence of a log, for the judge of the told.

The auditor's books, and the lines of the queues by the events alone: no code of the read model, of the status or of the
words.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping

from msgspec import Struct

from muster.audit.auditbooks import ChargeSeen, waiting_of
from muster.audit.auditor import Auditor
from muster.core.queueing.book import Place
from muster.events.decisions import (
    CandidatesProposed,
    GangAdmitted,
    QuotaDenied,
    QuotaReleased,
    QuotaReserved,
    WorkloadAdopted,
    WorkloadDequeued,
    WorkloadQueued,
)
from muster.events.envelope import Stored
from muster.model.keys import Ref, path_chain
from muster.model.quota import KAI_ROOT
from muster.model.resources import format_quantity, parse_quantity


class Stay(Struct):
    """The stay of a job in a line: from a sequence, to a sequence."""

    place: Place
    since: int
    until: int = 1 << 60


class Truth(Auditor):
    """What holds at each sequence: usage of quotas, charges, open claims, and the lines of the queues."""

    def __init__(self) -> None:
        super().__init__()
        self.totals: dict[tuple[str, str], list[tuple[int, int]]] = {}
        """(path, resource) -> (sequence, used) after each change"""
        self.lines: dict[str, list[Stay]] = {}
        self.known: dict[int, int] = {}
        """sequence of a decision -> sequence that the stage knew"""
        self.claimed: dict[str, list[tuple[int, bool]]] = {}
        """namespace/name -> (sequence, whether quota is held for the job)"""
        self.taken: list[tuple[int, str, str, dict[str, int]]] = []
        """(sequence, namespace/name, queue, request) of each reservation"""
        self.queued: dict[str, int] = {}
        """uid -> sequence of the last queueing"""
        self.first_queued: dict[str, int] = {}
        """uid -> sequence of the first queueing"""
        self.evicted: dict[str, int] = {}
        """uid -> how often the job was queued again"""
        self.started: dict[str, list[int]] = {}
        """uid -> log times (ms) of the admissions"""
        self.left: dict[str, list[int]] = {}
        """uid -> log times (ms) at which the job left its queue without an admission, or entered again"""
        self.keys: dict[str, str] = {}
        """uid -> namespace/name"""
        self._stays: dict[str, Stay] = {}
        self._places: dict[str, tuple[str, Place, int]] = {}
        self._moved = ""

    @property
    def seq(self) -> int:
        return self._seq

    def _add(self, charge: ChargeSeen, times: int) -> None:
        super()._add(charge, times)
        for path in path_chain(charge.queue):
            for name, amount in self._used[path].items():
                self.totals.setdefault((path, name), []).append((self._seq, amount))

    def feed(self, stored: Stored) -> None:
        charged = set(self._charges)
        super().feed(stored)
        self.known[stored.seq] = stored.commit.in_seq or stored.seq
        for event in () if stored.void else stored.commit.events:
            ref = getattr(event, "ref", None)
            if isinstance(ref, Ref):
                self.keys[ref.uid] = ref.key
            self._line(event, charged, stored)
        open_now = {claim.ref.key for claim in self._orders.by_uid.values()}
        for key in {*self.claimed, *open_now}:
            spans = self.claimed.setdefault(key, [])
            if not spans or spans[-1][1] != (key in open_now):
                spans.append((self._seq, key in open_now))

    def _line(self, event: object, charged: set[str], stored: Stored) -> None:
        match event:
            case WorkloadQueued():
                uid = event.ref.uid
                self._leave(uid)
                self._places[uid] = (event.queue, waiting_of(event, self._seq).place, event.attempt)
                self.evicted[uid] = self.evicted.get(uid, -1) + 1
                self.queued[uid] = self._seq
                self.first_queued.setdefault(uid, self._seq)
                self.left.setdefault(uid, []).append(stored.commit.at)
                if uid not in charged:
                    self._enter(uid)
            case CandidatesProposed():
                for each in event.candidates:
                    if self._places.get(each.ref.uid, ("", None, 0))[2] == each.attempt:
                        self._leave(each.ref.uid)
            case QuotaDenied() if self._places.get(event.ref.uid, ("", None, 0))[2] == event.attempt:
                self._enter(event.ref.uid)
            case QuotaReserved():
                self._leave(event.ref.uid)
                charged.add(event.ref.uid)
                if event.ref.uid != self._moved:
                    self.taken.append((self._seq, event.ref.key, event.queue, event.request))
            case WorkloadDequeued() | WorkloadAdopted():
                self._leave(event.ref.uid)
                self._places.pop(event.ref.uid, None)
                self.left.setdefault(event.ref.uid, []).append(stored.commit.at)
                if isinstance(event, WorkloadAdopted):
                    charged.add(event.ref.uid)
            case GangAdmitted():
                self._places.pop(event.ref.uid, None)
                self.started.setdefault(event.ref.uid, []).append(stored.commit.at)
            case QuotaReleased():
                charged.discard(event.ref.uid)
                self._moved = event.ref.uid if event.reason == "moved" else ""
                if self._places.get(event.ref.uid, ("", None, 0))[2] > event.attempt:
                    self._enter(event.ref.uid)
            case _:
                pass

    def _enter(self, uid: str) -> None:
        queue, place, _ = self._places[uid]
        if uid not in self._stays:
            self._stays[uid] = Stay(place, self._seq)
            self.lines.setdefault(queue, []).append(self._stays[uid])

    def _leave(self, uid: str) -> None:
        stay = self._stays.pop(uid, None)
        if stay is not None:
            stay.until = self._seq

    # --- asked ----------------------------------------------------------------------------------------------------

    def used(self, path: str, name: str, first: int, last: int) -> set[str]:
        """The amounts in use between two sequences, as they are shown."""
        changes = self.totals.get((path, name), [])
        begin = bisect_left(changes, (first, -1))
        amounts = [changes[begin - 1][1] if begin else 0]
        amounts += [amount for _, amount in changes[begin : bisect_right(changes, (last, 1 << 80))]]
        return {format_quantity(each, name) for each in amounts}

    def places(self, queue: str, uid: str, seq: int) -> set[tuple[int, int]]:
        """The places of a job at a sequence: before the commit, after the commit, or between two of its events."""
        stays = self.lines.get(queue, [])
        mine = [stay for stay in stays if stay.place.uid == uid and stay.since <= seq <= stay.until]
        answers: set[tuple[int, int]] = set()
        for stay in mine:
            others = [other for other in stays if other is not stay]
            sure = [other for other in others if other.since < seq < other.until]
            maybe = [other for other in others if other.since == seq or other.until == seq]
            ahead, all_of = sum(other.place < stay.place for other in sure), len(sure)
            more = sum(other.place < stay.place for other in maybe)
            answers |= {
                (1 + ahead + front, 1 + all_of + front + back)
                for front in range(more + 1)
                for back in range(len(maybe) - more + 1)
            }
        return answers

    def holds(self, key: str, first: int, last: int) -> bool:
        """Whether quota was held for a job at some sequence between two."""
        spans = self.claimed.get(key, [])
        before = [open_ for seq, open_ in spans if seq < first]
        return (bool(before) and before[-1]) or any(open_ for seq, open_ in spans if first <= seq <= last)

    def charge(self, key: str, name: str) -> set[str]:
        """The amounts that jobs of a name hold now."""
        jobs = (uid for uid in self._charges if self.keys.get(uid) == key)
        return {format_quantity(self._charges[uid].request.get(name, 0), name) for uid in jobs}

    def holders(self, path: str, name: str, *, firm: bool = False) -> int:
        """How many charges there are at a quota and below."""
        return sum(
            bool(each.amounts.get(name)) and path in path_chain(each.queue) and not (firm and each.preemptible)
            for each in self._charges.values()
        )

    def without_room(self, queue: str, request: Mapping[str, str]) -> str:
        """The first limit on the path of a queue that has no room for a request; empty where every limit has room."""
        for path in path_chain(queue):
            node = self._trees.nodes.get(path)
            limits = node.limit if node is not None else {}
            for name, text in request.items():
                used, limit = self._used.get(path, {}).get(name, 0), limits.get(name)
                if limit is not None and used + parse_quantity(text, name) > limit:
                    return f"{path} has {format_quantity(limit - used, name)} {name} free"
        return ""

    def limit(self, path: str, name: str) -> str:
        node = self._trees.nodes.get(path)
        most = node.limit.get(name) if node is not None else None
        return format_quantity(most, name) if most is not None else ""

    def path_of(self, shown: str) -> str:
        """The path of a quota in a sentence: ``quota root/a``, ``queue team`` or ``the cluster``."""
        if shown == "the cluster":
            return KAI_ROOT
        kind, _, name = shown.partition(" ")
        if kind == "quota":
            return name
        return next((path for path in self._trees.nodes if path.rpartition("/")[2] == name), "")
