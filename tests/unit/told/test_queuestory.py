"""The story of a queue: numbers, who waits, and what happened there and below, and nowhere else."""

import pytest

from kit.scenario import Play
from muster.told.views.queuestory import QueueStory
from muster.told.views.story import Story
from muster.told.views.tellings import QueueTale

LINES = (
    "tree", "synced", "job two", "job text/other", "time +60s", "job one", "job three prio=5", "time +60s",
    "resumed two", "cluster two", "runs two", "finishes two", "time +60s", "cluster-gone two",
)  # fmt: skip


@pytest.fixture(scope="module")
def log():
    scene = Play()
    for line in LINES:
        scene.line(line)
        scene.settle()
    return scene.bench.log


def tale(log, queue: str, *, first: int = 0, last: int = 10**9) -> QueueTale:
    story = QueueStory(queue)
    for stored in log:
        if stored.seq <= last:
            story.feed(stored, shown=stored.seq >= first)
    (found,) = story.matches()
    return story.of(found)


def test_numbers_and_who_waits(log):
    found = tale(log, "root/algorithm/video")
    tally = found.tally
    assert (tally.queued, tally.admitted, tally.released, tally.evicted, tally.denied) == (3, 2, 1, 0, 1)
    assert (tally.longest_waiter, tally.longest_wait // 1000) == ("video/three", 179)
    assert [(each.job, each.position, each.waited // 1000) for each in found.waiting] == [("video/one", 1, 179)]
    assert found.waiting[0].reason.startswith("Insufficient quota(cpu) in quota root/algorithm/video: request 12")
    assert "cpu 12 of 14" in found.usage
    assert not found.next_start.known


def test_only_what_happened_there_and_below(log):
    jobs = {entry.ref.key for entry in tale(log, "video").entries if entry.ref is not None}
    assert jobs == {"video/one", "video/two", "video/three"}
    above = {entry.ref.key for entry in tale(log, "root/algorithm").entries if entry.ref is not None}
    assert above == {*jobs, "text/other"}
    assert tale(log, "root/algorithm").tally.queued == 4


def test_between_two_moments(log):
    whole = tale(log, "video")
    middle = whole.entries[len(whole.entries) // 2].seq
    first, second = tale(log, "video", last=middle), tale(log, "video", first=middle + 1)
    assert [*first.entries, *second.entries] == whole.entries
    assert first.tally.queued + second.tally.queued == whole.tally.queued
    assert first.seq == middle
    assert second.waiting == whole.waiting, "what came before is folded, and not told"


def test_names_that_mean_none_or_several(log):
    story, nobody = QueueStory("devops"), QueueStory("nobody")
    for stored in log:
        story.feed(stored)
        nobody.feed(stored)
    assert story.matches() == ["root/devops", "root/infrastructure/devops"]
    assert nobody.matches() == []


def test_why_tells_who_took_what_it_waits_for(log):
    story = Story("video/one")
    for stored in log:
        story.feed(stored)
    text = story.of("video/one").standing.text
    assert text.endswith("While it waited, cpu there went to video/three (12, ahead of it)")


def test_what_the_read_model_keeps_is_the_same_story(log):
    for queue in ("video", "root/algorithm", "root"):
        read, kept = tale(log, queue), QueueStory(queue)
        for stored in log:
            kept.feed(stored, shown=False)
        kept.recall()
        found = kept.of(read.queue)
        assert found.tally == read.tally
        assert found.waiting == read.waiting
        assert [each for each in read.entries if each.ref is not None] == found.entries
