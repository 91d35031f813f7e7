"""What is used is what is charged; what is held for a claimant is named beside it, in every text about a refusal."""

from __future__ import annotations

from kit.scenes import Scene
from kit.standings import held_for_another
from muster.core.readmodel.model import ReadModel
from muster.core.readmodel.state import ReadState
from muster.core.stage import Folder
from muster.core.views.narrator import Narrator
from muster.core.views.publication import public_event
from muster.core.views.story import Story
from muster.core.wording.explain import waiting_for_quota
from muster.events.decisions import QuotaDenied
from muster.events.public import PublicWorkloadDenied
from muster.model.demand import Shortfall


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
                used = state.queues.ledger.recount().get(event.short.path, {}).get(event.short.resource, 0)
                assert event.short.used <= used, event
                found.append((state, event))
    return found


def test_a_denial_says_what_is_used_and_what_is_held_and_for_which_job() -> None:
    scene, job = held_for_another()
    assert states(scene)
    short = denials(scene, job)[-1]
    assert (short.used, short.held, short.claimant) == (6_000, 5_000, "a/owed")
    assert short.missing == short.asked - (short.limit - 6_000 - 5_000)


def test_history_story_status_and_public_event_name_the_claimant() -> None:
    scene, job = held_for_another()
    story = Story(job)
    narrator, told = Narrator(), []
    for stored in scene.bench.log:
        story.feed(stored)
        told += [each.text for each in narrator.feed(stored) if each.subject == job and each.word == "waits"]
    found = story.of(job)
    beside = "used 6, held 5 for a/owed"
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
    assert (last.used, last.held, last.claimant) == ("6", "5", "a/owed")
    assert beside in last.message
    assert found.standing.wanting is not None, "who holds it is named"


def test_the_advice_fits_what_refuses_it() -> None:
    held = Shortfall("root/a", "cpu", asked=2_000, used=8_000, limit=10_000, held=1_000, claimant="a/owed")
    assert waiting_for_quota(held).code == "QuotaHeld"
    full = Shortfall("root/a", "cpu", asked=3_000, used=8_000, limit=10_000, held=1_000, claimant="a/owed")
    assert waiting_for_quota(full).code == "InsufficientQuota", "without the claim it would not fit either"
    assert "held 1 for a/owed" in waiting_for_quota(full).text
