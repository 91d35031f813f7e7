"""The accountant serves a claim once, and adds nothing to what is free by doing so."""

from kit import facts
from kit.audits import audit
from kit.bench import Bench
from kit.scenes import Scene
from muster.core.quota.claiming import expires_at
from muster.core.quota.claims import Claim, Claims, Leaver
from muster.core.quota.ledger.quotaledger import Ledger
from muster.events.base import Cause
from muster.events.claims import ClaimOpened
from muster.events.decisions import (
    Candidate,
    CandidatesProposed,
    QuotaDenied,
    QuotaReserved,
    WorkloadQueued,
)
from muster.model.demand import Demand
from muster.model.keys import Ref
from muster.model.resources import Vector


class Accountant(Bench):
    """A bench on which only the accountant decides; the sorter's part is said by the test."""

    def __init__(self, *jobs: tuple[str, str, int]) -> None:
        super().__init__(check=False)
        leaves = (
            facts.node("a", {"cpu": 5}, {"cpu": 8}, ("a",)),
            facts.node("b", {"cpu": 3}, {"cpu": 8}, ("b",)),
        )
        self.facts(facts.tree(facts.node("root", {"cpu": 8}, {"cpu": 8}, children=leaves)))
        self.synced()
        self.step("quota_accountant")
        self.known = {
            name: (facts.job(name, queue, cpu=cpu, pod_sets=()), f"root/{queue}") for name, queue, cpu in jobs
        }
        self.facts(*(facts.seen(job) for job, _ in self.known.values()))
        for job, queue in self.known.values():
            queued = WorkloadQueued(
                cause=Cause(1, 0),
                ref=job.ref,
                attempt=1,
                queue=queue,
                request=job.need["ack"],
                basis=job.basis,
            )
            self.append("queue_sorter", "decision", [queued])

    def shape(self, name: str) -> tuple[Ref, str, Vector]:
        job, queue = self.known[name]
        return job.ref, queue, job.need["ack"]

    def candidate(self, name: str) -> Candidate:
        job, queue = self.known[name]
        return Candidate(Cause(1, 0), job.ref, 1, queue, job.need["ack"], basis=job.basis)

    def claim(self, name: str) -> None:
        ref, queue, request = self.shape(name)
        basis = self.known[name][0].basis
        claim = ClaimOpened(cause=Cause(1, 0), ref=ref, attempt=1, queue=queue, request=request, basis=basis)
        self.append("quota_accountant", "decision", [claim])

    def propose(self, *names: str) -> list[tuple[str, str]]:
        """Propose jobs; (job, what became of it) in the order of the answers."""
        candidates = tuple(map(self.candidate, names))
        self.append("queue_sorter", "decision", [CandidatesProposed(cause=Cause(1, 0), candidates=candidates)])
        answers = []
        while due := self.step("quota_accountant"):
            answers += due
        return [
            (each.ref.name, "reserved" if isinstance(each, QuotaReserved) else each.reason)
            for each in answers
            if isinstance(each, QuotaReserved | QuotaDenied)
        ]

    def broken(self) -> dict[str, int]:
        return dict(audit(self.log).broken)


def test_of_several_that_ask_for_the_same_one_is_served_and_the_others_must_fit():
    bench = Accountant(("x", "b", 7), ("one", "a", 1), ("two", "a", 1), ("three", "b", 1))
    assert bench.propose("x") == [("x", "reserved")]
    bench.claim("one")
    assert bench.propose("one", "two", "three") == [
        ("one", "reserved"),
        ("two", "insufficient_quota"),
        ("three", "insufficient_quota"),
    ]
    assert bench.broken() == {}


def test_what_is_held_is_free_for_nobody_else():
    bench = Accountant(("x", "b", 6), ("one", "a", 1), ("other", "b", 1), ("late", "b", 1))
    bench.propose("x")
    bench.claim("one")
    assert bench.propose("other", "late") == [("other", "reserved"), ("late", "insufficient_quota")]
    assert bench.propose("one") == [("one", "reserved")]
    assert bench.broken() == {}


def test_a_claim_lasts_while_its_claimant_is_queued_again_for_the_same() -> None:
    """A proposal brings one that waits for nodes back to its queue: its order may come before that, or after."""
    bench = Accountant(("x", "b", 6), ("one", "a", 1), ("other", "b", 2))
    bench.propose("x")
    bench.claim("one")
    job, queue = bench.known["one"]
    again = WorkloadQueued(
        cause=Cause(1, 0), ref=job.ref, attempt=2, queue=queue, request=job.need["ack"], basis=job.basis
    )
    bench.append("queue_sorter", "decision", [again])
    assert not bench.step("quota_accountant")
    assert bench.propose("other") == [("other", "insufficient_quota")], "one is held for the job"
    assert bench.broken() == {}


