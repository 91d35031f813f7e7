"""From an actor that waits in a Ray cluster to the worker it runs on: gated, and beside it the same without a gate.

In the simulated cluster, in log time: Ray's autoscaler looks every 5 s (or as AUTOSCALER_UPDATE_INTERVAL_S says), heads
are read every 2 s, a pod runs 2 s after it was made. Both clusters of a pair get their actor at the same moment of the
autoscaler's tick; what is measured is what the gate adds, and whether anything was granted that nothing waited for.
Once more where Muster raises ``replicas`` with each grant (``muster.dev/drive-replicas``).

Run: python tests/perf/bench_raypairs.py
"""

from collections.abc import Sequence
from itertools import product
from random import Random

from bench_ray import quantile
from figures import Progress, Table

from kit.elastic import ElasticPlay
from kit.elastic import raycluster as raycluster_of
from kit.jobs import Obj
from kit.rayscaler import RayScaler
from muster.core.objects.meta import DRIVE
from muster.model.api import PODS, RAYCLUSTERS

STEP_MS, READ_MS, LIMIT_MS, PAIRS = 100, 2_000, 60_000, 10
TICKS_MS = (5_000, 1_000)
"""Ray's default, and the smallest that AUTOSCALER_UPDATE_INTERVAL_S can say."""
FREE = "free"
"""A namespace of no quota: nothing there is gated."""


class Pairs:
    """So many gated clusters, and one without a gate. ``raised``: theirs grow without waiting for a tick."""

    def __init__(self, count: int, tick_ms: int, *, raised: bool) -> None:
        self.tick_ms = tick_ms
        cores = str(200 * count)
        nodes = {f"node-{index}": {"cpu": "256", "memory": "1Ti", "pods": "1000"} for index in range(2 + count // 100)}
        self.play = ElasticPlay(("ns", cores, cores), total=cores, nodes=nodes)
        for number in range(count):
            made = raycluster_of(f"c-{number}", "ns")
            made["metadata"]["annotations"] = {DRIVE: str(raised).lower()}
            self.play.create_raw(made)
        self.play.create_raw(raycluster_of("open", FREE, suspend=False))
        self.play.cell.advance(10_000)
        # Only those that are looked at have an autoscaler that ticks: the others are at rest.
        self.play.scalers = {name: RayScaler(idle_ms=10**9) for name in ("c-0", "open")}
        self.play.read()
        self.play.cell.advance(5_000)

    def waits_ms(self, name: str, phase: int, reading: int) -> int:
        """Log time until the actor has its worker; it comes ``phase`` before a tick, ``reading`` before a reading."""
        scaler, began = self.play.scalers[name], self.play.cluster.clock.now()
        scaler.start(f"actor-{began}")
        for passed in range(0, LIMIT_MS, STEP_MS):
            if passed >= reading and (passed - reading) % READ_MS == 0:
                self.play.read()
            if passed >= phase and (passed - phase) % self.tick_ms == 0:
                self._tick(name)
            self._look(name)
            if not scaler.waiting:
                return passed
            self.play.cell.advance(STEP_MS)
        raise AssertionError(f"{name}: {scaler.waiting} wait for more than a minute")

    def _tick(self, name: str) -> None:
        ops = self._look(name)
        if ops:
            self.play.edit(ops, name)

    def _look(self, name: str) -> list[Obj]:
        """What its autoscaler would write; what has room takes what waits."""
        server, namespace = self.play.cluster.server, FREE if name == "open" else "ns"
        pods = [
            pod
            for pod in server.store.table(PODS).objects.values()
            if pod["metadata"]["labels"]["ray.io/cluster"] == name
        ]
        found = server.objects.get(RAYCLUSTERS, namespace, name)
        return self.play.scalers[name].tick(found, pods, self.play.cluster.clock.now())

    def over(self) -> int:
        """Granted replicas of the gated cluster that nothing waits for."""
        scaler = self.play.scalers["c-0"]
        return int(self.play.group("c-0")["maxReplicas"]) - len(scaler.actors)


def measure_pairs(counts: Sequence[int], say: Progress, pairs: int = PAIRS) -> Table:
    row: dict[str, float] = {}
    for tick_ms, count, raised in product(TICKS_MS, counts, (False, True)):
        say(f"ray: pairs beside {count} clusters")
        rng, found, most = Random(23), Pairs(count, tick_ms, raised=raised), 0
        added: list[float] = []
        for _ in range(pairs):
            phase, reading = rng.randrange(0, tick_ms, STEP_MS), rng.randrange(0, READ_MS, STEP_MS)
            times = [found.waits_ms(name, phase, reading) for name in ("c-0", "open")]
            added.append((times[0] - times[1]) / 1000)
            most = max(most, found.over())
        kind = f"a tick of {tick_ms // 1000} s, {count} clusters{', raised' if raised else ''}"
        row |= {f"{kind}: added, p50 s": quantile(added, 50), f"{kind}: added, p99 s": quantile(added, 99)}
        row |= {f"{kind}: added, mean s": sum(added) / pairs, f"{kind}: granted and not used": float(most)}
    about = (
        f"{pairs} pairs in the simulated cluster, in log time: an actor waits in a gated cluster, and in one without a "
        "gate at the same moment of the autoscaler's tick. The gate adds nothing where the head was read and "
        "`maxReplicas` written before that tick, and whole ticks where not: heads are read every 2 s. Ray's tick is "
        "5 s, and as short as AUTOSCALER_UPDATE_INTERVAL_S of the autoscaler's container says. Raised: with annotation "
        "`muster.dev/drive-replicas` the write raises `replicas` too, and no tick is waited for."
    )
    return Table("What the gate adds to the wait for a worker", about, [row])


if __name__ == "__main__":
    print(*measure_pairs([1, 50], Progress()).lines(), sep="\n")
