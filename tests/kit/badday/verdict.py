"""The judge: what went wrong, by pods, jobs and bytes of the log alone. Nothing of Muster is imported here."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TextIO

from kit.badday.quota import Amounts, Node, Tree, asked, over, plus
from kit.badday.stream import Loss, Stream

Object = dict[str, Any]

TWICE, ABOVE, LOST, USED_TWICE = "started twice", "above max", "lost in silence", "sequence used twice"
WAITS, CIRCLE, GROUNDLESS, PART = "should run and does not", "circle", "evicted without ground", "gang bound in part"
GROUNDLESS_GENERATION, HOLE = "generation without ground", "copy with a hole in silence"
SICK, SILENT, NEVER_READY, STUCK = "not healthy in time", "doctor does not name it", "never ready", "never ended"
ACCEPTED, FALSE, UNWHOLE = "wrong cluster accepted", "told what is false", "server does not come back"

UNTRUE = re.compile(r"spec was edited|another client started|beyond its grant|was deleted before")
"""What no Event may say here: nobody edits a spec, resumes a Job past the queue, or deletes one that waits."""

WAIT_S = 60.0
PART_S = 30.0
FOUNDED_S = 60.0
LATE_S = 3.0
"""How long an order takes to the API server on a busy machine."""
CIRCLE_AGAIN, CIRCLE_S = 120, 60.0
"""So many decisions of one type about one object within so many seconds are a circle."""
OVERUSE = "OverQuota"


@dataclass
class Violation:
    """What is wrong: its kind, and what was seen."""

    at: float
    kind: str
    text: str


@dataclass
class Job:
    """A batch Job as it was seen last. ``need``: what it asks for while it runs."""

    uid: str
    key: str
    namespace: str
    created: str
    suspended: bool
    over: bool
    parallelism: int
    completions: int
    succeeded: int
    pod: Amounts
    began: float
    """When the judge heard of it."""
    starts: int = 0
    stops: int = 0
    since: float = 0.0
    """When it was resumed or suspended last."""

    @property
    def need(self) -> Amounts:
        return plus({}, self.pod, min(self.parallelism, max(0, self.completions - self.succeeded)))


@dataclass
class Pod:
    """A pod that has not ended."""

    namespace: str
    asked: Amounts
    job: str
    charged: bool


@dataclass
class Watched:
    """Since when something that may last a while has lasted."""

    since: dict[str, float] = field(default_factory=dict)

    def lasts(self, key: str, now: float) -> float:
        return now - self.since.setdefault(key, now)

    def over(self, *keys: str) -> None:
        for key in keys:
            self.since.pop(key, None)

    def forget(self) -> None:
        self.since.clear()


@dataclass
class Doubt:
    """An eviction for which nothing speaks yet. ``used``: what its leaf had let go, and was let go soon after."""

    at: float
    leaf: Node
    used: Amounts
    text: str
    once: str


class Judge:
    """Hears of pods, jobs and commits; ``say`` prints. `violations` is what was found."""

    def __init__(self, tree: Object, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.tree = Tree(tree["spec"])
        self.violations: list[Violation] = []
        self.jobs: dict[str, Job] = {}
        self.pods: dict[str, Pod] = {}
        self.calm = False
        """No fault is on, and the last one is healed: who should run must run."""
        self.resumes: deque[float] = deque(maxlen=50_000)
        self.counts: Counter[str] = Counter()
        self.touched: set[str] = set()
        """Jobs that a user suspends."""
        self.lately: defaultdict[str, deque[tuple[float, Amounts]]] = defaultdict(lambda: deque(maxlen=500))
        """{leaf: what was let go there, at each change of a job}"""
        self.record: TextIO | None = None
        self._noted = ""
        self._say = say
        self._now = clock
        self._told: set[tuple[str, str]] = set()
        self._above: dict[str, tuple[float, Amounts]] = {}
        self._waits = Watched()
        self._parts = Watched()
        self._decided: dict[tuple[str, str], deque[float]] = defaultdict(deque)
        self._gangs: dict[str, dict[str, bool]] = defaultdict(dict)
        self._doubts: list[Doubt] = []

    def note(self, text: str, state: str = "") -> None:
        """Into the record of the day; ``state`` only where it changed."""
        if self.record is not None and (text or state != self._noted):
            self._noted = state or self._noted
            self.record.write(f"{time.strftime('%H:%M:%S')} {text or state}\n")

    # --- telling ------------------------------------------------------------------------------------------------

    def tell(self, kind: str, text: str, once: str = "") -> None:
        """A violation; ``once``: what it is about, where it is told only once."""
        if once and (kind, once) in self._told:
            return
        self._told.add((kind, once))
        self.violations.append(Violation(self._now(), kind, text))
        self._say(f"VIOLATION {kind}: {text}")
        self.note(f"VIOLATION {kind}: {text}")

    # --- pods ---------------------------------------------------------------------------------------------------

    def heard_pod(self, kind: str, pod: Object, before: Object | None) -> None:
        meta = pod["metadata"]
        uid, old = meta["uid"], self.pods.pop(meta["uid"], None)
        if old is not None and old.charged:
            self.tree.add(old.namespace, old.asked, -1)
        gang = (meta.get("labels") or {}).get("pod-group.scheduling.sigs.k8s.io/name", "")
        if gang:
            members = self._gangs[f"{meta['namespace']}/{gang}"]
            members[uid] = bool(pod["spec"].get("nodeName"))
            if kind == "DELETED":
                members.pop(uid)
        if kind == "DELETED" or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return
        owners = [each["uid"] for each in meta.get("ownerReferences") or () if each.get("kind") == "Job"]
        # A pod of a gang that waits for a node waits for quota; that of a Job is there because its Job was let go.
        charged = bool(owners) or bool(pod["spec"].get("nodeName"))
        made = self.pods[uid] = Pod(meta["namespace"], asked(pod["spec"]), owners[0] if owners else "", charged)
        if charged:
            self.tree.add(made.namespace, made.asked)

    def after_pods(self) -> None:
        """The cluster was in this state at some moment."""
        now = self._now()
        self.note("", "used " + ", ".join(f"{node.name} {_said(node.used)}" for node in self.tree.nodes if node.used))
        for node in self.tree.nodes:
            above = over(node.used, node.most)
            if above:
                self._is_above(node, now)
            elif node.name in self._above:
                since, most = self._above.pop(node.name)
                self.tell(ABOVE, f"{node.name}: {_said(most)} of {_said(node.most)} for {now - since:.1f} s")
        alive = Counter(pod.job for pod in self.pods.values() if pod.job)
        for uid, count in alive.items():
            job = self.jobs.get(uid)
            if job is not None and count > job.parallelism:
                self.tell(TWICE, f"{job.key}: {count} pods at once, and it has {job.parallelism}", uid)

    def _is_above(self, node: Node, now: float) -> None:
        since, most = self._above.get(node.name, (now, {}))
        worst = {name: max(node.used.get(name, 0), most.get(name, 0)) for name in node.most}  # type: ignore[type-var]
        self._above[node.name] = since, worst  # type: ignore[assignment]
        if not most:
            self._say(f"ABOVE MAX now: {node.name} {_said(node.used)} of {_said(node.most)}")

    def close(self) -> None:
        """Nothing more comes: what still lasts is told."""
        now = self._now()
        self._tell_doubts(now + 1.0)
        for name, (since, most) in self._above.items():
            self.tell(ABOVE, f"{name}: {_said(most)} for {now - since:.1f} s, until the end")

    # --- jobs ---------------------------------------------------------------------------------------------------

    def heard_job(self, kind: str, job: Object, before: Object | None) -> None:
        meta, spec, status = job["metadata"], job["spec"], job.get("status") or {}
        uid, now = meta["uid"], self._now()
        if kind == "DELETED":
            self.jobs.pop(uid, None)
            self._waits.over(uid)
            return
        ended = any(
            each["type"] in ("Complete", "Failed") and each["status"] == "True"
            for each in status.get("conditions") or ()
        )
        parallelism = int(spec.get("parallelism", 1))
        known = self.jobs.get(uid)
        made = Job(
            uid=uid,
            key=f"{meta['namespace']}/{meta['name']}",
            namespace=meta["namespace"],
            created=meta["creationTimestamp"],
            suspended=bool(spec.get("suspend")),
            over=ended,
            parallelism=parallelism,
            completions=int(spec.get("completions") or parallelism),
            succeeded=int(status.get("succeeded") or 0),
            pod=asked(spec["template"]["spec"]),
            began=known.began if known else now,
            starts=known.starts if known else 0,
            stops=known.stops if known else 0,
            since=known.since if known else now,
        )
        if (known.suspended if known else True) and not made.suspended:
            made.starts, made.since = made.starts + 1, now
            self.resumes.append(now)
            self.counts["resumed"] += 1
            self.note(f"resumed {made.key} {_said(made.need)}")
            self._resumed(made)
        elif known and not known.suspended and made.suspended and not made.over:
            made.stops, made.since = made.stops + 1, now
            self.counts["evicted"] += 1
            self.note(f"suspended {made.key} {now - known.since:.1f} s after it was resumed")
            self._evicted(known)
        if made.over and not (known and known.over):
            self.counts["ended"] += 1
            self.note(f"ended {made.key}")
        self.jobs[uid] = made
        leaf = self.tree.leaf_of.get(made.namespace)
        if leaf is not None:
            self.lately[leaf.name].append((now, self._let_go(leaf)))

    def _let_go(self, leaf: Node) -> Amounts:
        """What the jobs of a leaf may use that run, or may run."""
        used: Amounts = {}
        for each in self.jobs.values():
            if self.tree.leaf_of.get(each.namespace) is leaf and not each.suspended and not each.over:
                used = plus(used, each.need)
        return used

    def _evicted(self, job: Job) -> None:
        """Reclaim takes from those that borrow alone: a leaf that is within its min loses nothing. An end that came
        between the order and the suspension was not known to who ordered; a job that was admitted before the order may
        be resumed after it.
        """
        leaf = self.tree.leaf_of.get(job.namespace)
        if leaf is None or job.uid in self.touched:
            return
        past = self.lately[leaf.name]
        while past and past[0][0] < self._now() - LATE_S:
            past.popleft()
        used = self._let_go(leaf)
        if not any(over(known, leaf.least) for known in (used, leaf.used, *(known for _, known in past))):
            text = f"{job.key}: {leaf.name} had let go {_said(used)}, of which {_said(leaf.least)} are its own"
            self._doubts.append(Doubt(self._now(), leaf, used, text, f"{job.uid} {job.stops}"))

    def _resumed(self, job: Job) -> None:
        leaf = self.tree.leaf_of.get(job.namespace)
        for doubt in self._doubts:
            if doubt.leaf is leaf:
                doubt.used = plus(doubt.used, job.need)
        self._doubts = [doubt for doubt in self._doubts if not over(doubt.used, doubt.leaf.least)]

    def _tell_doubts(self, until: float) -> None:
        for doubt in self._doubts:
            if doubt.at < until:
                self.tell(GROUNDLESS, doubt.text, doubt.once)
        self._doubts = [doubt for doubt in self._doubts if doubt.at >= until]

    def heard_event(self, kind: str, event: Object, before: Object | None) -> None:
        """Of an Event of anybody."""
        about = event.get("involvedObject") or event.get("regarding") or {}
        note = event.get("message") or event.get("note") or ""
        if kind != "DELETED" and about.get("kind") == "Job" and UNTRUE.search(note):
            self.tell(FALSE, f"{about.get('namespace')}/{about.get('name')}: {note[:200]}", str(about.get("uid")))

    def state_of(self, job: Job) -> str:
        """The job's name, and what was seen of it last."""
        pods = sum(pod.job == job.uid for pod in self.pods.values())
        runs = "suspended" if job.suspended else f"let go, {pods} pods of {job.parallelism}"
        done = f"{job.succeeded} of {job.completions} done"
        return f"{job.key} ({runs}, {done}, {job.starts} starts, since {self._now() - job.since:.0f} s)"

    def waiting(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.suspended and not job.over]

    def tick(self) -> None:
        """Once a second: what lasts too long."""
        now = self._now()
        self._tell_doubts(now - LATE_S)
        if not self.calm:
            self._waits.forget()
            self._parts.forget()
            return
        self._who_should_run(now)
        for gang, members in self._gangs.items():
            bound = sum(members.values())
            if 0 < bound < len(members):
                if self._parts.lasts(gang, now) > PART_S:
                    self.tell(PART, f"{gang}: {bound} of {len(members)} for {PART_S:.0f} s", gang)
            else:
                self._parts.over(gang)

    def _who_should_run(self, now: float) -> None:
        heads: dict[str, Job] = {}
        for job in self.waiting():
            head = heads.get(job.namespace)
            if head is None or (job.created, job.key) < (head.created, head.key):
                heads[job.namespace] = job
        charged = self._charges()
        kept = {job.uid for job in heads.values()}
        self._waits.over(*[uid for uid in self._waits.since if uid not in kept])
        for job in heads.values():
            leaf = self.tree.leaf_of.get(job.namespace)
            if leaf is None:
                continue
            if any(over(plus(charged[node.name], job.need), node.most) for node in leaf.path):
                self._waits.over(job.uid)
            elif (waits := self._waits.lasts(job.uid, now)) > WAIT_S:
                self.tell(WAITS, f"{job.key}: there is room for it since {waits:.0f} s", job.uid)

    def _charges(self) -> dict[str, Amounts]:
        """{node: what is used there, or let go and not used yet}"""
        found = {node.name: dict(node.used) for node in self.tree.nodes}
        alive: dict[str, Amounts] = {}
        for pod in self.pods.values():
            if pod.job:
                alive[pod.job] = plus(alive.get(pod.job, {}), pod.asked)
        for job in self.jobs.values():
            if job.suspended or job.over:
                continue
            more = plus(job.need, alive.get(job.uid, {}), -1)
            more = {name: value for name, value in more.items() if value > 0}
            leaf = self.tree.leaf_of.get(job.namespace)
            for node in leaf.path if leaf else ():
                found[node.name] = plus(found[node.name], more)
        return found

    # --- the log ------------------------------------------------------------------------------------------------

    def heard_commit(self, generation: int, seq: int, subject: str, commit: Object) -> None:
        """Decisions about one object that come again and again go nowhere."""
        self.counts["commits"] += 1
        now = self._now()
        for event in commit.get("events") or ():
            uid = (event.get("ref") or {}).get("uid")
            if not uid or commit.get("kind") != "decision":
                continue
            times = self._decided[event["type"], uid]
            times.append(now)
            while times[0] < now - CIRCLE_S:
                times.popleft()
            if len(times) > CIRCLE_AGAIN:
                ref = event["ref"]
                text = f"{event['type']} of {ref.get('namespace')}/{ref.get('name')} {len(times)} times"
                self.tell(CIRCLE, f"{text} in {CIRCLE_S:.0f} s, at {generation}/{seq}: {_short(event)}", uid)

    def judge_stream(self, stream: Stream, ground: Callable[[int], bool]) -> None:
        """What became of losses, and whether each generation had a reason. ``ground``: whether one was given."""
        now = self._now()
        for loss in stream.losses:
            if loss.named:
                continue
            later = [each for each in stream.founded if each > loss.generation]
            if later:
                loss.named = True
                self.counts["losses named"] += 1
            elif stream.digests[loss.generation] and self._whole_again(stream, loss):
                loss.named = True
            elif now - loss.at > FOUNDED_S and now - stream.answered_at < 5.0:
                loss.named = True
                gone = loss.known - loss.end
                self.tell(LOST, f"generation {loss.generation}: {gone} commits behind {loss.end}, and no next one")
        for generation in [*stream.founded]:
            if generation == 1 or generation not in stream.first:
                continue
            before = generation - 1
            goes_on = stream.first[generation] == max(stream.digests.get(before, {0: b""}), default=0) + 1
            if not goes_on and not ground(generation):
                text = f"{generation} begins at {stream.first[generation]}, and {before} had lost nothing"
                self.tell(GROUNDLESS_GENERATION, text, str(generation))

    def _whole_again(self, stream: Stream, loss: Loss) -> bool:
        """Its copies were behind for a moment: it has again what was read of it."""
        return loss.regained


def _said(amounts: Amounts) -> str:
    return " ".join(f"{name} {float(value):g}" for name, value in sorted(amounts.items())) or "nothing"


def _short(event: Object) -> str:
    return str({name: value for name, value in event.items() if name not in ("ref", "need", "cause")})[:160]
