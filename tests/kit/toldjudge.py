"""The judge of the told: claims that readers are shown at moments of a log, held against what the log says.

A claim is read from the answers of the gateway, as a reader reads the answers; the truth is ``kit.loggedtruth``. The
judge asks at random moments, uniformly over log time, about jobs that wait then: half of the questions are about jobs
that were evicted, were passed by others, or have waited longest.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from random import Random
from typing import Literal

from msgspec import Struct, structs

from kit.loggedtruth import Truth
from muster.core.promising.projection import Projected
from muster.core.stage import Folder
from muster.events.envelope import Stored
from muster.model.resources import format_quantity, parse_quantity
from muster.serving import shapes, supposed, views
from muster.serving.asking import ask
from muster.serving.forking import projected
from muster.serving.jobrows import JobFilter
from muster.serving.scope import EVERYTHING, Lens
from muster.serving.whatif import what_if
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState

Kind = Literal["place", "number", "holder", "history", "as before", "taker", "would start", "what-if", "live", "reader"]


class Lie(Struct, frozen=True):
    """A claim that does not hold."""

    kind: Kind
    seq: int
    job: str
    claim: str
    truth: str

    def __str__(self) -> str:
        return f"{self.kind} at {self.seq}, {self.job}: {self.claim!r}, but {self.truth}"


class Start(Struct, frozen=True):
    """A start shown to the reader of a job. Log times in ms."""

    uid: str
    shown_at: int
    latest: int
    waited: int


class Answers(Struct):
    """The answers of one moment. A planted lie changes an answer."""

    seq: int
    at: int
    why: dict[str, shapes.WhyView]
    """By uid."""
    rows: dict[str, shapes.JobView]
    asked: dict[str, supposed.AskView]
    supposed: dict[str, supposed.WhatIf]
    """uid of the first job -> the answer to a change that changes nothing"""


Planted = Callable[[Answers], None]


def as_told(_: Answers) -> None:
    """No lie is planted."""


POSITION = re.compile(r"position (\d+) of (\d+)")
LIMIT = re.compile(
    r"nsufficient quota\((?P<name>[^)]+)\) in (?P<where>quota \S+|queue \S+|the cluster): request (?P<asked>\S+), "
    r"(?P<term>max|limit|capacity) (?P<limit>\S+), used (?P<used>[^\s,]+?)"
    r"(?:, held (?P<held>\S+) for (?P<claimant>\S+?))?(?:, kept \S+ for the guarantees of others)?\. "
)
ROOM = re.compile(
    r"It asks for (?P<name>\S+) (?P<asked>\S+), and (?P<where>quota \S+|queue \S+|the cluster) has (?P<free>\S+) free "
    r"of (?P<limit>\S+) \((?P<used>\S+) in use(?:, held (?P<held>\S+) for (?P<claimant>[^\s,)]+))?"
)
NOW_USES = re.compile(r"; (?P<queue>\S+) now uses (?P<all>[^;]+)")
AMOUNT = re.compile(r"(\S+) (\S+?)(?: of (\S+?))?(?:, |$)")
TAKEN = re.compile(
    r"While it waited, (?P<name>\S+) there went to (?P<shown>.*?)(?:, and (?P<more>\d+) before them)?(?:\. |$)"
)
TAKER = re.compile(r"(\S+/\S+) \((\S+), ")


class ToldJudge:
    """Judges the answers about one log. ``lies``: the claims that do not hold, after :meth:`run`."""

    def __init__(self, log: Sequence[Stored], seed: int, *, planted: Planted = as_told) -> None:
        self.lies: list[Lie] = []
        self.judged: Counter[Kind] = Counter()
        self.starts: list[Start] = []
        self.truth = Truth()
        self._log = log
        self._rng = Random(seed)
        self._planted = planted
        self._shown: dict[str, dict[tuple[int, int, str], str]] = {}
        """uid -> the lines of the past that were shown: (sequence, index, word) -> sentence"""

    def run(self, moments: int, jobs: int) -> None:
        """Ask at so many moments about so many jobs each."""
        begin, end = self._log[0].commit.at, max(stored.commit.at for stored in self._log)
        times = sorted(self._rng.randint(begin, end) for _ in range(moments))
        folder, state, position = Folder(ReadModel()), ReadModel().initial(), 0
        for number, stored in enumerate(self._log):
            following = self._log[number + 1].commit.at if number + 1 < len(self._log) else end + 1
            folder.fold(state, stored)
            self.truth.feed(stored)
            asked = bisect_right(times, following - 1) - position
            if asked and following > state.now:
                position += asked
                for uids in [self._drawn(state, jobs) for _ in range(min(asked, 3))]:
                    self._judge(state, uids)

    # --- questions ------------------------------------------------------------------------------------------------

    def _drawn(self, state: ReadState, count: int) -> list[str]:
        waiting = [uid for uid, job in state.queues.jobs.items() if job.status == "waiting"]
        if not waiting:
            known = list(state.records)
            return self._rng.sample(known, min(count, len(known)))
        passed = sorted(waiting, key=lambda uid: (-self.truth.evicted.get(uid, 0), self.truth.queued.get(uid, 0)))
        half = passed[: max(count // 2, 1)]
        running = [uid for uid in state.queues.ledger.charges if uid in state.records]
        rest = self._rng.sample(waiting, min(len(waiting), count - len(half)))
        return list(dict.fromkeys([*half, *rest, *self._rng.sample(running, min(len(running), 1))]))

    def _judge(self, state: ReadState, uids: Sequence[str]) -> None:
        lens, now = Lens(EVERYTHING, state), state.now
        moment = views.moment_of(state, now, live=True)
        ahead = projected(state, state.queues, now)
        newest = {record.ref.key: uid for uid, record in state.records.items()}
        asked = [uid for uid in uids if newest[state.records[uid].ref.key] == uid]
        answers = Answers(
            seq=state.seq,
            at=now,
            why={uid: _why(state, lens, moment, uid, ahead) for uid in asked},
            rows=_rows(state, lens, moment, ahead, asked),
            asked={uid: each for uid in asked[:2] if (each := _asked(state, lens, moment, uid)) is not None},
            supposed={uid: same for uid in asked[:1] if (same := _nothing(state, lens, moment)) is not None},
        )
        self._planted(answers)
        for uid, why in answers.why.items():
            self._of_job(state, uid, why, answers.rows[uid])
        for uid, view in answers.asked.items():
            self._would_start(uid, view)
        for uid, played in answers.supposed.items():
            changed = [each.job for each in played.effects if each.before != each.after]
            text = f"{played.earlier} earlier, {played.later} later: {changed[:3]}"
            self._hold("what-if", uid, not (played.earlier or played.later or changed), text, "nothing was changed")

    # --- claims ---------------------------------------------------------------------------------------------------

    def _hold(self, kind: Kind, uid: str, holds: bool, claim: str, truth: object) -> None:
        self.judged[kind] += 1
        if not holds:
            self.lies.append(Lie(kind, self.truth.seq, self.truth.keys.get(uid, uid), claim, str(truth)))

    def _of_job(self, state: ReadState, uid: str, why: shapes.WhyView, row: shapes.JobView) -> None:
        seq, view = self.truth.seq, why.job
        self._hold("live", uid, why.moment.sequence == seq, f"sequence {why.moment.sequence}", seq)
        self._hold("live", uid, view.since <= why.moment.at, f"since {view.since}", why.moment.at)
        same = structs.replace(row, promise=None) == structs.replace(view, promise=None)
        self._hold("reader", uid, same, row.text, view.text)
        told = [(view.position, view.length)] if view.position else []
        told += [(int(a), int(b)) for a, b in POSITION.findall(f"{why.text} {view.text}")]
        if told and (job := state.queues.jobs.get(uid)) is not None and not state.queues.is_blocking(job.queue):
            for each in told:
                places = self.truth.places(view.queue, uid, seq)
                self._hold("place", uid, each in places, f"position {each[0]} of {each[1]}", places)
        for text in (why.text, view.text):
            self._numbers(uid, text, seq, seq)
        self._takers(uid, why.text)
        self._wanting(uid, why)
        self._before(uid, why.text)
        if view.promise is not None:
            shown = (log_time(view.promise.latest), state.now - self._queued_at(uid))
            self.starts.append(Start(uid, state.now, *shown))
        lines = {(each.sequence, each.index, each.word): each for each in why.events}
        known = self._shown.setdefault(uid, {})
        for key, event in lines.items():
            if key not in known:
                known[key] = event.text
                self._line(uid, event)
        for key, text in known.items():
            now = lines[key].text if key in lines else ""
            gone = key not in lines and len(lines) >= 50
            self._hold("history", uid, gone or now == text, text, f"later it reads {now!r}")

    def _line(self, uid: str, event: shapes.EventView) -> None:
        """A line of the past, by the numbers of its moment."""
        first, last = self.truth.known.get(event.sequence, event.sequence), event.sequence
        queue = self._queue_at(uid, last)
        for a, b in POSITION.findall(event.text):
            places = set().union(*(self.truth.places(queue, uid, seq) for seq in {first, last})) if queue else set()
            blocking = not places
            self._hold("place", uid, blocking or (int(a), int(b)) in places, f"{event.sequence}: {event.text}", places)
        self._numbers(uid, event.text, min(first, last), last)
        for found in NOW_USES.finditer(event.text):
            for name, used, _ in AMOUNT.findall(found["all"]):
                true = self.truth.used(found["queue"], name, last, last)
                self._hold("number", uid, used in true, f"{event.sequence}: {event.text}", true)
        self._before(uid, event.text)

    def _queue_at(self, uid: str, seq: int) -> str:
        """The queue in whose line a job is at a sequence, or was last."""
        stays = ((stay.since, queue) for queue, line in self.truth.lines.items() for stay in line
                 if stay.place.uid == uid and stay.since <= seq <= stay.until)  # fmt: skip
        return max(stays, default=(0, ""))[1]

    def _numbers(self, uid: str, text: str, first: int, last: int) -> None:
        for found in (*LIMIT.finditer(text), *ROOM.finditer(text)):
            path, name = self.truth.path_of(found["where"]), found["name"]
            true = self.truth.used(path, name, first, last)
            self._hold("number", uid, found["used"] in true, found[0], f"used {true} of {path}")
            if first == last and (limit := self.truth.limit(path, name)):
                self._hold("number", uid, found["limit"] == limit, found[0], f"max {limit}")
            if found["claimant"] and found["claimant"] != "others":
                held = self.truth.holds(found["claimant"], first, last)
                self._hold("holder", uid, held, found[0], "nothing was held for that job")

    def _wanting(self, uid: str, why: shapes.WhyView) -> None:
        wanting = why.wanting
        if wanting is None or why.code in ("ExceedsMinQuota", "InsufficientMinQuota"):
            return
        true = self.truth.used(wanting.quota, wanting.resource, self.truth.seq, self.truth.seq)
        self._hold("number", uid, wanting.used in true, f"used {wanting.used} of {wanting.quota}", true)
        for holder in wanting.holders:
            amounts = self.truth.charge(holder.job, wanting.resource)
            self._hold("holder", uid, holder.amount in amounts, f"{holder.job} holds {holder.amount}", amounts)
        number = self.truth.holders(wanting.quota, wanting.resource)
        self._hold("holder", uid, wanting.held_by == number, f"held by {wanting.held_by}", number)

    def _takers(self, uid: str, text: str) -> None:
        for found in TAKEN.finditer(text):
            since = self.truth.queued.get(uid, 0)
            taken = [key for seq, key, _, request in self.truth.taken if seq > since and request.get(found["name"])]
            names = TAKER.findall(found["shown"])
            for key, _ in names:
                self._hold("taker", uid, key in taken, found[0], "it took nothing meanwhile")
            count = len(names) + int(found["more"] or 0)
            self._hold("taker", uid, count <= len(taken), found[0], f"{len(taken)} jobs started meanwhile")

    def _before(self, uid: str, text: str) -> None:
        """A place that is said to be as before: nobody that was queued later is ahead."""
        if "old place" not in text:
            return
        seq = self.truth.seq
        queue = self._queue_at(uid, seq)
        stays = [stay for stay in self.truth.lines.get(queue, ()) if stay.since < seq < stay.until]
        mine = next((stay for stay in stays if stay.place.uid == uid), None)
        first = self.truth.first_queued
        ahead = [
            stay.place.key
            for stay in stays
            if mine is not None
            and stay.place < mine.place
            and stay.place.below == mine.place.below
            and first.get(stay.place.uid, 0) > first.get(uid, 0)
        ]
        self._hold("as before", uid, not ahead, text, f"{ahead[:3]} came later and are ahead")

    def _would_start(self, uid: str, view: supposed.AskView) -> None:
        """No job starts at once where a max on its path has no room, and the numbers of a refusal are true."""
        short = self.truth.without_room(view.queue, view.request)
        if view.starts_now or short:
            self._hold("would start", uid, not (view.starts_now and short), view.summary, short)
        self._numbers(uid, f"{view.binds}. ", self.truth.seq, self.truth.seq)

    def _queued_at(self, uid: str) -> int:
        return self.truth.left.get(uid, [0])[-1]

    # --- promises -------------------------------------------------------------------------------------------------

    def kept(self) -> Iterator[tuple[Start, bool | None]]:
        """Each start that was shown, and whether it was kept; None: the log says neither."""
        end = max(stored.commit.at for stored in self._log)
        for start in self.starts:
            begun = next((at for at in self.truth.started.get(start.uid, ()) if at >= start.shown_at), None)
            left = next((at for at in self.truth.left.get(start.uid, ()) if at > start.shown_at), None)
            if begun is not None and begun <= start.latest:
                yield start, True
            elif left is not None and left <= min(start.latest, begun or left):
                yield start, None
            else:
                yield start, False if (begun is not None or end > start.latest) else None


def log_time(text: str) -> int:
    """RFC 3339 to ms since the epoch."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def _why(
    state: ReadState, lens: Lens, moment: shapes.MomentView, uid: str, ahead: Mapping[str, Projected]
) -> shapes.WhyView:
    ref = state.records[uid].ref
    return views.why(state, lens, moment, ref.key, ref.kind, now=state.now, foreseen=ahead)


