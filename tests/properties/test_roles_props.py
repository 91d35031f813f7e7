"""An object that becomes the child of a workload, and a workload again, and is turned off and on: what runs of it is
charged at all times, once, however often and however fast it changes.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from hypothesis import given, settings

from kit import facts, ray
from kit.audits import audit
from kit.bench import Bench
from kit.depth import examples
from kit.histories import SEEDS, SETTINGS, replays_and_goes_on_from_a_snapshot
from muster.core.cell.seats import Seat
from muster.core.observed.seen import TOMBSTONE_MS
from muster.core.reading.watcher import Watcher
from muster.core.workloads.registry import KINDS
from muster.events.base import Event
from muster.events.facts import ObjectGone, PodGone, PodObserved
from muster.model.keys import Ref
from muster.model.workload import PodState

FEWER = settings(SETTINGS, max_examples=examples(60))
CLUSTER, PARENTS = "cluster-uid", ("job-uid", "other-uid")
CPU = 1000
Obj = dict[str, Any]


class Changing:
    """A RayCluster of two to four workers, and two RayJobs of nothing to speak of, either of which may control it."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.bench = rng, Bench(rng, check=False)
        self.uid, self.born, self.on = CLUSTER, 0, True
        self._sit()
        plenty = {"cpu": 1000}
        leaf = facts.node("team", plenty, plenty, ("ns",))
        self.bench.facts(facts.tree(facts.node("root", plenty, plenty, children=(leaf,)), profile="full"))
        self.bench.synced()
        self.told: list[Event] = []
        self.obj: Obj | None = None
        self.owner, self.repeated = "", 0
        for uid in PARENTS:
            status = {"jobDeploymentStatus": "Running", "rayClusterName": "j-raycluster-1"}
            meta = {"name": uid, "uid": uid, "resourceVersion": str(facts.next_rv())}
            tiny = ray.cluster_spec(ray.group(replicas=0))
            job = ray.rayjob("Running", meta=meta, suspend=False, rayClusterSpec=tiny)
            job["status"] = status
            read = Watcher("rayjobs")
            ref = Ref("RayJob", "ns", uid, uid)
            self.tell(read.observe(read.initial(), ref, int(meta["resourceVersion"]), json.dumps(job).encode()))
        self.bench.settle()
        self.own = self.charged(PARENTS[0])
        """What a parent is charged for by itself."""

    def _sit(self) -> None:
        self.watcher = Watcher("rayclusters", KINDS if self.on else ("RayJob",))
        seat = self.bench.seats.get("watcher/rayclusters")
        new: Seat[Any] = Seat(self.watcher, seat.state if seat is not None else None)
        if seat is None:
            for stored in self.bench.log:
                new.fold(stored)
        self.bench.seats["watcher/rayclusters"] = new

    def tell(self, found: list[Event]) -> None:
        if found:
            self.told += found
            self.bench.facts(*found)

    def looks(self) -> None:
        """The watcher looks at the object, as it is."""
        if self.obj is None:
            return
        ref = Ref("RayCluster", "ns", "j-raycluster-1", self.uid)
        rv = int(self.obj["metadata"]["resourceVersion"])
        state: Any = self.bench.states["watcher/rayclusters"]
        self.tell(self.watcher.observe(state, ref, rv, json.dumps(self.obj).encode()))

    # --- what happens -----------------------------------------------------------------------------------------

    def changes(self) -> None:
        """It is what it was, or something else: controlled or not, suspended or not, of another size."""
        self.owner = self.rng.choice(("", "", *PARENTS))
        meta: Obj = {"uid": self.uid, "resourceVersion": str(facts.next_rv())}
        if self.owner:
            owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": self.owner, "uid": self.owner}
            meta["ownerReferences"] = [{**owner, "controller": True}]
        suspended = self.rng.random() < 0.3
        workers = ray.group(replicas=self.rng.randint(2, 4))
        self.obj = ray.raycluster(meta=meta, suspend=suspended, workerGroupSpecs=[workers])
        self.looks()
        if not suspended and self.rng.random() < 0.5:
            state = PodState(ref=self.pod(), rv=facts.next_rv(), owner_uid=self.uid, running=True, request={"cpu": CPU})
            self.tell([PodObserved(pod=state)])

    def pod(self) -> Ref:
        return Ref("Pod", "ns", "head", f"head-of-{self.uid}")

    def ends(self) -> None:
        if self.obj is None:
            return
        self.tell([PodGone(ref=self.pod(), rv=facts.next_rv())])
        ref, rv = Ref("RayCluster", "ns", "j-raycluster-1", self.uid), self.rng.choice((0, facts.next_rv()))
        self.tell(self.watcher.vanished(self.bench.states["watcher/rayclusters"], ref, rv))
        self.obj, self.born = None, self.born + 1
        self.uid = f"{CLUSTER}-{self.born}"

    def turned(self) -> None:
        self.on = not self.on
        self._sit()
        self.looks()

    def repeats(self) -> None:
        """A late fact, or one that is told twice; of its end only where it was not turned off."""
        late = [each for each in self.told[-12:] if not (isinstance(each, ObjectGone) and each.unwatched)]
        if late and self.on and not any(isinstance(each, ObjectGone) and each.unwatched for each in self.told):
            self.bench.facts(self.rng.choice(late))
            self.repeated += 1

    def passes(self) -> None:
        self.bench.pass_time(self.rng.randint(1, TOMBSTONE_MS // 2))

    def step(self) -> None:
        chosen = self.rng.choice((self.changes, self.changes, self.changes, self.passes, self.ends, self.turned))
        chosen()
        self.bench.settle()
        self.holds()
        if self.rng.random() < 0.3:
            self.repeats()
            self.bench.settle()
            self.holds()

    # --- what holds -------------------------------------------------------------------------------------------

    def asks(self) -> int:
        assert self.obj is not None
        return (1 + self.obj["spec"]["workerGroupSpecs"][0]["replicas"]) * CPU

    def charged(self, uid: str) -> int:
        charge = self.bench.states["quota_accountant"].ledger.charges.get(uid)
        return charge.request.get("cpu", 0) if charge is not None else 0

    def holds(self) -> None:
        suspended = self.obj is None or self.obj["spec"].get("suspend", False)
        if self.obj is not None and self.owner and not suspended:
            assert self.charged(self.owner) >= self.asks(), "the parent is charged for what it runs through"
            assert not self.charged(self.uid), "it is charged once"
        elif self.obj is not None and not self.owner and self.on:
            states = self.bench.states
            assert self.uid in states["gang_admitter"].gangs
            assert self.uid in states["queue_sorter"].queues.workloads
            if not suspended:
                assert self.charged(self.uid) >= self.asks(), "what runs by itself is charged"
        for uid in PARENTS:
            if uid != self.owner or suspended:
                assert self.charged(uid) == self.own, f"{uid} is charged for what is not its own"


@FEWER
@given(SEEDS)
def test_what_changes_its_role_is_charged_at_all_times(seed: int) -> None:
    scene = Changing(Random(seed))
    for _ in range(14):
        scene.step()
    bench = scene.bench
    broken = audit(bench.log).violations
    assert not [each for each in broken if each.invariant != "I11" or not scene.repeated], broken
    bench.seats.pop("watcher/rayclusters")
    replays_and_goes_on_from_a_snapshot(bench, "quota_accountant", len(bench.log) // 2)
