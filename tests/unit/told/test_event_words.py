"""Events in words: every one there is, and nothing a user wrote can break them."""

from kit.words import odd
from muster.core.actuation.orders import said
from muster.events import decisions as d
from muster.events import effects, facts, system
from muster.events.base import Cause
from muster.events.refusals import Refusal
from muster.events.registry import EVENT_TYPES
from muster.model.demand import Shortfall
from muster.model.keys import Ref
from muster.model.problem import problem
from muster.model.quota import QuotaNode, QuotaTree
from muster.told.views.story import Story
from muster.told.wording.events import _EVENTS, MAX_TEXT, subject_of, tell, words

JOB = Ref("RayJob", "video", "one", "uid-1")
AT = Cause(7, 0)


def test_every_event_has_its_words() -> None:
    assert set(_EVENTS) == set(EVENT_TYPES.values())
    assert all(word == word.lower() and len(word) <= 12 for word in words())


def test_what_an_event_is_about() -> None:
    denied = d.QuotaDenied(cause=AT, ref=JOB, attempt=1, queue="root/a", reason="stale")
    assert subject_of(denied) == "video/one"
    assert subject_of(facts.ChildGone(ref=Ref("RayCluster", "video", "c", "u"))) == "RayCluster video/c"
    assert subject_of(system.TimeReached(at=1)) == ""
    assert subject_of(facts.Synced(kind="pods")) == "pods"
    proposed = [d.Candidate(AT, JOB, 1, "root/a", {}), d.Candidate(AT, JOB, 1, "root/a", {})]
    assert subject_of(d.CandidatesProposed(cause=AT, candidates=tuple(proposed))) == "video/one +1"


def test_sentences_have_the_numbers() -> None:
    denied = d.QuotaDenied(
        cause=AT,
        ref=JOB,
        attempt=1,
        queue="root/a",
        reason="insufficient_quota",
        short=Shortfall("root/a", "memory", asked=12_000_000_000, used=4 << 30, limit=14 << 30),
    )
    assert "Insufficient quota(memory) in quota root/a: request 12G, max 14Gi, used 4Gi" in tell(denied).text
    failed = effects.EffectFailed(cause=AT, ref=JOB, attempt=1, reason="refused", problem=said("policy says no"))
    assert tell(failed).text == "the API server refused to resume it: policy says no"
    nodes = (QuotaNode("root", limit={"cpu": 40_000}, children=("root/a",)), QuotaNode("root/a"))
    accepted = d.QuotaTreeAccepted(
        cause=AT, tree=QuotaTree(JOB, nodes), rv=1, warnings=(odd("one warning: it is odd"),)
    )
    assert tell(accepted).text == "in force with 2 queues, in all cpu 40; one: warning it is odd"
    rules = tuple(problem("root/a", "said", said=f"rule {number}") for number in range(5))
    rejected = d.QuotaTreeRejected(cause=AT, ref=JOB, rv=1, violations=rules)
    assert tell(rejected).text.endswith("root/a: rule 0; root/a: rule 1; root/a: rule 2; and 2 more")


def test_a_text_is_never_endless() -> None:
    refused = d.WorkloadRefused(
        cause=AT, ref=JOB, refusal=Refusal("cannot_suspend", problem=odd("spec: " + "x" * 10_000))
    )
    assert len(tell(refused).text) == MAX_TEXT
    assert tell(refused).text.endswith("…")


def test_a_story_of_nobody() -> None:
    assert Story("video/one").matches().keys == []
