"""Ray clusters that scale themselves: from what a head says to the decision that writes ``maxReplicas``.

All deciders in one process, no bus, no API server: the fact of one cluster, beside so many that are as they should be.

Run: python tests/perf/bench_ray.py
"""

import json
import time
from collections.abc import Sequence

from figures import Progress, Table

from kit import facts
from kit.bench import Bench
from kit.jobs import Obj, raycluster
from muster.core.autoscaling.reading import heads, news
from muster.core.reading.registry import WATCHED
from muster.events.base import Cause
from muster.events.decisions import GangAdmitted
from muster.events.effects import EffectApplied
from muster.events.elastic import GateSet
from muster.model.raydemand import RAY_UNIT, RayDemand, RayShape


class Clusters:
    """So many RayClusters, all let in and at rest; each may grow to a hundred workers."""

    def __init__(self, count: int) -> None:
        self.bench = Bench(check=False)
        much = {"cpu": 1_000 * count}
        leaf = facts.node("video", much, much, ("video",))
        self.bench.facts(facts.tree(facts.node("root", much, much, children=(leaf,))))
        self.bench.synced()
        self.rv = 1_000
        self.objects = [self._made(number) for number in range(count)]
        for obj in self.objects:
            self._seen(obj)
        self._settle()
        for obj in self.objects:
            obj["spec"]["suspend"] = False
            obj["status"] = {"state": "ready"}
            self._written(obj, 0)
        self._settle()

    def _made(self, number: int) -> Obj:
        obj = raycluster(f"c-{number}", "video", replicas=0, suspend=True, enableInTreeAutoscaling=True)
        obj["metadata"] |= {"uid": f"uid-{number}", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
        obj["spec"]["workerGroupSpecs"][0] |= {"minReplicas": 0, "maxReplicas": 100}
        return obj

    def _seen(self, obj: Obj) -> None:

        self.rv += 1
        obj["metadata"]["resourceVersion"] = str(self.rv)
        fact = WATCHED["rayclusters"].read(json.dumps(obj).encode())
        assert fact is not None
        self.bench.facts(fact)

    def _written(self, obj: Obj, most: int) -> None:
        obj["spec"]["workerGroupSpecs"][0]["maxReplicas"] = most
        notes = {"muster.dev/granted": f"small={most}", "muster.dev/max-replicas": "small=100"}
        obj["metadata"]["annotations"] = notes
        self._seen(obj)

    def _settle(self) -> None:
        for event in self.bench.settle():
            if isinstance(event, GangAdmitted):
                effect = EffectApplied(cause=Cause(1, 0), ref=event.ref, attempt=event.attempt, rv=self.rv)
                self.bench.append("actuator", "input", [effect])
        self.bench.settle()

    def demands_ms(self, number: int) -> float:
        """Time from a head's saying that ten actors wait to the decision about ``maxReplicas``."""
        state = self.bench.states["autoscaler_bridge"]
        found = {ref.name: (ref, attempt) for ref, attempt in heads(state)}
        ref, attempt = found[f"c-{number}"]
        demand = RayDemand(pending=(RayShape({"CPU": RAY_UNIT}, 10),))
        began = time.perf_counter()
        fact = news(state, ref, attempt, demand, self.bench.now)
        assert fact is not None
        self.bench.append("autoscaler_bridge", "input", [fact])
        decided = self.bench.settle()
        took = (time.perf_counter() - began) * 1000
        gates = [event for event in decided if isinstance(event, GateSet)]
        assert [gate.most for gate in gates] == [{"small": 10}], "granted and to be written"
        return took


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
        "All deciders in one process: time from the fact that ten actors wait in a Ray cluster to the decision that "
        "writes its granted `maxReplicas`, beside clusters that are at rest. The write, and the bus, come on top."
    )
    return Table("Growth of Ray clusters", about, rows)


def main() -> None:
    table = measure([1, 50, 500], 3, Progress())
    print(table.about, *table.lines(), sep="\n")


if __name__ == "__main__":
    main()