def test_who_leaves_for_a_claim_that_took_the_room_of_another_leaves_for_that_one():
    """Else what they give back counts for nobody, and further jobs are suspended for it."""
    asks, claims = Demand({"cpu": 3}), Claims()
    for name in ("older", "newer", "odd"):
        asked = Demand({"cpu": 1}) if name == "odd" else asks
        claims.open(Claim(Ref("RayJob", "a", name, name), 1, "root/a", asked, "guarantee", opened=1))
    claims.by_uid["newer"].victims["victim"] = claims.going["victim"] = Leaver(4)
    claims.pass_on(claims.by_uid["newer"])
    claims.end("newer")
    assert claims.by_uid["older"].victims == claims.going == {"victim": Leaver(4)}
    assert not claims.by_uid["odd"].victims


def test_what_leaves_for_a_served_claim_leaves_for_the_next_that_was_planned_after_it():
    """Its plan counts on all that leaves for those before it, so their charge may use its room."""
    claims, part = Claims(), Leaver(2, gives=Demand({"cpu": 1}), left={"workers": 1})
    for name in ("before", "served", "after", "last"):
        asked = Demand({"cpu": len(name)})
        claims.open(Claim(Ref("RayJob", "a", name, name), 1, f"root/{name}", asked, "guarantee", opened=1))
    claims.by_uid["served"].victims["cluster"] = claims.going["cluster"] = part
    claims.pass_on(claims.by_uid["served"])
    claims.end("served")
    assert claims.going == claims.by_uid["after"].victims == {"cluster": part}
    assert not claims.by_uid["before"].awaits


def test_a_claim_does_not_expire_while_somebody_leaves_for_another():
    """What the other holds is free for it only once the victim is gone: its own have left for nothing else."""
    bench = Accountant(("x", "b", 6), ("one", "b", 4), ("two", "a", 4))
    bench.propose("x")
    state = bench.states["quota_accountant"]
    leaving = bench.shape("x")[0].uid
    for name, victims in (("one", {leaving: Leaver(1)}), ("two", {})):
        ref, queue, request = bench.shape(name)
        state.ledger.open_claim(Claim(ref, 1, queue, Demand(request), "guarantee", opened=1, victims=victims))
    two = state.ledger.claims.by_uid[bench.shape("two")[0].uid]
    assert state.ledger.shortfall(two.queue, two.demand) is not None
    assert expires_at(state, two) is None
    state.ledger.victim_stays(leaving, 1, at=5)
    assert expires_at(state, two) == two.progress + state.ledger.rules_of(two.queue).claim_ms


def test_whom_a_firm_claim_serves_it_is_not_asked_what_it_is_owed(monkeypatch):
    """It passes the claims for age as one that is owed: at every node of its path that took as long as all the rest."""
    bench = Accountant(("one", "a", 1), ("two", "b", 2), ("aged", "b", 3))
    ledger, asked = bench.states["quota_accountant"].ledger, list[str]()
    owed = Ledger.owed_at
    monkeypatch.setattr(Ledger, "owed_at", lambda self, queue, *more: asked.append(queue) or owed(self, queue, *more))
    for name, kind in (("one", "guarantee"), ("aged", "age")):
        ref, queue, request = bench.shape(name)
        ledger.open_claim(Claim(ref, 1, queue, Demand(request), kind, opened=1, top="root"))
    one, two = (Demand(bench.shape(name)[2]) for name in ("one", "two"))
    assert not ledger.held_from("root/a", one, now=None).extra
    assert not asked
    assert ledger.held_from("root/b", two, now=None).extra["root"] == ledger.claims.total.extra["root"]
    assert ledger.held_from("root/a", two, now=None).extra["root"] == ledger.claims.firm.extra["root"]
    assert asked == ["root/b", "root/a"]


def test_once_the_claim_is_served_what_it_held_too_much_is_free():
    bench = Accountant(("x", "b", 5), ("one", "a", 1), ("two", "a", 1), ("three", "a", 1), ("four", "b", 1))
    bench.propose("x")
    bench.claim("two")
    assert bench.propose("one", "two", "three", "four") == [
        ("one", "reserved"),
        ("two", "reserved"),
        ("three", "reserved"),
        ("four", "insufficient_quota"),
    ]
    assert bench.broken() == {}


def test_an_urgent_job_is_helped_before_lower_priority_of_its_queue():
    """a is owed two cores for a/small; a/urgent, which outranks what runs there, comes first all the same."""
    scene = Scene()
    scene.tree_of(("a", 5), ("b", 3), preempt_lower_priority="true")
    scene.lines("synced")
    for name, cpu in (("a/low", 3), ("b/first", 3), ("b/second", 2)):
        scene.lines(f"job {name} cpu={cpu}")
        scene.runs(name)
    scene.line("job a/small cpu=2")
    scene.line("job a/urgent cpu=4 prio=9")
    scene.settle()
    assert scene.victims() == ["a/low", "b/second"]
    for name in ("a/low", "b/second"):
        scene.suspended(name)
    assert "uid-a-urgent" in scene.bench.states["quota_accountant"].entries
    assert audit(scene.bench.log).broken == {}
