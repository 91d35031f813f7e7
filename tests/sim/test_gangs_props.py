"""The gang admitter under random histories: nodes and pods come and go, decisions land late, time passes."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from hypothesis import given

from kit import facts, nodes
from kit.audits import audit
from kit.bench import Bench
from kit.histories import (
    SEEDS,
    SETTINGS,
    decisions_with_what_was_known,
    kinds_of,
    replays_and_goes_on_from_a_snapshot,
    worth,
)
from muster.events.decisions import GangAdmitted, PlacesReleased
from muster.events.effects import EffectApplied
from muster.events.facts import NodeGone, PodGone, PodObserved
from muster.events.system import PlacementChosen
from muster.model.keys import Ref
from muster.model.placing import HOSTNAME, PodRules, PodTerm, Requirement
from muster.model.resources import summed
from muster.model.workload import PodSet, PodState, Workload


def tree() -> facts.TreeNodeSpec:
    whole = {"cpu": 60}
    return facts.node("root", whole, whole, children=(facts.node("video", {"cpu": 0}, whole, ("video",)),))


class History:
    """Jobs, nodes and pods that do what they like; the stages answer, sometimes late."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.bench = Bench(rng)
        self.jobs: dict[str, Workload] = {}
        self.pods: dict[str, PodState] = {}
        self.nodes: dict[str, int] = {}
        self.count = 0
        self.came: set[str] = set()
        """Pods of gangs that have come up, whatever became of them."""
        grow = rng.choice((0, 0, 120_000))
        mode = rng.choice(("pack", "spread"))
        self.bench.append("gang_admitter", "input", [PlacementChosen(mode=mode, hold_ms=60_000, grow_ms=grow)])
        self.bench.facts(facts.tree(tree()))
        self.bench.synced()

    def run(self, steps: int = 60) -> None:
        actions = (
            self.new_job,
            self.new_job,
            self.new_node,
            self.new_node,
            self.lose_node,
            self.foreign_pod,
            self.pod_ends,
            self.resume,
            self.resume,
            self.end_job,
            self.pass_time,
        )
        for _ in range(steps):
            self.rng.choice(actions)()
            self.answer()

    def answer(self) -> None:
        """The stages decide; now and then a decision lands after another fact."""
        if self.rng.random() < 0.3:
            name = self.rng.choice(list(self.bench.seats))
            due, at = self.bench.seats[name].decisions(), len(self.bench.log)
            self.rng.choice((self.new_node, self.lose_node, self.foreign_pod, self.end_job))()
            self.bench.late(name, due, at)
        self.bench.settle()

    def new_job(self) -> None:
        self.count += 1
        rules = PodRules()
        if self.rng.random() < 0.2:
            same = (Requirement("app", "In", ("x",)),)
            rules = PodRules(labels={"app": "x"}, apart=(PodTerm(HOSTNAME, same),))
        head, worker = facts.vector(cpu=self.rng.randint(1, 2)), facts.vector(cpu=self.rng.randint(1, 4))
        sets = (PodSet("head", 1, head), PodSet("worker", self.rng.randint(0, 5), worker, rules))
        need = summed(pods.request for pods in sets for _ in range(pods.count))
        job = facts.job(f"job-{self.count}", need={"ack": need, "full": need}, pod_sets=sets, created=self.bench.now)
        self.jobs[job.ref.name] = job
        self.bench.facts(facts.seen(job))

    def new_node(self) -> None:
        name = f"n{self.rng.randint(0, 5)}"
        schedulable = self.rng.random() > 0.1
        self.nodes[name] = self.nodes.get(name, 0) or self.count + 1
        uid = f"uid-{name}-{self.nodes[name]}"
        self.bench.facts(nodes.node(name, cpu=self.rng.randint(2, 10), schedulable=schedulable, uid=uid))

    def lose_node(self) -> None:
        if self.nodes:
            name = self.rng.choice(sorted(self.nodes))
            uid = f"uid-{name}-{self.nodes.pop(name)}"
            self.bench.facts(NodeGone(ref=Ref("Node", "", name, uid), rv=facts.next_rv()))
            self.count += 1

    def foreign_pod(self) -> None:
        self.count += 1
        ref = Ref("Pod", "other", f"foreign-{self.count}", f"foreign-{self.count}")
        self._pod(PodState(ref=ref, rv=0, node=f"n{self.rng.randint(0, 5)}", request=facts.vector(cpu=1)))

    def _pod(self, pod: PodState) -> None:
        fields = {name: getattr(pod, name) for name in pod.__struct_fields__} | {"rv": facts.next_rv()}
        self.pods[pod.ref.uid] = PodState(**fields)
        self.bench.facts(PodObserved(pod=self.pods[pod.ref.uid]))

    def pod_ends(self) -> None:
        if self.pods:
            pod = self.pods.pop(self.rng.choice(sorted(self.pods)))
            self.bench.facts(PodGone(ref=pod.ref, rv=facts.next_rv()))

    def resume(self) -> None:
        """An admission is carried out; some of its pods come up, where they were meant to or elsewhere."""
        admitter = self.bench.states["gang_admitter"]
        if not admitter.holds:
            return
        uid = self.rng.choice(sorted(admitter.holds))
        hold = admitter.holds[uid]
        job = self.jobs.get(hold.ref.name)
        if job is None:
            return
        if job.suspended:
            cause = (hold.cause.seq, hold.cause.item)
            effect = EffectApplied(cause=cause, ref=job.ref, attempt=hold.attempt, rv=facts.next_rv())
            self.bench.append("actuator", "input", [effect])
            self.change(job, suspended=False, phase="running", settled=False, generation=job.generation + 1)
            self.bench.facts(facts.cluster(job.ref.name))
        for pods in job.pod_sets:
            for index in range(pods.count):
                where = f"n{self.rng.randint(0, 5)}"
                uid = f"{job.ref.uid}-{pods.name}-{index}"
                if self.rng.random() < 0.6 and uid not in self.came:
                    self.came.add(uid)
                    labels = {"ray.io/group": pods.name, "ray.io/node-type": pods.name}
                    owner = facts.cluster_ref(job.ref.name).uid
                    ref = Ref("Pod", "video", f"{job.ref.name}-{pods.name}-{index}", uid)
                    self._pod(PodState(ref=ref, rv=0, owner_uid=owner, node=where, request=pods.request, labels=labels))

    def change(self, job: Workload, **changes: object) -> None:
        fact = facts.seen(job, **changes)
        self.jobs[job.ref.name] = fact.workload
        self.bench.facts(fact)

    def end_job(self) -> None:
        if self.jobs:
            self.end(self.rng.choice(sorted(self.jobs)))

    def end(self, name: str) -> None:
        self.jobs.pop(name)
        self.bench.facts(facts.gone(name))
        for uid in [uid for uid, pod in self.pods.items() if pod.owner_uid == facts.cluster_ref(name).uid]:
            self.bench.facts(PodGone(ref=self.pods.pop(uid).ref, rv=facts.next_rv()))
        self.bench.facts(facts.cluster_gone(name))

    def pass_time(self) -> None:
        self.bench.pass_time(self.rng.choice((1_000, 20_000, 70_000)))

    def peace(self) -> None:
        """Everything else ends, and there are nodes enough for anybody."""
        for uid in list(self.pods):
            if uid.startswith("foreign"):
                self.bench.facts(PodGone(ref=self.pods.pop(uid).ref, rv=facts.next_rv()))
        for index in range(6):
            self.bench.facts(nodes.node(f"large-{index}", cpu=64))
        self.bench.pass_time(3_600_000)


