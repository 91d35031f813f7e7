"""Ray clusters that scale themselves: from what a head says to the decision that writes ``maxReplicas``, and back.

All deciders in one process, no bus, no API server: the fact of one cluster, beside so many that are as they should be;
one cluster of a thousand workers that grows by one and gives back some; and how long giving back takes in log time.

Run: python tests/perf/bench_ray.py
"""

import json
import time
from collections.abc import Sequence

from figures import Progress, Table

from kit import facts
from kit.bench import Bench
from kit.elastic import ElasticPlay
from kit.elastic import raycluster as raycluster_of
from kit.jobs import Obj, raycluster
from muster.core.autoscaling.bridgestate import heads, news
from muster.core.reading.watched import WATCHED
from muster.events.base import Cause, Event
from muster.events.decisions import EvictionOrdered, GangAdmitted
from muster.events.effects import EffectApplied
from muster.events.elastic import GateSet, GrowthWithdrawn
from muster.events.facts import PodGone, PodObserved
from muster.model.keys import Ref
from muster.model.raydemand import RAY_UNIT, RayDemand, RayShape
from muster.model.workload import PodState

TEN = RayDemand(pending=(RayShape({"CPU": RAY_UNIT}, 10),))
THOUSAND = 1_000


class Clusters:
    """So many RayClusters, all let in and at rest; each may grow to a hundred workers."""

    def __init__(self, count: int, *, most: int = 100, owed: int = 0) -> None:
        """``most``: workers of one cluster; ``owed``: cores that another queue is guaranteed."""
        self.bench = Bench(check=False)
        much = {"cpu": (most + 900) * count}
        rest = {"cpu": much["cpu"] - owed}
        leaves = (facts.node("video", rest, much, ("video",)), facts.node("owed", {"cpu": owed}, much, ("owed",)))
        self.bench.facts(facts.tree(facts.node("root", much, much, children=leaves)))
        self.bench.synced()
        self.rv, self.most, self.cores = 1_000, most, much["cpu"]
        self.objects = [self._made(number) for number in range(count)]
        for obj in self.objects:
            self._seen(obj)
        self._settle()
        for obj in self.objects:
            obj["spec"]["suspend"] = False
            obj["status"] = {"state": "ready"}
            self._written(obj, 0)
            self.bench.facts(self._pod(obj["metadata"]["uid"], f"head-of-{obj['metadata']['name']}", "head"))
        self._settle()

    def _made(self, number: int) -> Obj:
        obj = raycluster(f"c-{number}", "video", replicas=0, suspend=True, enableInTreeAutoscaling=True)
        obj["metadata"] |= {"uid": f"uid-{number}", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
        obj["spec"]["workerGroupSpecs"][0] |= {"minReplicas": 0, "maxReplicas": self.most}
        return obj

    def _seen(self, obj: Obj) -> None:
        self.rv += 1
        obj["metadata"]["resourceVersion"] = str(self.rv)
        fact = WATCHED["rayclusters"].read(json.dumps(obj).encode())
        assert fact is not None
        self.bench.facts(fact)

    def _written(self, obj: Obj, most: int) -> None:
        obj["spec"]["workerGroupSpecs"][0]["maxReplicas"] = most
        notes = {"muster.dev/granted": f"small={most}", "muster.dev/max-replicas": f"small={self.most}"}
        obj["metadata"]["annotations"] = notes
        self._seen(obj)

    def _settle(self) -> None:
        for event in self.bench.settle():
            if isinstance(event, GangAdmitted):
                effect = EffectApplied(cause=Cause(1, 0), ref=event.ref, attempt=event.attempt, rv=self.rv)
                self.bench.append("actuator", "input", [effect])
        self.bench.settle()

    def heard_ms(self, number: int, demand: RayDemand) -> tuple[float, list[Event]]:
        """A head says that actors wait: time of all decisions that follow, and these."""
        state = self.bench.states["autoscaler_bridge"]
        found = {ref.name: (ref, attempt) for ref, attempt in heads(state)}
        ref, attempt = found[f"c-{number}"]
        began = time.process_time()
        fact = news(state, ref, attempt, demand, self.bench.now)
        assert fact is not None
        self.bench.append("autoscaler_bridge", "input", [fact])
        decided = self.bench.settle()
        return (time.process_time() - began) * 1000, decided

    def demands_ms(self, number: int, demand: RayDemand = TEN, granted: int = 10) -> float:
        """Time from a head's saying that actors wait to the decision about ``maxReplicas``."""
        self.bench.pass_time(2_000)
        took, decided = self.heard_ms(number, demand)
        gates = [event for event in decided if isinstance(event, GateSet)]
        assert [gate.most for gate in gates] == [{"small": granted}], "granted and to be written"
        self._gated(gates[0])
        return took

    def _gated(self, gate: GateSet) -> None:
        """The write is done, the autoscaler follows, and the pods run."""
        [stored] = [each for each in self.bench.log[-20:] if gate in each.commit.events]
        self.rv += 1
        cause = Cause(stored.seq, stored.commit.events.index(gate))
        effect = EffectApplied(cause=cause, ref=gate.ref, attempt=gate.attempt, rv=self.rv, action="gate")
        self.bench.append("actuator", "input", [effect])
        obj = next(each for each in self.objects if each["metadata"]["uid"] == gate.ref.uid)
        obj["spec"]["workerGroupSpecs"][0]["replicas"] = gate.most["small"]
        self._written(obj, gate.most["small"])
        for ref in [pod for pods in gate.workers.values() for pod in pods]:
            self.rv += 1
            self.bench.facts(PodGone(ref=ref, rv=self.rv))
        if not gate.workers:
            names = workers(obj["metadata"]["uid"], gate.most["small"])
            self.bench.facts(*(self._pod(gate.ref.uid, name) for name in names))

    def limited_to_its_use(self, owed: int) -> None:
        """Nothing more fits; so many cores of the guarantee of their queue are lent to another."""
        ledger = self.bench.states["quota_accountant"].ledger
        used, mine = (ledger.used[path]["cpu"] // 1_000 for path in ("root", "root/video"))
        least, most = {"cpu": mine + owed}, {"cpu": used}
        other = facts.node("owed", {"cpu": used - mine - owed}, most, ("owed",))
        leaves = (facts.node("video", least, most, ("video",)), other)
        self.bench.facts(facts.tree(facts.node("root", most, most, children=leaves)))
        self.bench.settle()

    def _pod(self, cluster: str, name: str, node_type: str = "worker") -> PodObserved:
        self.rv += 1
        labels = {"ray.io/node-type": node_type, "ray.io/group": "small"}
        ref, request = Ref("Pod", "video", name, name), {"cpu": 1_000}
        pod = PodState(ref, self.rv, owner_uid=cluster, node="n", running=True, request=request, labels=labels)
        return PodObserved(pod=pod)

    def gives_ms(self, cpu: int) -> dict[str, float]:
        """Another queue claims cores it is guaranteed: CPU until the order, and from there until they are free."""
        used = self.bench.states["quota_accountant"].ledger.used["root"]["cpu"] // 1_000
        claim = facts.seen(facts.job("claimant", "owed", cpu=self.cores - used + cpu))
        began = time.process_time()
        self.bench.facts(claim)
        decided = self.bench.settle()
        ordered = (time.process_time() - began) * 1000
        [order] = [event for event in decided if isinstance(event, EvictionOrdered)]
        assert [part.taken for part in order.partial] == [{"small": cpu}]
        found: list[Event] = []
        began = time.process_time()
        while not any(isinstance(event, GrowthWithdrawn) for event in found):
            found = self.bench.pass_time(1_000)
            for event in found:
                if isinstance(event, GateSet):
                    self._gated(event)
                    found = self.bench.settle()
        spent = (time.process_time() - began) * 1000
        kind = f"releasing {cpu} of {THOUSAND:,} workers"
        return {f"{kind}: the order, ms": ordered, f"{kind}: choice, write, withdrawal, ms": spent}


def workers(cluster: str, count: int) -> list[str]:
    """Names of its pods."""
    return [f"{cluster}-w-{index}" for index in range(count)]


def quantile(found: Sequence[float], percent: int) -> float:
    return sorted(found)[min(len(found) * percent // 100, len(found) - 1)]


def measure(counts: Sequence[int], rounds: int, say: Progress) -> Table:
    rows: list[dict[str, float]] = []
    for index in range(rounds):
        say(f"ray: round {index + 1} of {rounds}")
        row: dict[str, float] = {}
        for count in counts:
            clusters = Clusters(count)
            times = [clusters.demands_ms(number) for number in range(min(count, 50))]
            row |= {f"{count} clusters, p50 ms": quantile(times, 50), f"{count} clusters, p99 ms": quantile(times, 99)}
        rows.append(row)
    about = (
        "All deciders in one process: CPU time from the fact that ten actors wait in a Ray cluster to the decision "
        "that writes its granted `maxReplicas`, beside clusters that are at rest. The write, and the bus, come on top."
    )
    return Table("Growth of Ray clusters", about, rows)


def measure_large(rounds: int, say: Progress) -> Table:
    """One cluster of a thousand workers, and what giving back takes in log time."""
    rows: list[dict[str, float]] = []
    for index in range(rounds):
        say(f"ray: a thousand workers, round {index + 1} of {rounds}")
        clusters, all_there = Clusters(1, most=2 * THOUSAND, owed=2_200), {"small": THOUSAND}
        waiting = RayDemand(pending=(RayShape({"CPU": RAY_UNIT}, THOUSAND),))
        row = {f"none to {THOUSAND:,} workers, ms": clusters.demands_ms(0, waiting, THOUSAND)}
        busy = tuple(workers("uid-0", THOUSAND))
        more = RayDemand(pending=(RayShape({"CPU": RAY_UNIT}),), joined=all_there, pinned=busy)
        row[f"{THOUSAND:,} to {THOUSAND + 1:,} workers, ms"] = clusters.demands_ms(0, more, THOUSAND + 1)
        rows.append(row | clusters.gives_ms(200) | log_time())
    about = (
        "One Ray cluster of a thousand workers, all deciders in one process: CPU time of the decisions when it grows, "
        "and when it releases busy workers for another queue. Log time is what a claimant waits in all, from the order "
        "until the quota is free: draining 2 s (idle) or 15 s (busy), and the end of the pods in the simulated cluster."
    )
    return Table("Ray clusters that shrink", about, rows)


def measure_together(count: int, large: int, rounds: int, say: Progress) -> Table:
    """So many clusters of twenty workers and one of a thousand, while there is room and while there is none."""
    rows: list[dict[str, float]] = []
    for index in range(rounds):
        say(f"ray: {count} clusters and one of {large}, round {index + 1} of {rounds}")
        clusters, row = Clusters(count + 1, most=2 * large), dict[str, float]()
        times = [clusters.demands_ms(number, *_grows_to(large if not number else 20)) for number in range(count + 1)]
        row |= _shown("it grows", times)
        for number in range(10):
            borrower = facts.job(f"borrower-{number}", "owed", cpu=10)
            clusters.bench.facts(facts.seen(borrower))
            clusters.bench.settle()
        for owed, what in ((0, "all are refused growth"), (50, "all are refused growth, 50 cores are owed")):
            clusters.limited_to_its_use(owed)
            times = [clusters.heard_ms(number, _more(number, large, 2 + owed))[0] for number in range(count + 1)]
            row |= _shown(what, times)
        rows.append(row)
    about = (
        f"{count} Ray clusters of 20 workers and one of {large:,} together, all deciders in one process: CPU time of "
        "all decisions that follow when the head of one of them says that more waits; while all of it fits, "
        "while nothing does, and while a part is claimed from a queue that has borrowed it."
    )
    return Table("Many Ray clusters and a large one", about, rows)


def _grows_to(size: int) -> tuple[RayDemand, int]:
    return RayDemand(pending=(RayShape({"CPU": RAY_UNIT}, size),)), size


def _more(number: int, large: int, count: int) -> RayDemand:
    """All of its workers are busy, and so many more tasks wait."""
    size = large if not number else 20
    busy = tuple(sorted(workers(f"uid-{number}", size)))
    return RayDemand(pending=(RayShape({"CPU": RAY_UNIT}, count),), joined={"small": size}, pinned=busy)


def _shown(what: str, times: Sequence[float]) -> dict[str, float]:
    return {f"{what}, p50 ms": quantile(times, 50), f"{what}, p99 ms": quantile(times, 99)}


def log_time() -> dict[str, float]:
    """Seconds of log time from an order to the withdrawal, for idle workers and for busy ones."""
    found: dict[str, float] = {}
    for kind in ("idle", "busy"):
        play = ElasticPlay(("ns", "3", "100"), ("other", "2", "100"), total="10")
        scaler = play.create(raycluster_of("auto", "other"))
        for number in range(8):
            scaler.start(f"actor-{number}")
        play.tick(5)
        if kind == "idle":
            scaler.end("actor-3")
            scaler.end("actor-5")
        scaler.idle_ms = 10**9
        play.tick(1)
        claim = raycluster_of("owed", "ns", replicas=3, minReplicas=3, maxReplicas=3)
        claim["spec"]["enableInTreeAutoscaling"] = False
        play.create(claim)
        play.tick(8)
        at = {type(event): stored.commit.at for stored in play.cell.log for event in stored.commit.events}
        found[f"releasing 2 {kind} workers, log time, s"] = (at[GrowthWithdrawn] - at[EvictionOrdered]) / 1000
    return found


def main() -> None:
    say = Progress()
    for table in (measure([1, 50, 500], 3, say), measure_large(3, say), measure_together(500, THOUSAND, 3, say)):
        print(table.about, *table.lines(), sep="\n")


if __name__ == "__main__":
    main()
