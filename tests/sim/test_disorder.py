"""The real stages on the simulated cluster, with everything going wrong that may: 300 seeds.

What is checked is the cluster's own truth, not what the log says of it: how many RayClusters ever existed at the same
time, how often each job was started, and that every job came to its end.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from kit.audits import audit
from kit.disorder import Disorder, DisorderedCell
from kit.story import quota_tree, rayjob
from muster.fakecluster.apiserver.store import StoredChange
from muster.fakecluster.world import SimCluster
from muster.model import api
from muster.model.resources import Vector, add_into
from muster.runtime.replaying.replay import replay

NODES = {f"node-{index}": {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "8"} for index in range(6)}
WILD = Disorder(late=0.6, crash=0.03, unseen=0.3, repeat=0.1, lost_answer=0.3, stale_patch=0.3, outage=0.2)
JOBS = 14
NAMESPACES = ("video", "text", "devops")
LIMITS = {"video": 14_000, "text": 14_000, "devops": 8_000}
SIZES = ("1", "2", "4")


class Truth:
    """What really happens on the cluster."""

    def __init__(self, cluster: SimCluster) -> None:
        self.starts: Counter[str] = Counter()
        self.live: dict[str, tuple[str, str]] = {}
        """RayCluster uid -> (namespace, job)"""
        self.need: dict[str, int] = {}
        """job -> cpu milli"""
        self.worst: Vector = {}
        cluster.server.subscribe(self._heard, api.RAYCLUSTERS)

    def _heard(self, change: StoredChange) -> None:
        meta = change.object["metadata"]
        job = meta["ownerReferences"][0]["name"]
        if change.type == "ADDED":
            self.starts[job] += 1
            self.live[meta["uid"]] = (meta["namespace"], job)
        elif change.type == "DELETED":
            del self.live[meta["uid"]]
        used: Vector = {}
        for namespace, owner in self.live.values():
            add_into(used, {namespace: self.need[owner], "root": self.need[owner]})
        for path, amount in used.items():
            self.worst[path] = max(self.worst.get(path, 0), amount)


def play(seed: int, disorder: Disorder) -> tuple[DisorderedCell, Truth, list[str]]:
    cluster = SimCluster(NODES, seed=seed)
    simulation = DisorderedCell(cluster, seed=seed, disorder=disorder)
    truth = Truth(cluster)
    create(cluster, quota_tree())
    names = []
    for index in range(JOBS):
        name, size = f"job-{index}", simulation.rng.choice(SIZES)
        runtime = f"{simulation.rng.randrange(1, 60)}s"
        names.append(name)
        truth.need[name] = int(size) * 3000
        if truth.need[name] > LIMITS["devops"]:
            namespace = simulation.rng.choice(NAMESPACES[:2])
        else:
            namespace = simulation.rng.choice(NAMESPACES)
        create(cluster, rayjob(name, namespace, cpu=size, memory="1G", runtime=runtime, ttl_s=5))
        simulation.advance(simulation.rng.choice((0, 0, 0, 500, 8_000)))
    simulation.advance(120_000)
    simulation.heal()
    simulation.advance(JOBS * 90_000)
    return simulation, truth, names


def create(cluster: SimCluster, obj: dict[str, object]) -> None:
    resource = {"RayJob": api.RAYJOBS, "ElasticQuotaTree": api.QUOTA_TREES}[str(obj["kind"])]
    namespace = obj["metadata"]["namespace"]  # type: ignore[index]
    answer = cluster.server.handle("POST", resource.path(namespace), body=json.dumps(obj).encode())
    assert answer.ok, answer.body


def statuses(cluster: SimCluster) -> dict[str, str]:
    found = json.loads(cluster.server.handle("GET", api.RAYJOBS.path()).body)["items"]
    return {job["metadata"]["name"]: job.get("status", {}).get("jobDeploymentStatus", "") for job in found}


@pytest.mark.parametrize("block", range(30))
def test_no_job_is_lost_doubled_or_over_quota(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        simulation, truth, names = play(seed, WILD)
        assert statuses(simulation.cluster) == dict.fromkeys(names, "Complete"), f"seed {seed}"
        assert truth.starts == Counter(names), f"seed {seed}: a job was started more than once"
        for path, amount in truth.worst.items():
            assert amount <= LIMITS.get(path, 40_000), f"seed {seed}: {path} had {amount} milli cpu running"
        report = audit(simulation.log)
        broken = [each for each in report.violations if each.invariant != "I11"]
        assert not broken, f"seed {seed}: {broken[0]}"
        replayed = replay(simulation.log, silences=False)
        assert not replayed.divergences, f"seed {seed}: {replayed.divergences[0]}"
        accountant = simulation.seats["quota_accountant"].state
        assert not accountant.entries, f"seed {seed}: charged though nothing is left"
        assert not accountant.ledger.used


def test_a_quiet_cluster_gets_no_commits() -> None:
    simulation, _, _ = play(1, Disorder())
    before = len(simulation.log)
    simulation.advance(3_600_000)
    assert len(simulation.log) == before


def test_the_disorder_is_real() -> None:
    """The faults above do happen, or the test above proves nothing."""
    counted: Counter[str] = Counter()
    for seed in range(5):
        simulation, _, _ = play(seed, WILD)
        for stored in simulation.log:
            if stored.commit.kind == "decision" and stored.commit.in_seq < stored.seq - 1:
                counted["gap"] += 1
            counted.update(type(event).__name__ for event in stored.commit.events)
    assert counted["gap"] > 20
    assert counted["LeaderStarted"] > 5 * 14
    assert counted["QuotaDenied"] > 20