@SETTINGS
@given(SEEDS)
def test_gangs_are_whole_and_nothing_leaks(seed: int) -> None:
    history = History(Random(seed))
    history.run()
    report = audit(history.bench.log)
    assert not report.violations, report.violations[0]
    history.peace()
    state = history.bench.states["gang_admitter"]
    assert not state.holds, "an hour later places are still held"
    assert not state.reservations, f"there is room for everybody and these wait: {state.reservations}"
    held = [key for key in state.ledger.occupants if key not in history.pods]
    assert not held, held


@SETTINGS
@given(SEEDS)
def test_admitted_gangs_fit_what_was_known(seed: int) -> None:
    """At its in_seq, every placement fits beside everybody who was there and everything that was held."""
    history = History(Random(seed))
    history.run()
    for state, stored in decisions_with_what_was_known(history.bench, "gang_admitter"):
        oracle = nodes.Naive(state.ledger)
        for event in stored.commit.events:
            if isinstance(event, GangAdmitted):
                for place in event.placements:
                    pods = next(pods for pods in event.pod_sets if pods.name == place.pod_set)
                    one = nodes.Ask(pods.name, 1, pods.request, "video", pods.rules)
                    for _ in range(place.count):
                        released = any(isinstance(other, PlacesReleased) for other in stored.commit.events)
                        assert released or oracle.fits(one, place.node), (event.ref, place)
                        oracle.put(one, place.node)


@SETTINGS
@given(SEEDS)
def test_replay_and_snapshots_agree(seed: int) -> None:
    history = History(Random(seed))
    history.run(40)
    replays_and_goes_on_from_a_snapshot(history.bench, "gang_admitter", seed % len(history.bench.log))


def test_the_histories_are_worth_something() -> None:
    def happened(seed: int) -> Iterator[str]:
        history = History(Random(seed))
        history.run()
        return kinds_of(history.bench.log)

    worth(map(happened, range(25)), GangAdmitted=1, GangDeferred=1, GangAwaitingNodes=1, PlacesReleased=1)
