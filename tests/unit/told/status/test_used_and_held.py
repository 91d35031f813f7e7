"""What is used is what is charged; what is held for a claimant is named beside it, in every text about a refusal."""

from __future__ import annotations

from msgspec.structs import replace

from kit import facts
from kit.scenes import Scene
from kit.standings import held_for_another
from muster.core.quota.ledger import quotaledger
from muster.core.stage import Folder
from muster.events.base import Cause
from muster.events.decisions import QuotaDenied
from muster.events.public import PublicWorkloadDenied
from muster.model.demand import Shortfall
from muster.told.codes.values import Leaving
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.views.narrator import Narrator
from muster.told.views.publication import public_event
from muster.told.views.story import Story
from muster.told.wording.explain import waiting_for_quota
from muster.told.wording.meanings import evicted_for


def denials(scene: Scene, job: str) -> list[Shortfall]:
    found = [each.short for each in scene.bench.happened(QuotaDenied) if each.ref.key == job]
    return [short for short in found if short is not None]


def states(scene: Scene) -> list[tuple[ReadState, QuotaDenied]]:
    """The read model as of each denial."""
    folder, state, found = Folder(ReadModel()), ReadState(), []
    for stored in scene.bench.log:
        folder.fold(state, stored)
        for event in stored.commit.events:
            if isinstance(event, QuotaDenied) and event.short is not None:
                used = (
                    quotaledger.recounted_used(state.queues.ledger)
                    .get(event.short.path, {})
                    .get(event.short.resource, 0)
                )
                assert event.short.used <= used, event
                found.append((state, event))
    return found


def test_a_denial_says_what_is_used_and_what_is_held_and_for_which_job() -> None:
    scene, job = held_for_another()
    assert states(scene)
    short = denials(scene, job)[-1]
    assert (short.used, short.held, short.claimant) == (5_000, 2_000, "a/owed")
    assert short.missing == short.asked - (short.limit - 5_000 - 2_000)


def test_history_story_status_and_public_event_name_the_claimant() -> None:
    scene, job = held_for_another()
    story = Story(job)
    narrator, told = Narrator(), []
    for stored in scene.bench.log:
        story.feed(stored)
        told += [each.text for each in narrator.feed(stored) if each.subject == job and each.word == "waits"]
    found = story.of(job)
    beside = "used 5, held 2 for a/owed"
    assert beside in found.standing.text
    assert beside in told[-1]
    assert any(beside in each.entry.text for each in found.happenings)
    denied = [
        public_event("cell", 1, stored.seq, index, stored.commit.at, event)
        for stored in scene.bench.log
        for index, event in enumerate(stored.commit.events)
        if isinstance(event, QuotaDenied)
    ]
    last = next(each for each in reversed(denied) if isinstance(each, PublicWorkloadDenied))
    assert (last.used, last.held, last.claimant) == ("5", "2", "a/owed")
    assert beside in last.message
    assert found.standing.wanting is not None, "who holds it is named"


def test_the_advice_fits_what_refuses_it() -> None:
    held = Shortfall("root/a", "cpu", asked=2_000, used=8_000, limit=10_000, held=1_000, claimant="a/owed")
    assert waiting_for_quota(held).code == "QuotaHeld"
    full = Shortfall("root/a", "cpu", asked=3_000, used=8_000, limit=10_000, held=1_000, claimant="a/owed")
    assert waiting_for_quota(full).code == "InsufficientQuota", "without the claim it would not fit either"
    assert "held 1 for a/owed" in waiting_for_quota(full).text
    several = replace(full, beside=("b/one", "b/two"))
    assert "held 1 for a/owed, b/one and b/two" in waiting_for_quota(several).text, "every claim is named"


def test_a_limit_that_no_release_helps_comes_before_one_that_may_pass() -> None:
    """Two of four cores are used, and three are more than the min, which is two: no release helps."""
    scene = Scene()
    scene.tree_of(("a", 2), ("b", 2))
    scene.lines("synced", "job b/x cpu=2")
    label = {"quota.scheduling.alibabacloud.com/preemptible": "false"}
    scene.do(facts.seen(facts.job("one", namespace="a", cpu=3, labels=label, created=scene.bench.now - 60_000)))
    story = Story("a/one")
    for stored in scene.bench.log:
        story.feed(stored)
    found = story.of("a/one")
    assert found.standing.code == "ExceedsMinQuota", found.standing.text
    assert "can never be admitted like this" in found.standing.text
    denied = scene.bench.happened(QuotaDenied)
    assert [each.reason for each in denied if each.ref.key == "a/one"] == ["exceeds_limit"]


def test_kai_queues_have_the_words_of_kai() -> None:
    full = Shortfall("kai/dept/team", "nvidia.com/gpu", asked=3_000, used=3_000, limit=4_000)
    assert waiting_for_quota(full).text.startswith(
        "Insufficient quota(nvidia.com/gpu) in queue team: request 3, limit 4, used 3."
    )
    firm = Shortfall("kai/dept/team", "nvidia.com/gpu", asked=3_000, used=0, limit=2_000, of_min=True)
    for text in (waiting_for_quota(firm).text, waiting_for_quota(full).text):
        assert " min " not in text
        assert " max " not in text
        assert "quota kai" not in text
    why = Leaving("Reclaimed", 1, Cause(1, 0), "ns/owed", "kai/dept/other", path="kai", resource="nvidia.com/gpu")
    reclaimed = evicted_for(why).text
    assert "within the fair share of its queue" in reclaimed
    assert " min " not in reclaimed


def test_a_priority_class_that_does_not_exist_is_named() -> None:
    scene, job = held_for_another()
    story = Story(job)
    for stored in scene.bench.log:
        story.feed(stored)
    uid = story.of(job).ref.uid
    workload = story.state.queues.workloads[uid]
    story.state.queues.workloads[uid] = replace(workload, priority=None, priority_class="hihg")
    text = story.of(job).standing.text
    assert "PriorityClass hihg does not exist, so its priority is 0" in text
    story.state.queues.priority_classes["hihg"] = 7
    assert "PriorityClass" not in story.of(job).standing.text
