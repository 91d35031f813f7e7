"""Borrow and reclaim on the simulated cluster: who gives back to whom, how much, and in what order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from kit import facts
from kit.disorder import DisorderedCell
from kit.proof import proven
from kit.story import quota_tree, rayjob
from muster.events.decisions import EvictionOrdered
from muster.events.facts import TreeNodeSpec
from muster.fakecluster.world import SimCluster
from muster.model import api

NODES = {f"node-{index}": {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "8"} for index in range(6)}


class Play:
    """A cluster with a tree, and jobs that run until they are told not to."""

    def __init__(
        self,
        root: TreeNodeSpec | None = None,
        rules: dict[str, str] | None = None,
        before: Sequence[tuple[str, str]] = (),
    ) -> None:
        """``before``: (namespace, cpu) of jobs that run already when Muster first sees the cluster."""
        self.cluster = SimCluster(NODES, seed=1)
        for index, (namespace, cpu) in enumerate(before):
            job = rayjob(f"before-{index}", namespace, cpu=cpu, memory="1G", replicas=0, runtime="99h", suspend=False)
            self._post(api.RAYJOBS, job)
        self.cluster.advance(60_000)
        self.simulation = DisorderedCell(self.cluster, seed=1)
        tree = quota_tree(root)
        tree["metadata"]["annotations"] = {f"muster.dev/{name}": text for name, text in (rules or {}).items()}
        self._post(api.QUOTA_TREES, tree)
        self.simulation.advance(1_000)

    def _post(self, resource: api.ApiResource, obj: dict[str, Any]) -> None:
        namespace = obj["metadata"]["namespace"]
        answer = self.cluster.server.handle("POST", resource.path(namespace), body=json.dumps(obj).encode())
        assert answer.ok, answer.body

    def submit(self, name: str, namespace: str, cpu: str = "5", *, wait_ms: int = 0, **options: Any) -> None:
        """A job of one pod that runs for days."""
        labels = options.pop("labels", {})
        job = rayjob(
            name, namespace, cpu=cpu, memory="1G", replicas=0, runtime=options.pop("runtime", "99h"), **options
        )
        job["metadata"]["labels"] |= labels
        self._post(api.RAYJOBS, job)
        self.simulation.advance(wait_ms)

    def keep(self, name: str, namespace: str, *, allowed: int) -> None:
        """A PodDisruptionBudget over the pods of a RayJob that lets so many of them go."""
        job = json.loads(self.cluster.server.handle("GET", api.RAYJOBS.path(namespace, name)).body)
        meta = {"name": name, "namespace": namespace}
        selector = {"matchLabels": {"ray.io/cluster": job["status"]["rayClusterName"]}}
        self._post(api.DISRUPTION_BUDGETS, {"metadata": meta, "spec": {"selector": selector}})
        answer = self.cluster.server.handle(
            "PATCH",
            api.DISRUPTION_BUDGETS.path(namespace, name, "status"),
            body=json.dumps({"status": {"disruptionsAllowed": allowed}}).encode(),
            content_type="application/merge-patch+json",
        )
        assert answer.ok, answer.body

    def keep_heads(self, namespace: str, least: int) -> int:
        """A budget over all heads of Ray clusters there, as its controller would have it now; how many are healthy."""
        listed = json.loads(self.cluster.server.handle("GET", api.PODS.path(namespace)).body)["items"]
        heads = [each for each in listed if each["metadata"]["labels"].get("ray.io/node-type") == "head"]
        ready = {"type": "Ready", "status": "True"}.items()
        healthy = sum(
            not each["metadata"].get("deletionTimestamp")
            and any(ready <= found.items() for found in each["status"].get("conditions", ()))
            for each in heads
        )
        path = api.DISRUPTION_BUDGETS.path(namespace, "heads")
        if not self.cluster.server.handle("GET", path).ok:
            selector = {"matchLabels": {"ray.io/node-type": "head"}}
            meta = {"name": "heads", "namespace": namespace}
            self._post(api.DISRUPTION_BUDGETS, {"metadata": meta, "spec": {"selector": selector}})
        status = {"disruptionsAllowed": max(healthy - least, 0), "desiredHealthy": least}
        body, kind = json.dumps({"status": status}).encode(), "application/merge-patch+json"
        assert self.cluster.server.handle("PATCH", f"{path}/status", body=body, content_type=kind).ok
        return healthy

    def patch(self, namespace: str, name: str, body: dict[str, Any]) -> None:
        answer = self.cluster.server.handle(
            "PATCH",
            api.RAYJOBS.path(namespace, name),
            body=json.dumps(body).encode(),
            content_type="application/merge-patch+json",
        )
        assert answer.ok, answer.body

    def annotate_tree(self, annotations: dict[str, str | None]) -> None:
        answer = self.cluster.server.handle(
            "PATCH",
            api.QUOTA_TREES.path("kube-system", "elasticquotatree"),
            body=json.dumps({"metadata": {"annotations": annotations}}).encode(),
            content_type="application/merge-patch+json",
        )
        assert answer.ok, answer.body

    def jobs(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.cluster.server.handle("GET", api.RAYJOBS.path()).body)["items"]
        return found

    def running(self) -> Counter[str]:
        """How many run per namespace."""
        return Counter(
            job["metadata"]["namespace"] for job in self.jobs() if job["status"]["jobDeploymentStatus"] == "Running"
        )

    def state_of(self, name: str) -> str:
        return next(j["status"]["jobDeploymentStatus"] for j in self.jobs() if j["metadata"]["name"] == name)

    def evictions(self) -> list[str]:
        """Names of who was ordered to leave, in order."""
        return [
            victim.ref.name
            for stored in self.simulation.log
            for event in stored.commit.events
            if isinstance(event, EvictionOrdered)
            for victim in event.victims
        ]

    def stays_at_rest(self) -> None:
        """Nobody is evicted for another hour, and no two ever evicted each other."""
        before = self.evictions()
        self.simulation.advance(3_600_000)
        assert self.evictions() == before
        orders = [e for s in self.simulation.log for e in s.commit.events if isinstance(e, EvictionOrdered)]
        pairs = {(order.ref.uid, victim.ref.uid) for order in orders for victim in order.victims}
        assert not any((victim, claimant) in pairs for claimant, victim in pairs)

    def clean(self) -> None:
        """The log keeps the invariants and replays."""
        proven(self.simulation.log)


def three_teams(rng: Random) -> TreeNodeSpec:
    """Three leaves with guarantees that add up to all there is, at the most."""
    leaves = tuple(facts.node(name, {"cpu": rng.choice((0, 6, 12))}, {"cpu": 30}, (name,)) for name in "pqr")
    return facts.node("root", {"cpu": 36}, {"cpu": 36}, children=leaves)


def four_teams() -> TreeNodeSpec:
    """Root 40 cpu; a and b of 20 to 40; in each two leaves of 10 to 20."""

    def leaf(name: str) -> TreeNodeSpec:
        return facts.node(name, {"cpu": 10}, {"cpu": 20}, (name,))

    a = facts.node("a", {"cpu": 20}, {"cpu": 40}, children=(leaf("ns1"), leaf("ns2")))
    b = facts.node("b", {"cpu": 20}, {"cpu": 40}, children=(leaf("ns3"), leaf("ns4")))
    return facts.node("root", {"cpu": 40}, {"cpu": 40}, children=(a, b))


def test_each_team_gets_its_guarantee_back() -> None:
    play = Play(four_teams())
    seen = []
    for namespace in ("ns1", "ns2", "ns3", "ns4"):
        for index in range(5):
            play.submit(f"{namespace}-{index}", namespace, wait_ms=1000)
        play.simulation.advance(60_000)
        counts = play.running()
        seen.append([counts[name] for name in ("ns1", "ns2", "ns3", "ns4")])
    assert seen == [[4, 0, 0, 0], [4, 4, 0, 0], [2, 2, 4, 0], [2, 2, 2, 2]], "b owes ns3 all that ns4 leaves"
    assert len(play.jobs()) == 20
    play.simulation.advance(3_600_000)
    assert sum(play.running().values()) == 8
    assert len(play.evictions()) == 6, "nobody is evicted once all have what they are guaranteed"
    play.clean()


def test_interns_give_first_and_no_more_than_is_needed() -> None:
    play = Play()
    play.submit("text", "text", "8")
    for index in range(3):
        play.submit(f"intern-{index}", "intern-video", "4", wait_ms=1000)
    play.submit("infra", "infra-devops", "8")
    play.submit("devops", "devops", "8", wait_ms=30_000)
    assert sum(play.running().values()) == 6  # 36 of 40 cpu
    play.submit("video", "video", "12", wait_ms=60_000)
    assert play.state_of("video") == "Running"
    assert play.evictions() == ["intern-2", "intern-1"], "the youngest first, and only as many as are needed"
    assert play.running() == Counter(text=1, video=1, devops=1, **{"intern-video": 1, "infra-devops": 1})
    play.clean()


def test_who_has_been_evicted_is_left_alone_longer_each_time() -> None:
    """The one borrower is in the way of every job of the owner; in between it borrows again."""
    leaves = (
        facts.node("owner", {"cpu": 10}, {"cpu": 10}, ("ns1",)),
        facts.node("borrower", {}, {"cpu": 10}, ("ns2",)),
    )
    play = Play(facts.node("root", {"cpu": 10}, {"cpu": 10}, children=leaves), {"protect-evicted": "1m"})
    play.submit("borrows", "ns2", "10", wait_ms=20_000)
    waits = []
    for index in range(7):
        play.submit(f"owner-{index}", "ns1", "10", runtime="1s", ttl_s=0)
        waited = 0
        while len(play.evictions()) == index:
            play.simulation.advance(1_000)
            waited += 1
            assert waited < 1_000, "the guarantee is met in the end"
        waits.append(waited)
        for running in (False, True):
            for _ in range(300):
                if (play.state_of("borrows") == "Running") is running:
                    break
                play.simulation.advance(1_000)
            else:
                pytest.fail(f"after owner-{index} it should {'' if running else 'not '}run")
    assert waits[0] <= 5, "at first at once"
    expected = [60, 120, 240, 480, 600, 600]
    assert all(least - 20 <= waited <= least + 20 for waited, least in zip(waits[1:], expected, strict=True)), waits
    play.clean()


def test_what_is_not_preemptible_stays_and_stays_within_the_min() -> None:
    play = Play()
    firm = {"quota.scheduling.koordinator.sh/preemptible": "false"}
    play.submit("intern", "intern-video", "1", labels=firm, wait_ms=30_000)
    assert play.state_of("intern") == "Suspended", "interns are guaranteed nothing"
    play.submit("video", "video", "12", labels=firm, wait_ms=30_000)
    assert play.state_of("video") == "Running"
    play.submit("more", "video", "1", labels=firm, wait_ms=30_000)
    assert play.state_of("more") == "Suspended", "12 of 12 guaranteed are in use"
    play.submit("elastic", "video", "1", wait_ms=30_000)
    assert play.state_of("elastic") == "Running"
    play.clean()


def test_a_big_head_does_not_starve_behind_small_ones() -> None:
    root = facts.node("root", {"cpu": 10}, {"cpu": 10}, children=(facts.node("a", {}, {"cpu": 10}, ("a",)),))
    play = Play(root, {"claim": "20m"})
    for index in range(60):
        play.submit(f"small-{index}", "a", "2", runtime=f"{60 + index % 7}s", ttl_s=0, wait_ms=2000)
        if index == 4:
            play.submit("big", "a", "10", runtime="60s", ttl_s=0)
    order: list[str] = []
    for _ in range(120):
        play.simulation.advance(10_000)
        order += [
            job["metadata"]["name"]
            for job in play.jobs()
            if job["status"]["jobDeploymentStatus"] == "Running" and job["metadata"]["name"] not in order
        ]
    assert "big" in order
    assert order.index("big") < 50, "it did not have to wait for all sixty"
    play.clean()


def test_a_job_that_never_runs_is_suspended_again() -> None:
    play = Play(rules={"running-timeout": "5s", "backoff": "30s"})
    for node in NODES:
        play.cluster.server.handle("DELETE", api.NODES.path(name=node))
    play.submit("job", "video", "12", wait_ms=4_000)
    assert play.state_of("job") == "Initializing"
    play.simulation.advance(3_000)
    assert play.state_of("job") in ("Suspending", "Suspended")
    play.simulation.advance(2_000)
    accountant = play.simulation.seats["quota_accountant"].state
    assert not accountant.entries
    play.simulation.advance(30_000)
    assert play.simulation.seats["quota_accountant"].state.entries, "it is tried again"
    play.clean()


def test_held_and_paused() -> None:
    play = Play()
    play.submit("one", "video", "4", annotations={"muster.dev/hold": "true", "muster.dev/change-reason": "later"})
    play.simulation.advance(10_000)
    assert play.state_of("one") == "Suspended"
    play.patch("video", "one", {"metadata": {"annotations": {"muster.dev/hold": None}}})
    play.simulation.advance(10_000)
    assert play.state_of("one") == "Running"
    play.clean()


def test_a_cluster_in_which_nothing_ends_comes_to_rest() -> None:
    """Heads that have waited too long get a claim once; without any change nobody asks again."""
    play = Play(rules={"age-limit": "1m", "claim": "2m"})
    play.submit("runs", "video", "14")
    play.submit("too-big-now", "video", "12")
    play.submit("elsewhere", "text", "14")
    play.submit("too-big-there", "text", "12")
    play.simulation.advance(3_600_000)
    before = len(play.simulation.log)
    play.simulation.advance(6 * 3_600_000)
    assert len(play.simulation.log) == before, "an idle log gets no commits"
    play.clean()
