"""A second reading of a log, by nothing but its JSON and the pages for users: who is charged, what runs where, and who
waits without need.

It shares no code with Muster: a commit is a dict, and a rule is read here once more, as `docs/howto/preemption.md` and
`docs/reference/invariants.md` say it. Where a rule may keep a job that this reading does not know in full (a claim, a
pause, a brake after an eviction), the job is left out, and counted as such: what is left is certain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

Amounts = Mapping[str, int]
Json = dict[str, Any]

MAX_GIVERS = 12
"""All sets of so many running jobs are looked at."""

QUOTA = "quota.scheduling.alibabacloud.com/name"
QUEUE = "kai.scheduler/queue"
LATELY_MS = 3_600_000
"""What was evicted, refused or failed so recently may be left alone for that."""


def _is_below(leaf: str, path: str) -> bool:
    return leaf == path or leaf.startswith(path + "/")


@dataclass
class Node:
    """A node of a quota tree, as it counts."""

    guaranteed: Amounts
    limit: Amounts
    children: tuple[str, ...]
    namespaces: tuple[str, ...]


@dataclass
class Tree:
    nodes: dict[str, Node]
    rules: Mapping[str, str]
    is_kai: bool


@dataclass
class Reading:
    """What the log says by its newest commit, and what it should not have said."""

    trees: dict[str, Tree] = field(default_factory=dict)
    """root -> the tree that counts"""
    roots: dict[str, str] = field(default_factory=dict)
    """uid of a tree object -> its root"""
    rules: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """uid of a tree object -> its rules, as read last"""
    jobs: dict[str, Json] = field(default_factory=dict)
    """uid -> the newest observation that can be read"""
    versions: dict[str, int] = field(default_factory=dict)
    charges: dict[str, tuple[str, Amounts]] = field(default_factory=dict)
    """uid -> (leaf, amounts)"""
    homes: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """uid of what is charged -> its namespace, and the quota and the queue that its labels name"""
    waiting: dict[str, Json] = field(default_factory=dict)
    """uid -> how it was queued last, while it is in a queue and not charged"""
    claims: dict[str, tuple[str, Amounts, list[str]]] = field(default_factory=dict)
    """claimant -> (leaf, what it asks for, its victims)"""
    places: dict[str, dict[tuple[str, str], int]] = field(default_factory=dict)
    """uid -> (set of pods, node) -> pods"""
    sets: dict[str, dict[str, Amounts]] = field(default_factory=dict)
    """uid -> set of pods -> what one pod asks for"""
    nodes: dict[str, tuple[str, Amounts]] = field(default_factory=dict)
    """name -> (uid, allocatable)"""
    changed: dict[str, int] = field(default_factory=dict)
    """name of a node -> sequence of what was observed of it last"""
    on_nodes: bool = False
    """Gangs are placed on nodes."""
    kept_nodes: dict[str, None] = field(default_factory=dict)
    """Gangs that nodes are kept for."""
    policies: dict[str, Json] = field(default_factory=dict)
    """uid of a Queue object -> as read last"""
    troubled: dict[str, int] = field(default_factory=dict)
    """uid -> when it was evicted, suspended, refused or failed last"""
    foreign: dict[str, None] = field(default_factory=dict)
    """Jobs that were adopted, for they ran without an admission, or that refused to stop."""
    seq: int = 0
    now: int = 0
    wrong: list[str] = field(default_factory=list)
    judged: Counter[str] = field(default_factory=Counter)

    def hear(self, seq: int, commit: Json) -> None:
        """The next commit."""
        self.seq = seq
        self.now = max(self.now, commit["at"])
        for event in commit["events"]:
            arm = getattr(self, f"_{event['type']}", None)
            if arm is not None:
                arm(f"{seq}: {event['type']}", event)
        if commit["kind"] == "decision":
            self._nodes_hold(seq, commit)

    # --- trees --------------------------------------------------------------------------------------------------

    def _quota_tree_observed(self, _at: str, event: Json) -> None:
        if self._newer(event["ref"], event["rv"]):
            self.rules[event["ref"]["uid"]] = event.get("rules", {})

    def _quota_tree_accepted(self, _at: str, event: Json) -> None:
        tree = event["tree"]
        uid = tree["ref"]["uid"]
        nodes = {
            each["path"]: Node(
                each.get("guaranteed", {}),
                each.get("limit", {}),
                tuple(each.get("children", ())),
                tuple(each.get("namespaces", ())),
            )
            for each in tree["nodes"]
        }
        root = tree["nodes"][0]["path"]
        self.trees.pop(self.roots.get(uid, ""), None)
        self.roots[uid] = root
        self.trees[root] = Tree(nodes, self.rules.get(uid, {}), tree["ref"]["kind"] != "ElasticQuotaTree")
        self._follow()

    def _quota_tree_removed(self, _at: str, event: Json) -> None:
        self.trees.pop(self.roots.pop(event["ref"]["uid"], ""), None)
        self._follow()

    def _follow(self) -> None:
        """A charge follows the namespace or the label of its job to their leaf; without one it stays."""
        for uid, (leaf, amounts) in self.charges.items():
            self.charges[uid] = self._home(*self.homes[uid]) or leaf, amounts

    def _home(self, namespace: str, quota: str, queue: str) -> str:
        leaves = {path: node for tree in self.trees.values() for path, node in tree.nodes.items() if not node.children}
        own = next((path for path, node in leaves.items() if namespace in node.namespaces), "")
        kai = next((root for root, tree in self.trees.items() if tree.is_kai), "")
        if queue and kai:
            named = [path for path in leaves if path.startswith(kai + "/") and path.endswith("/" + queue)]
            return "" if own or quota else next(iter(named), "")
        if not quota or own.endswith("/" + quota):
            return own
        named = [path for path in leaves if not path.startswith(f"{kai}/") and path.endswith("/" + quota)]
        return named[0] if len(named) == 1 else ""

    def _homed(self, uid: str, event: Json) -> None:
        """What it is charged by from here on."""
        named = event.get("named", "")
        queue = named.removeprefix("kai:") if named.startswith("kai:") else ""
        self.homes[uid] = event["ref"]["namespace"], "" if queue else named, queue

    def _queue_observed(self, _at: str, event: Json) -> None:
        if self._newer(event["ref"], event["rv"]):
            self.policies[event["ref"]["uid"]] = event

    def _queue_gone(self, _at: str, event: Json) -> None:
        if self._newer(event["ref"], event["rv"]):
            self.policies.pop(event["ref"]["uid"], None)

    # --- jobs ---------------------------------------------------------------------------------------------------

    def _newer(self, ref: Json, rv: int) -> bool:
        newer = rv > self.versions.get(ref["uid"], -1)
        if newer:
            self.versions[ref["uid"]] = rv
        return newer

    def _workload_observed(self, _at: str, event: Json) -> None:
        job = event["workload"]
        if self._newer(job["ref"], job["rv"]):
            self.jobs[job["ref"]["uid"]] = job

    def _workload_gone(self, _at: str, event: Json) -> None:
        self.versions[event["ref"]["uid"]] = 1 << 62
        self.jobs.pop(event["ref"]["uid"], None)

    def _object_unreadable(self, _at: str, event: Json) -> None:
        if self._newer(event["ref"], event["rv"]):
            self.jobs.pop(event["ref"]["uid"], None)

    def _workload_queued(self, _at: str, event: Json) -> None:
        if event["ref"]["uid"] not in self.charges:
            self.waiting[event["ref"]["uid"]] = event

    def _workload_dequeued(self, _at: str, event: Json) -> None:
        self.waiting.pop(event["ref"]["uid"], None)

    def _workload_refused(self, _at: str, event: Json) -> None:
        self.waiting.pop(event["ref"]["uid"], None)

    # --- charges ------------------------------------------------------------------------------------------------

    def _quota_reserved(self, at: str, event: Json) -> None:
        uid, leaf, asked = event["ref"]["uid"], event["queue"], event["request"]
        if uid in self.charges:
            self.wrong.append(f"{at}: {event['ref']['name']} is charged twice")
        self.judged["reservations"] += 1
        over = self._over(leaf, asked)
        if over:
            self.wrong.append(f"{at}: {event['ref']['name']} asks for {asked} at {leaf}: {over}")
        self.charges[uid] = leaf, asked
        self._homed(uid, event)
        self.foreign.pop(uid, None)
        self.waiting.pop(uid, None)

    def _workload_adopted(self, _at: str, event: Json) -> None:
        self.charges[event["ref"]["uid"]] = event["queue"], event["request"]
        self._homed(event["ref"]["uid"], event)
        self.foreign[event["ref"]["uid"]] = None
        self.waiting.pop(event["ref"]["uid"], None)

    def _quota_moved(self, _at: str, event: Json) -> None:
        self.charges[event["ref"]["uid"]] = event["queue"], event["request"]
        self._homed(event["ref"]["uid"], event)

    def _charge_changed(self, _at: str, event: Json) -> None:
        """What runs is charged, also beyond what was admitted."""
        if event["ref"]["uid"] in self.charges:
            self.charges[event["ref"]["uid"]] = event["queue"], event["request"]

    def _quota_released(self, at: str, event: Json) -> None:
        uid = event["ref"]["uid"]
        if self.charges.pop(uid, None) is None:
            self.wrong.append(f"{at}: {event['ref']['name']} was not charged")
        self.places.pop(uid, None)
        self.troubled[uid] = self.now

    def _claim_opened(self, _at: str, event: Json) -> None:
        uid, before = event["ref"]["uid"], self.claims.get(event["ref"]["uid"])
        victims = [victim["ref"]["uid"] for victim in event.get("victims", ()) if not victim.get("moves")]
        self.claims[uid] = event["queue"], event["request"], [*(before[2] if before else ()), *victims]

    def _claim_ended(self, _at: str, event: Json) -> None:
        self.claims.pop(event["ref"]["uid"], None)

    def _eviction_ordered(self, _at: str, event: Json) -> None:
        self._claim_opened(_at, event)
        for victim in event.get("victims", ()):
            self.troubled[victim["ref"]["uid"]] = self.now

    def _suspension_ordered(self, _at: str, event: Json) -> None:
        self.troubled[event["ref"]["uid"]] = self.now

    def _effect_failed(self, _at: str, event: Json) -> None:
        self.troubled[event["ref"]["uid"]] = self.now
        if event.get("action") == "suspend":
            self.foreign[event["ref"]["uid"]] = None

    def _chain(self, leaf: str) -> Iterator[tuple[str, Node]]:
        """The leaf and all nodes above it."""
        for tree in self.trees.values():
            if leaf in tree.nodes:
                for path, node in tree.nodes.items():
                    if leaf == path or leaf.startswith(path + "/"):
                        yield path, node

    def tree_of(self, leaf: str) -> Tree | None:
        return next((tree for tree in self.trees.values() if leaf in tree.nodes), None)

    def used(self, path: str, gone: Iterable[str] = (), *, held: bool = False, but: str = "") -> Counter[str]:
        """What is charged below a node without those that are supposed gone; ``held``: and claimed by others."""
        charged = {uid: charge for uid, charge in self.charges.items() if uid not in gone}
        total: Counter[str] = Counter()
        for leaf, amounts in charged.values():
            if _is_below(leaf, path):
                total.update(amounts)
        for uid, (leaf, amounts, victims) in self.claims.items() if held else ():
            if uid not in charged and uid != but and _is_below(leaf, path):
                mine = Counter(amounts)
                for home, gives in (charged[each] for each in victims if each in charged):
                    mine.subtract(gives if _is_below(home, path) else {})
                total.update(+mine)
        return total

    def _over(
        self, leaf: str, asked: Amounts, gone: Iterable[str] = (), *, held: bool = False, but: str = ""
    ) -> tuple[str, str, int, int] | None:
        """(path, resource, used, limit) of the first limit that refuses it."""
        for path, node in self._chain(leaf):
            used = self.used(path, gone, held=held, but=but)
            for resource, limit in sorted(node.limit.items()):
                if asked.get(resource, 0) and used[resource] + asked[resource] > limit:
                    return path, resource, used[resource], limit
        return None

    # --- nodes --------------------------------------------------------------------------------------------------

    def _placement_chosen(self, _at: str, event: Json) -> None:
        self.on_nodes = event["mode"] in ("pack", "spread")

    def _node_observed(self, _at: str, event: Json) -> None:
        node = event["node"]
        ref = node["ref"]
        if self._newer(ref, node["rv"]):
            self.nodes[ref["name"]] = ref["uid"], node["allocatable"]
            self.changed[ref["name"]] = self.seq

    def _node_gone(self, _at: str, event: Json) -> None:
        ref = event["ref"]
        if self._newer(ref, event["rv"]) and self.nodes.get(ref["name"], ("",))[0] == ref["uid"]:
            del self.nodes[ref["name"]]

    def _gang_admitted(self, _at: str, event: Json) -> None:
        if event["ref"]["uid"] not in self.charges:
            return  # Its quota was released meanwhile: it is void.
        held: dict[tuple[str, str], int] = {}
        for place in event.get("placements", ()):
            held[place["pod_set"], place["node"]] = place["count"]
        self.places[event["ref"]["uid"]] = held
        self.sets[event["ref"]["uid"]] = {each["name"]: each["request"] for each in event.get("pod_sets", ())}

    def _places_released(self, _at: str, event: Json) -> None:
        held = self.places.get(event["ref"]["uid"], {})
        for place in event.get("placements", ()):
            key = place["pod_set"], place["node"]
            held[key] = held.get(key, 0) - place["count"]

    def _nodes_claimed(self, _at: str, event: Json) -> None:
        self.kept_nodes[event["gang"]] = None

    def _nodes_claim_ended(self, _at: str, event: Json) -> None:
        self.kept_nodes.pop(event["gang"], None)

    def on(self, name: str, gone: Iterable[str] = ()) -> Counter[str]:
        """What is taken of a node."""
        total: Counter[str] = Counter()
        for uid, held in self.places.items():
            for (pods, node), count in held.items():
                if node == name and uid not in gone:
                    total.update({key: amount * count for key, amount in self.sets[uid].get(pods, {}).items()})
                    total["pods"] += 1000 * count
        return total

    def _nodes_hold(self, seq: int, commit: Json) -> None:
        """Nodes that are given to gangs have it, unless they changed after that was decided."""
        given = {each["node"] for event in commit["events"] for each in event.get("placements", ())}
        for name in sorted(given & set(self.nodes)):
            if self.changed[name] > commit["in_seq"]:
                continue
            self.judged["nodes"] += 1
            gives = self.nodes[name][1]
            for resource, amount in self.on(name).items():
                if amount > gives.get(resource, 0):
                    self.wrong.append(f"{seq}: node {name} gives {gives.get(resource, 0)} {resource} of {amount}")

    def _has_room(self, job: Json) -> bool:
        """Whether its pods fit, the largest first, each on the node with the least room that takes it."""
        free = {name: Counter(gives) - self.on(name) for name, (_, gives) in self.nodes.items()}
        pods = [each["request"] for each in job.get("pod_sets", ()) for _ in range(each["count"])]
        for pod in sorted(pods, key=lambda pod: sorted(pod.items()), reverse=True):
            asks = Counter({**pod, "pods": 1000})
            fitting = [name for name in free if all(free[name][key] >= amount for key, amount in asks.items())]
            if not fitting:
                return False
            free[min(fitting, key=lambda name: (free[name]["cpu"], name))].subtract(asks)
        return True

    # --- at rest ------------------------------------------------------------------------------------------------

    def at_rest(self) -> None:
        """Nothing is due any more, and everything that was ordered was done: what is charged is there and belongs
        there, what waits has to wait.
        """
        for uid, (leaf, _) in self.charges.items():
            job = self.jobs.get(uid)
            if job is None:
                self.wrong.append(f"{uid} is charged at {leaf}, and is not there")
                continue
            labels = job.get("labels", {})
            home = self._home(job["ref"]["namespace"], labels.get(QUOTA, ""), labels.get(QUEUE, ""))
            if home not in ("", leaf):
                self.wrong.append(f"{uid} is charged at {leaf}, and belongs to {home}")
        for uid, queued in sorted(self.waiting.items()):
            why = self._may_wait(uid, queued)
            if why:
                self.judged[f"left out: {why}"] += 1
                continue
            self.judged["waiting"] += 1
            leaf, asked, name = queued["queue"], queued["request"], queued["ref"]["name"]
            over = self._over(leaf, asked, held=True, but=uid)
            if over is None and not self.on_nodes:
                self.wrong.append(f"{name} waits in {leaf} and would fit")
            elif over is None and not self.kept_nodes and self._has_room(self.jobs[uid]):
                self.wrong.append(f"{name} waits in {leaf}, and quota and nodes have room for it")
            elif over is not None and not self.on_nodes:
                self._nobody_owes(uid, queued)

    def _may_wait(self, uid: str, queued: Json) -> str:
        """Why it may wait though it would fit, as far as this reading knows."""
        leaf, tree, job = queued["queue"], self.tree_of(queued["queue"]), self.jobs.get(uid)
        if job is None or tree is None:
            return "not readable, or without a queue"
        if "admissions" in tree.rules.get("paused", ""):
            return "paused"
        above = [each for each in self.policies.values() if leaf == each["path"] or leaf.startswith(each["path"] + "/")]
        if any("admissions" in each.get("paused", ()) for each in above):
            return "paused"
        if any(each.get("policy") == "Block" for each in above):
            return "behind a head"
        if self.now - self.troubled.get(uid, -LATELY_MS) < LATELY_MS:
            return "evicted, refused or failed lately"
        if tree.is_kai:
            return "" if self._preemptible(job) else "not preemptible"
        return ""

    @staticmethod
    def _preemptible(job: Json) -> bool:
        return job.get("labels", {}).get("priorityClassName") not in ("build", "inference")

    def _nobody_owes(self, uid: str, queued: Json) -> None:
        """No set of running jobs above their guarantees would, gone, let it in, and leave every guarantee intact."""
        leaf, asked, tree = queued["queue"], queued["request"], self.tree_of(queued["queue"])
        if tree is None or tree.rules.get("reclaim", "enabled") != "enabled":
            return
        counted = {key for _, node in self._chain(leaf) for key in (*node.guaranteed, *node.limit)}
        within = all(
            self.used(leaf)[key] + amount <= tree.nodes[leaf].guaranteed.get(key, 0)
            for key, amount in asked.items()
            if key in counted
        )
        if not within or self.claims or "evictions" in tree.rules.get("paused", ""):
            return
        self.judged["owed"] += 1
        givers = [each for each in sorted(self.charges) if self._may_give(each, leaf, tree)]
        if len(givers) > MAX_GIVERS:
            self.judged["left out: many givers"] += 1
            return
        for count in range(1, len(givers) + 1):
            for gone in combinations(givers, count):
                if self._over(leaf, asked, gone) is None and all(self._stays_intact(each, leaf, gone) for each in gone):
                    self.wrong.append(f"{queued['ref']['name']} is owed {asked} at {leaf}, and {gone} could give it")
                    return

    def _may_give(self, uid: str, leaf: str, tree: Tree) -> bool:
        job, (home, _) = self.jobs.get(uid), self.charges[uid]
        if job is None or home == leaf or home not in tree.nodes or uid in self.foreign:
            return False
        if self.now - self.troubled.get(uid, -LATELY_MS) < LATELY_MS:
            return False
        held_back = any(
            "evictions" in each.get("paused", ()) and (home == each["path"] or home.startswith(each["path"] + "/"))
            for each in self.policies.values()
        )
        quota = not tree.is_kai or ("cpu" in tree.nodes[home].guaranteed and self._preemptible(job))
        return quota and job["phase"] == "running" and not job.get("suspended") and not held_back

    def _stays_intact(self, uid: str, leaf: str, gone: tuple[str, ...]) -> bool:
        """No node below the one that it shares with the claimant falls below its guarantee."""
        shared = {path for path, _ in self._chain(leaf)}
        for path, node in self._chain(self.charges[uid][0]):
            left = self.used(path, gone)
            if path not in shared and any(left[key] < amount for key, amount in node.guaranteed.items()):
                return False
        return True