def _rows(
    state: ReadState, lens: Lens, moment: shapes.MomentView, ahead: Mapping[str, Projected], uids: Iterable[str]
) -> dict[str, shapes.JobView]:
    wanted, skip = set(uids), 0
    rows: dict[str, shapes.JobView] = {}
    while wanted - rows.keys():
        page = views.jobs(state, lens, moment, JobFilter(), skip=skip, limit=500, now=state.now, foreseen=ahead)
        rows |= {row.uid: row for row in page.jobs if row.uid in wanted}
        skip += 500
        assert page.jobs, wanted
    return rows


def _asked(state: ReadState, lens: Lens, moment: shapes.MomentView, uid: str) -> supposed.AskView | None:
    workload = state.queues.workloads.get(uid)
    if workload is None:
        return None
    ref = structs.replace(workload.ref, name=f"{workload.ref.name}-x", uid="asked")
    other = structs.replace(workload, ref=ref, suspended=True)  # Else it would run at once, by no admission.
    return ask(state, lens, moment, other, state.now)


def _nothing(state: ReadState, lens: Lens, moment: shapes.MomentView) -> supposed.WhatIf | None:
    """A change to the limit that there is."""
    for path, node in state.queues.ledger.nodes.items():
        for name, limit in node.limit.items():
            if node.uid or name not in node.guaranteed:
                continue
            change = supposed.Change(queue=path, field="max", resource=name, value=format_quantity(limit, name))
            if parse_quantity(change.value, name) == limit:
                return what_if(state, lens, moment, [change], state.now)
    return None


def lies_of(log: Sequence[Stored], seed: int, moments: int, jobs: int, planted: Planted = as_told) -> list[Lie]:
    """The lies in the answers about a log."""
    judge = ToldJudge(log, seed, planted=planted)
    judge.run(moments, jobs)
    return judge.lies
