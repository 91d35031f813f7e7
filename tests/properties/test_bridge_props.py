"""Node pools and the bridge under random histories: jobs and gangs of pods, an autoscaler that does what it likes."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, given, settings

from kit import facts, nodes
from kit.audits import audit
from kit.depth import examples
from kit.histories import SEEDS, goes_on_from_a_snapshot, worth
from kit.podgangs import Chance
from muster.core.actuation.orders import Asking, applied, failed, said
from muster.events.facts import (
    NodePoolsGone,
    NodesRequestGone,
    NodesRequestObserved,
    Synced,
)
from muster.events.growing import NodesRequested, NodesRequestWithdrawn
from muster.model.keys import Ref
from muster.model.pools import NodePool
from muster.model.resources import summed
from muster.model.workload import PodSet
from muster.runtime.replaying.replay import replay

SETTINGS = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
KINDS = (nodes.ATOMIC, nodes.ATOMIC, "check-capacity.autoscaling.x-k8s.io", "unschedulable-pods")


def whose(event: NodesRequested | NodesRequestWithdrawn) -> str:
    return event.ref.uid if event.ref is not None else event.gangs[0] if event.gangs else ""


class Growth(Chance):
    """Besides what happens to gangs of pods: pools are declared, jobs come and go, and nodes are added or not."""

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        whole = {"cpu": 30}
        leaf = facts.node("video", {"cpu": 0}, whole, ("video",))
        self.bench.facts(facts.tree(facts.node("root", whole, whole, children=(leaf,))))
        self.declared: dict[str, NodePool] = {}
        self.most: dict[str, int] = {}
        """pool -> the most nodes it was ever allowed"""
        self.jobs: dict[str, object] = {}
        self.made: dict[str, tuple[Ref, NodesRequested]] = {}
        """Requests that exist on the cluster, by name."""
        self.delivered: dict[str, int] = {}
        self.of_pool: dict[str, dict[str, None]] = {}
        self.declare()

    def run(self, steps: int = 70) -> None:
        actions = (
            *(self.new_gang,) * 2,
            *(self.new_member,) * 5,
            *(self.new_job,) * 2,
            *(self.ask,) * 8,
            *(self.reply,) * 3,
            *(self.deliver,) * 5,
            self.carry_out,
            self.new_node,
            self.declare,
            self.forget_pools,
            self.unserved,
            self.end_job,
            self.pod_deleted,
            self.pod_ends,
            self.report,
            *(self.pass_time,) * 3,
        )
        for _ in range(steps):
            self.rng.choice(actions)()
            self.answer()

    def answer(self) -> None:
        if self.rng.random() < 0.3:
            name = self.rng.choice(("gang_admitter", "autoscaler_bridge"))
            due, at = self.bench.seats[name].decisions(), len(self.bench.log)
            self.rng.choice((self.pod_deleted, self.new_member, self.deliver, self.reply, self.end_job, self.ask))()
            self.bench.late(name, due, at)
        self.bench.settle()

    # --- what is declared -------------------------------------------------------------------------------------

    def declare(self) -> None:
        """A pool may have more nodes than before, never less: nobody can foresee that."""
        name = self.rng.choice("pq")
        known = self.declared.get(name)
        most = (known.most if known else 0) + self.rng.randint(0, 2)
        kind = known.provisioning or "unschedulable-pods" if known else self.rng.choice(KINDS)
        cpu = known.allocatable["cpu"] // 1000 if known else self.rng.randint(2, 8)
        self.declared[name] = nodes.pool(name, most, cpu, provisioning=kind, wait_s=self.rng.choice((30, 30, 900)))
        self.most[name] = most
        self.bench.facts(nodes.pools(*self.declared.values()))

    def forget_pools(self) -> None:
        if self.rng.random() < 0.3:
            self.bench.facts(NodePoolsGone(ref=nodes.POOLS, rv=facts.next_rv()))

    def unserved(self) -> None:
        self.bench.facts(Synced(kind="provisioningrequests", absent=self.rng.random() < 0.2))

    # --- jobs -------------------------------------------------------------------------------------------------

    def new_job(self) -> None:
        self.count += 1
        head, worker = facts.vector(cpu=self.rng.randint(1, 2)), facts.vector(cpu=self.rng.randint(1, 4))
        sets = (PodSet("head", 1, head), PodSet("worker", self.rng.randint(0, 4), worker))
        need = summed(each.request for each in sets for _ in range(each.count))
        name = f"job-{self.count}"
        self.jobs[name] = None
        job = facts.job(name, need={"ack": need, "full": need}, pod_sets=sets, created=self.bench.now)
        self.bench.facts(facts.seen(job))

    def end_job(self) -> None:
        if self.jobs:
            name = self.rng.choice(sorted(self.jobs))
            del self.jobs[name]
            self.bench.facts(facts.gone(name))

    # --- the autoscaler ---------------------------------------------------------------------------------------

    def asking(self) -> list[Asking]:
        self.orders()
        return list(self.actuator.asking.values())

    def ask(self) -> None:
        """The actuator carries out one order, and dies before the effect is stored now and then."""
        orders = self.asking()
        if not orders:
            return
        order = self.rng.choice(orders)
        decision, effect = order.decision, applied(order)
        if isinstance(decision, NodesRequestWithdrawn):
            found = self.made.pop(decision.name, None)
            if found is not None:
                self.bench.facts(NodesRequestGone(ref=found[0], rv=facts.next_rv()))
        elif self.rng.random() < 0.1:
            effect = failed(order, "refused", said("a policy says no"))
        elif decision.name not in self.made:
            ref = Ref("ProvisioningRequest", decision.namespace, decision.name, f"uid-{decision.name}")
            self.made[decision.name] = (ref, decision)
            if self.rng.random() < 0.8:
                self.bench.facts(NodesRequestObserved(ref=ref, rv=facts.next_rv()))
        if self.rng.random() > 0.1:
            self.bench.append("actuator", "input", [effect])

    def reply(self) -> None:
        if self.made:
            ref, _ = self.made[self.rng.choice(sorted(self.made))]
            phase = self.rng.choice(("accepted", "provisioned", "failed", "lapsed"))
            self.bench.facts(NodesRequestObserved(ref=ref, rv=facts.next_rv(), phase=phase, message="because"))

    def deliver(self) -> None:
        """A node comes that is asked for, ready at once or later."""
        still = {name for name, _ in self.opened().values()}
        for name in sorted(self.made):
            for each in self.made[name][1].pools if name in still else ():
                key = f"{name}/{each.pool}"
                if self.delivered.get(key, 0) < each.nodes and self.rng.random() < 0.7:
                    self.delivered[key] = self.delivered.get(key, 0) + 1
                    self.join(each.pool)
                    return

    def join(self, pool: str) -> None:
        self.count += 1
        name, shape = f"{pool}-{self.count}", self.declared[pool]
        self.of_pool.setdefault(pool, {})[name] = None
        cpu = shape.allocatable["cpu"] // 1000
        if self.rng.random() < 0.4:
            self.bench.facts(nodes.node(name, cpu=cpu, labels={"pool": pool}, ready=False))
            self.bench.settle()
        self.bench.facts(nodes.node(name, cpu=cpu, labels={"pool": pool}))

    # --- what must hold ---------------------------------------------------------------------------------------

    def opened(self) -> dict[str, tuple[str, NodesRequested]]:
        """Whose -> the request that is open; fails where a second one is made beside it."""
        found: dict[str, tuple[str, NodesRequested]] = {}
        for stored in self.bench.log:
            for event in stored.commit.events:
                if isinstance(event, NodesRequested):
                    assert whose(event) not in found, f"{whose(event)} has an open request already"
                    found[whose(event)] = (event.name, event)
                elif isinstance(event, NodesRequestWithdrawn) and found.get(whose(event), ("",))[0] == event.name:
                    del found[whose(event)]
        return found

    def check_pools(self) -> None:
        """What exists, and what is still to come of open requests, is no more than each pool may have."""
        for pool, most in self.most.items():
            coming = sum(
                max(each.nodes - self.delivered.get(f"{name}/{pool}", 0), 0)
                for name, event in self.opened().values()
                for each in event.pools
                if each.pool == pool
            )
            assert len(self.of_pool.get(pool, ())) + coming <= most, (pool, coming)


@SETTINGS
@given(SEEDS)
def test_one_request_for_each_and_never_more_nodes_than_a_pool_may_have(seed: int) -> None:
    growth = Growth(Random(seed))
    for _ in range(6):
        growth.run(12)
        growth.check_pools()
    report = audit(growth.bench.log)
    assert not report.violations, report.violations[0]
    report = replay(growth.bench.log, silences=False)
    assert not report.divergences, report.divergences[0]
    for name in ("gang_admitter", "autoscaler_bridge"):
        goes_on_from_a_snapshot(growth.bench, name, seed % len(growth.bench.log))
    growth.peace()
    assert growth.opened() == {}, "when there is room nothing is asked for any more"
    while growth.asking():
        growth.ask()
        growth.bench.settle()
    assert growth.made == {}


def test_the_histories_are_worth_something() -> None:
    def happened(seed: int) -> list[str]:
        growth = Growth(Random(seed))
        growth.run()
        asked = ["by a gang" if each.ref is None else "by a job" for each in growth.bench.happened(NodesRequested)]
        return [*asked, *(each.reason for each in growth.bench.happened(NodesRequestWithdrawn))]

    wanted = ("by a gang", "by a job", "met", "gone", "changed", "expired", "failed", "lapsed")
    worth(map(happened, range(40)), **dict.fromkeys(wanted, 1))
