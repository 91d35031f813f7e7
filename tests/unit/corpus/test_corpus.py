"""Malformed and hostile objects: each is reported on itself or read right, quickly, and stops no other.

The cases are files below tests/corpus; kit.hostile says what is in one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
import pytest

from kit import facts
from kit.audits import audit
from kit.bench import Bench
from kit.hostile import Hostile, Watching, corpus, watching
from kit.scenario import tell as tell_decision
from kit.words import coded, in_words, odd
from muster.core.reading.watcher import MAX_FACT_BYTES, about
from muster.core.stage import Folder
from muster.events.base import Event
from muster.events.decisions import GangAdmitted, QuotaTreeAccepted, QuotaTreeRejected, WorkloadRefused
from muster.events.envelope import MAX_BYTES, encode_commit
from muster.events.facts import ChildGone, ObjectUnreadable, QuotaTreeObserved, WorkloadObserved
from muster.events.registry import encode
from muster.runtime.logkeeping.snapshotting import decode_state, encode_state
from muster.runtime.replaying.replay import replay
from muster.told.presentation import desired, queuestatus
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.views.narrator import Narrator
from muster.told.views.publication import public_event
from muster.told.wording.events import tell

CASES = corpus()
READ_S = 2.0
"""More than any object takes (CPU time), less than a stage may stall."""

GOOD = (("good-1", "video"), ("good-2", "devops"), ("good-3", "intern-text"))

each_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])


def test_the_corpus_is_large_and_about_every_resource() -> None:
    assert len(CASES) >= 120
    assert {case.shard for case in CASES} >= {
        "rayjobs",
        "rayclusters",
        "pods",
        "nodes",
        "elasticquotatrees",
        "queues",
        "queueunits",
        "priorityclasses",
    }


# --- reading ------------------------------------------------------------------------------------------------------


@each_case
def test_it_is_read_or_reported_quickly_and_in_few_bytes(case: Hostile) -> None:
    body = case.body()
    began = time.process_time()
    found = watching(case.shard).see(body)
    assert time.process_time() - began < READ_S
    if case.case.expect.nameless or case.case.expect.ignored:
        assert found == []
        return
    assert len(found) == 1
    fact, expect = found[0], case.case.expect
    assert len(encode(fact)) <= MAX_FACT_BYTES
    if expect.accepted is None and not expect.refused and not expect.rejected:
        assert isinstance(fact, ObjectUnreadable), fact
        told = in_words(fact.problem)
        assert coded(fact.problem).startswith(expect.unreadable)
        assert re.match(r"(object|[a-zA-Z][\w./\[\]-]*): .", told), f"no field path: {told}"
        assert harmless(told), told
        assert len(told) <= 600
    else:
        assert not isinstance(fact, ObjectUnreadable), in_words(fact.problem)
        plain = msgspec.json.decode(encode(fact))
        for path, value in (expect.accepted or {}).items():
            assert at(plain, path) == value, path


@each_case
def test_it_is_reported_once_and_its_end_too(case: Hostile) -> None:
    body, watching_it = case.body(), Watching(case.shard)
    found = watching_it.see(body)
    watching_it.fold(found)
    assert watching_it.see(body) == []
    ends = watching_it.lose(body)
    assert [type(event) for event in ends] == [end_of(watching_it, fact) for fact in found]
    assert [event.ref for event in ends] == [about(fact)[0] for fact in found]
    watching_it.fold(ends)
    assert watching_it.runner.state.objects == {}


def end_of(watching_it: Watching, fact: Event) -> type[Event]:
    """What says that an object is gone of which this fact told."""
    row = watching_it.runner.stage.row
    return ChildGone if row.both and not isinstance(fact, WorkloadObserved) else row.gone


def at(plain: Any, path: str) -> Any:
    """The value at a dotted path; what a fact leaves out because it is the default is 0, empty or false."""
    for part in path.split("."):
        if isinstance(plain, list):
            plain = plain[int(part)]
        else:
            plain = next((plain[key] for key in (path, part) if key in plain), 0)
        path = path.partition(".")[2]
    return plain


def harmless(text: str) -> bool:
    """No control characters, nothing that turns the text around or breaks the line."""
    return all(char.isprintable() or char == "\ufffd" for char in text)


# --- among others -------------------------------------------------------------------------------------------------


def good_jobs() -> list[Event]:
    return [
        facts.seen(facts.job("good-1", "video")),
        facts.seen(facts.job("good-2", "devops", cpu=4, memory="4G")),
        facts.seen(facts.job("good-3", "intern-text", cpu=6, memory="2G")),
    ]


def play(odd: list[Event]) -> tuple[Bench, list[Event]]:
    """The tree T0 and three good jobs; something odd is seen between the second and the third."""
    bench = Bench()
    tree = facts.tree()
    if any(isinstance(fact, QuotaTreeObserved) for fact in odd):
        decided = [*_odd_tree(bench, odd, tree)]
    else:
        bench.facts(tree)
        bench.synced()
        decided = bench.settle()
    one, two, three = good_jobs()
    bench.facts(one, two)
    if odd and not isinstance(odd[0], QuotaTreeObserved):
        bench.facts(*odd)
    bench.facts(three)
    decided += bench.settle()
    decided += bench.pass_time(600_000)
    return bench, decided


def _odd_tree(bench: Bench, odd: list[Event], good: QuotaTreeObserved) -> Iterator[Event]:
    """The odd tree comes first, alone; then the good one; then the good one is overwritten by the odd one."""
    bench.facts(*odd)
    bench.synced()
    yield from (found := bench.settle())
    if any(isinstance(event, QuotaTreeAccepted) for event in found):
        check_presentation(bench, odd)
        bench.facts(*(facts.QuotaTreeGone(ref=fact.ref) for fact in odd if isinstance(fact, QuotaTreeObserved)))
        yield from bench.settle()
        bench.facts(good)
        yield from bench.settle()
        return
    bench.facts(good)
    yield from bench.settle()
    for fact in odd:
        assert isinstance(fact, QuotaTreeObserved)
        bench.facts(msgspec.structs.replace(fact, ref=good.ref, rv=facts.next_rv()))
    yield from bench.settle()


def about_the_good(decided: list[Event]) -> list[str]:
    """What was decided of the good jobs, word for word."""
    uids = {facts.job_ref(*key).uid for key in GOOD}
    return sorted(tell_decision(event) for event in decided if getattr(getattr(event, "ref", None), "uid", "") in uids)


@cache
def without() -> tuple[str, ...]:
    found = about_the_good(play([])[1])
    assert len([line for line in found if line.startswith("admitted")]) == 3
    return tuple(found)


def seen(case: Hostile) -> list[Event]:
    return watching(case.shard).see(case.body())


@each_case
def test_it_is_reported_on_itself_and_stops_no_other(case: Hostile) -> None:
    odd, expect = seen(case), case.case.expect
    bench, decided = play(odd)
    assert about_the_good(decided) == list(without())
    if expect.refused:
        refusals = [event for event in decided if isinstance(event, WorkloadRefused)]
        assert [event.refusal.reason for event in refusals] == [expect.refused[0]]
        assert coded(refusals[0].refusal.problem).startswith(expect.refused[1])
    if expect.rejected:
        rejections = [event for event in decided if isinstance(event, QuotaTreeRejected)]
        assert len(rejections) == 2, "once as a new tree, once over the good one"
        told = [coded(each) for each in rejections[0].violations]
        for text in expect.rejected:
            assert any(line.startswith(text) for line in told), told[:5]
    if case.shard == "elasticquotatrees" and expect.accepted is not None:
        assert sum(isinstance(event, QuotaTreeAccepted) for event in decided) == 2
    check_log(bench)
    check_words(bench)
    check_presentation(bench, odd)


def check_log(bench: Bench) -> None:
    """The log can be stored, restored, audited and replayed."""
    for stored in bench.log:
        assert len(encode_commit(stored.commit)) <= MAX_BYTES
    for state in bench.states.values():
        assert encode_state(decode_state(encode_state(state), type(state))) == encode_state(state)
    report = replay(bench.log, silences=False)
    assert report.decisions > 0
    assert not report.divergences
    assert not report.violations
    assert audit(bench.log).violations == []


def check_words(bench: Bench) -> None:
    """Whatever tells the log in words, inside or outside, finds words."""
    narrator = Narrator()
    for stored in bench.log:
        narrator.feed(stored)
        for item, event in enumerate(stored.commit.events):
            assert tell(event).word
            public = public_event("main", 1, stored.seq, item, stored.commit.at, event)
            if isinstance(event, WorkloadRefused | QuotaTreeRejected | GangAdmitted):
                assert public is not None


# --- what users are shown -----------------------------------------------------------------------------------------

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def view_of(bench: Bench) -> ReadState:
    view = ReadModel()
    folder, state = Folder(view), view.initial()
    for stored in bench.log:
        folder.fold(state, stored)
    return state


def check_presentation(bench: Bench, odd: list[Event]) -> None:
    state = view_of(bench)
    notes = {uid: desired.trouble_event(state, uid) for uid in state.troubles}
    for fact in odd:
        if isinstance(fact, ObjectUnreadable):
            note = notes[fact.ref.uid]
            assert note is not None
            assert note.reason == "Unreadable"
            assert note.ref == fact.ref
    for note in (*notes.values(), *(desired.job_event(state, uid) for uid in state.queues.workloads)):
        if note is not None:
            check_note(note)
    for uid in state.queues.workloads:
        unit = desired.queue_unit(state, uid)
        if unit is not None:
            check_object(unit)
    for path in list(state.queues.ledger.nodes)[:50]:
        queue = queuestatus.queue_object(state, path)
        if queue is not None:
            check_object(queue)
    encode(queuestatus.tree_status(state))


def check_note(note: desired.EventNote) -> None:
    """What the API server takes as an Event."""
    assert SUBDOMAIN.fullmatch(note.name), note.name
    assert len(note.name) <= 253
    assert re.fullmatch(r"[A-Z][A-Za-z]{2,60}", note.reason)
    assert 0 < len(note.message.encode()) <= 1024
    assert harmless(note.message), note.message
    assert re.fullmatch(r"([a-z0-9.-]+/)?v[0-9][a-z0-9]*", note.api_version), note.api_version


def check_object(wanted: desired.DesiredObject) -> None:
    """What the API server takes as a Queue or a QueueUnit."""
    assert SUBDOMAIN.fullmatch(wanted.name), wanted.name
    assert len(wanted.name) <= 253
    message = wanted.status.get("message", "")
    assert harmless(message)
    assert len(message.encode()) <= 1024
    for pods in wanted.spec.get("podSet", ()):
        assert len(pods["name"]) <= 63
        assert 0 <= pods["count"] < 2**31
    assert -(2**31) <= wanted.spec.get("priority", 0) < 2**31


def test_a_tree_that_becomes_unreadable_leaves_the_good_one_in_force() -> None:
    bench = Bench()
    tree = facts.tree()
    bench.facts(tree)
    bench.synced()
    bench.settle()
    bench.facts(ObjectUnreadable(ref=tree.ref, rv=facts.next_rv(), problem=odd("spec.root: expected object, got null")))
    assert bench.settle() == []
    bench.facts(*good_jobs())
    assert len([event for event in bench.settle() if isinstance(event, GangAdmitted)]) == 3


def test_a_job_that_is_mended_is_queued() -> None:
    bench = Bench()
    bench.facts(facts.tree())
    bench.synced()
    job = facts.job("mended")
    bench.facts(ObjectUnreadable(ref=job.ref, rv=facts.next_rv(), problem=odd("spec.suspend: expected bool, got str")))
    assert desired.trouble_event(view_of(bench), job.ref.uid) is not None
    bench.facts(WorkloadObserved(workload=msgspec.structs.replace(job, rv=facts.next_rv())))
    assert [event.ref for event in bench.settle() if isinstance(event, GangAdmitted)] == [job.ref]
    assert desired.trouble_event(view_of(bench), job.ref.uid) is None
