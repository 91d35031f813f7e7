"""What queues used lately: how it is counted, what it does to fair shares, and that it falls quiet."""

from __future__ import annotations

from fractions import Fraction
from random import Random
from typing import Any

import msgspec
import pytest

from kit import nodes
from kit.bench import Bench
from kit.facts import gone, seen
from kit.kai import queue, queue_gone, work
from kit.words import in_words
from muster.core.objects.kaiqueue import USAGE
from muster.core.quota.division import decay
from muster.core.quota.division.decay import BUCKETS, HALVES, ONE, Lately, PastBucket, decayed, lately
from muster.core.quota.division.dividing import Law
from muster.core.quota.trees.rules import MAX_SPAN_MS, read_usage
from muster.core.stage import Folder
from muster.events.decisions import EvictionOrdered, QuotaTreeAccepted
from muster.events.shares import SharesChanged
from muster.events.system import TimeReached
from muster.model.quota import Rules
from muster.model.resources import EVERYTHING
from muster.told.readmodel.model import ReadModel
from muster.told.views.measures import queue_share
from muster.told.wording.events import tell

GPU = "nvidia.com/gpu"
MINUTE, HOUR = 60_000, 3_600_000
EQUAL = (0, -1, 1)
HALF_AN_HOUR = {"usage-half-life": "30m", "usage-weight": "1"}


# --- counting -------------------------------------------------------------------------------------------------------


def test_the_half_lives_are_exact_and_the_parts_between_are_sixteenths() -> None:
    assert [decayed(age, 1600) for age in (0, 1600, 3200, 16_000)] == [ONE, ONE // 2, ONE // 4, ONE // 1024]
    for part in range(16):
        exact = 2 ** (40 - part / 16)
        assert 0 <= exact - decayed(part * 100, 1600) < 2, part
    assert decayed(10**12, 1600) == 0 and decayed(10**12, 0) == ONE, "without a half-life everything counts alike"


def test_twenty_four_of_a_hundred_gpu_hours_are_0_24() -> None:
    """The example of KAI Scheduler's document: ten GPUs, ten hours; eight for three hours, or twelve for two."""
    for used, hours in ((8, 3), (12, 2)):
        counted = lately(Rules(usage_window_ms=10 * HOUR), 0)
        assert counted is not None
        counted.pass_to(hours * HOUR, {"q": {GPU: used * 1000}}, {GPU: 10_000})
        counted.pass_to(10 * HOUR, {}, {GPU: 10_000})
        assert counted.weighed() == {"q": {GPU: 240_000}}
        counted.pass_to(20 * HOUR, {}, {GPU: 10_000})
        assert counted.weighed() == {}, "it has left the window"


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_formula_of_kai_up_to_a_bucket(seed: int) -> None:
    """Against the sum over every minute of 0.5 ^ (age / half-life) x used, over the same of what there was."""
    rng = Random(seed)
    half_life = rng.choice((20, 60, 300)) * MINUTE
    counted = lately(Rules(usage_window_ms=7 * 24 * HOUR, usage_half_life_ms=half_life), 0)
    assert counted is not None and counted.span * BUCKETS >= HALVES * half_life
    at, minutes = 0, []
    while at < 10 * half_life:
        used, there, lasts = rng.randint(0, 8), rng.choice((8, 16)), rng.randint(1, 40)
        counted.pass_to(at + lasts * MINUTE, {"q": {GPU: used * 1000}} if used else {}, {GPU: there * 1000})
        minutes += [(at + each * MINUTE, used, there) for each in range(lasts)]
        at += lasts * MINUTE
    ended = counted.ends_at() - counted.span
    ages = [(max(ended - start, 0), used, there) for start, used, there in minutes if start < ended]
    top = sum(0.5 ** (age / half_life) * used for age, used, _ in ages)
    whole = sum(0.5 ** (age / half_life) * there for age, _, there in ages)
    found = counted.weighed().get("q", {GPU: 0})[GPU] / 1_000_000
    assert abs(found - top / whole) < 0.02, (found, top / whole)


@pytest.mark.parametrize("seed", range(10))
def test_the_steps_in_which_time_passes_change_nothing(seed: int) -> None:
    rng = Random(seed)
    one, many = Lately(1000, 3000, 7, 7), Lately(1000, 3000, 7, 7)
    at = 7
    for _ in range(60):
        used, there = {"q": {GPU: rng.randint(0, 9), "memory": rng.randint(0, 9) << 20}}, {GPU: 10, "memory": 10 << 20}
        end = at + rng.randint(1, 4000)
        one.pass_to(end, used, there)
        while at < end:
            at = min(end, at + rng.randint(1, 700))
            many.pass_to(at, used, there)
        assert one == many
        assert len(one.past) <= BUCKETS
    for used in ({"q": {GPU: 1}}, {}):
        at += 80_000 + rng.randint(0, 999)
        one.pass_to(at, used, {GPU: 10})
        while many.since < at:
            many.pass_to(min(at, many.since + 900), used, {GPU: 10})
        assert one == many, "what lies before the window is left out, and the buckets begin where they always did"
    far = at + 10**9
    one.pass_to(far, {"q": {GPU: 3}}, {GPU: 10})
    assert one.weighed() == {"q": {GPU: 300_000}} and len(one.past) == BUCKETS, "a long rest costs one window"


def test_one_bucket_is_older_than_the_next() -> None:
    counted = Lately(1600, 3200, 7, 7)
    counted.pass_to(1607, {"q": {GPU: 4}}, {GPU: 4})
    counted.pass_to(3207, {}, {GPU: 4})
    assert counted.weighed() == {"q": {GPU: 414_000}}, "0.5 ^ (1/2) of 1 + 0.5 ^ (1/2)"


def test_bytes_are_counted_in_mebibytes_and_what_there_is_not_is_not_counted() -> None:
    counted = Lately(1000, 0, 0, 0)
    counted.pass_to(500, {"q": {"memory": 2**40, "gone": 5}}, {"memory": 2**42})
    assert counted.open == PastBucket({"q": {"memory": 2**20 * 500, "gone": 2500}}, {"memory": 2**22 * 500})
    counted.pass_to(1000, {"q": {"memory": 2**40, "gone": 5}}, {"memory": 2**42})
    assert counted.weighed() == {"q": {"memory": 250_000}}


def test_amounts_that_no_cluster_has_fit_into_a_snapshot() -> None:
    counted = lately(Rules(usage_window_ms=MAX_SPAN_MS), 0)
    assert counted is not None and counted.span * decay.MOST < 2**63
    counted.pass_to(
        MAX_SPAN_MS + counted.span - 1,
        {"q": {GPU: EVERYTHING, "memory": 2**63 - 1}},
        {GPU: EVERYTHING, "memory": 2**63 - 1},
    )
    assert len(counted.past) == BUCKETS and counted.open.total
    again = msgspec.json.decode(msgspec.json.encode(counted), type=Lately)
    assert again == counted and again.weighed() == {"q": {GPU: 1_000_000, "memory": 1_000_000}}


@pytest.mark.parametrize("seed", range(30))
def test_what_is_steady_stays_as_it_is(seed: int) -> None:
    rng = Random(seed)
    counted = Lately(1000, rng.choice((0, 5000)), 7, 7)
    at = 7
    for _ in range(rng.randint(0, 6)):
        at += rng.randint(1, 20_000)
        counted.pass_to(at, {"q": {GPU: rng.randint(0, 4)}}, {GPU: 4})
    used, there = {"q": {GPU: rng.randint(0, 4)}}, {GPU: 4}
    ends = 0
    while not counted.steady(used, there):
        counted.pass_to(counted.ends_at(), used, there)
        ends += 1
    assert ends <= BUCKETS + 1
    counted.pass_to(counted.since + 300, used, there)
    assert counted.steady(used, there), "in the middle of a bucket too"
    assert not counted.steady({"q": {GPU: 5}}, there) and not counted.steady(used, {GPU: 5})
    before = counted.weighed()
    for _ in range(2 * BUCKETS):
        counted.pass_to(counted.since + rng.randint(1, 3000), used, there)
        assert counted.weighed() == before


def test_where_nothing_is_used_nothing_is_waited_for() -> None:
    assert Lately(1000, 0, 0, 0).steady({}, {GPU: 4})
    assert not Lately(1000, 0, 0, 0).steady({"q": {GPU: 4}}, {GPU: 4}), "it counts once the first bucket ends"


def test_the_parts_are_those_that_shares_count_with() -> None:
    assert Law().usage_whole == decay.MILLIONTHS
    counted = lately(Rules(usage_window_ms=7 * 24 * HOUR, usage_half_life_ms=HOUR), 0)
    assert counted is not None and counted.span * BUCKETS == 8 * HOUR, "what is eight half-lives old counts 1/256"


# --- what it does ---------------------------------------------------------------------------------------------------


def bench(rules: dict[str, str] | None = None, gpus: int = 4) -> Bench:
    """Two queues with equal parts of four GPUs."""
    found = Bench()
    found.facts(nodes.node("n1", cpu=640, memory=2560, gpu=gpus))
    found.facts(queue("a", gpu=EQUAL, created=1, rules=rules or {}), queue("b", gpu=EQUAL, created=2))
    found.synced()
    found.settle()
    return found


def runs(found: Bench, name: str, leaf: str, gpus: int = 1) -> None:
    found.facts(seen(work(name, leaf, gpu=gpus)))
    found.settle()
    found.facts(seen(work(name, leaf, gpu=gpus, suspended=False, phase="running", settled=False)))
    found.settle()


def waits(found: Bench, name: str, leaf: str, gpus: int = 1) -> None:
    found.facts(seen(work(name, leaf, gpu=gpus)))
    found.settle()


def accountant(found: Bench) -> Any:
    return found.states["quota_accountant"]


def shares(found: Bench) -> dict[str, int]:
    return {path: vector.get(GPU, 0) for path, vector in accountant(found).told_shares.items()}


def test_shares_are_said_when_they_change_and_only_then() -> None:
    found = bench()
    assert not found.happened(SharesChanged), "nobody asks for anything"
    runs(found, "a1", "a", 2)
    assert shares(found) == {"kai/a": 2000}
    waits(found, "b1", "b", 4)
    assert shares(found) == {"kai/a": 2000, "kai/b": 2000}
    said = len(found.happened(SharesChanged))
    waits(found, "b2", "b", 1)
    assert len(found.happened(SharesChanged)) == said, "it asks for more, and gets no more"
    assert tell(found.happened(SharesChanged)[-1]).text == "fair share of b: nvidia.com/gpu 2"
    found.pass_time(100 * HOUR)
    assert len(found.happened(SharesChanged)) == said
    for event in found.happened(SharesChanged):
        assert event.cause.item < len(found.log[event.cause.seq - 1].commit.events), "it answers an event that exists"
    found.facts(queue_gone("b"))
    found.settle()
    assert shares(found) == {"kai/a": 2000}
    found.facts(queue("b", gpu=EQUAL, created=2))
    found.settle()
    assert shares(found) == {"kai/a": 2000, "kai/b": 2000} and len(found.happened(SharesChanged)) == said + 1
    found.sound()


def test_who_used_much_gets_less_of_the_surplus_until_that_is_long_ago() -> None:
    found = bench(HALF_AN_HOUR)
    runs(found, "a1", "a", 4)
    assert found.next_deadline() is None, "nobody waits: nothing has to be looked at"
    found.pass_time(4 * HOUR)
    waits(found, "b1", "b", 4)
    waits(found, "a2", "a", 4)
    used = accountant(found).ledger.usage
    assert used["kai/a"][GPU] > 950_000 and "kai/b" not in used
    assert shares(found) == {"kai/b": 4000}
    [ordered] = found.happened(EvictionOrdered)
    assert (ordered.ref.name, [each.ref.name for each in ordered.victims]) == ("b1", ["a1"])
    found.sound()


def test_without_the_option_the_past_counts_for_nothing() -> None:
    found = bench()
    runs(found, "a1", "a", 4)
    found.pass_time(4 * HOUR)
    waits(found, "b1", "b", 4)
    waits(found, "a2", "a", 4)
    assert shares(found) == {"kai/a": 2000, "kai/b": 2000}
    assert not accountant(found).lately and not any(each.usage for each in found.happened(SharesChanged))
    assert not found.happened(EvictionOrdered), "four are beyond its share"


def test_time_is_waited_for_only_until_nothing_moves_any_more() -> None:
    found = bench(HALF_AN_HOUR)
    runs(found, "a1", "a", 1)
    found.pass_time(4 * HOUR)
    runs(found, "a2", "a", 2)
    waits(found, "b1", "b", 4)
    before = len(found.log)
    found.pass_time(30 * 24 * HOUR)
    ticks = found.happened(TimeReached)
    assert len(found.log) - before <= 3 * (BUCKETS + 2), "what is always the same needs no more commits"
    assert len(ticks) <= BUCKETS + 12
    moved = [event for event in found.happened(SharesChanged) if event.usage]
    assert len(moved) > 10 and moved[-1].usage["kai/a"][GPU] == 750_000, "one waits, so what is used is looked at"
    assert all(event.usage.keys() == {"kai/a"} for event in moved), "what all used together is nobody's past"
    quiet = len(found.log)
    found.pass_time(300 * 24 * HOUR)
    assert len(found.log) == quiet
    found.sound()


def test_a_queue_takes_its_past_along_and_leaves_it_with_its_name() -> None:
    found = bench(HALF_AN_HOUR)
    found.facts(queue("top", gpu=EQUAL, created=3))
    runs(found, "a1", "a", 4)
    found.pass_time(2 * HOUR)
    found.facts(gone("a1", "default"))
    found.facts(queue("b", "top", gpu=EQUAL, created=2))
    found.settle()
    found.pass_time(MINUTE)
    waits(found, "b1", "b", 4)
    before = dict(accountant(found).ledger.usage["kai/a"])
    found.facts(queue("a", "top", gpu=EQUAL, created=1), queue("top", gpu=EQUAL, created=3, rules=HALF_AN_HOUR))
    found.settle()
    usage = accountant(found).ledger.usage
    assert usage["kai/top/a"] == before and usage["kai/top"] == before and "kai/a" not in usage
    found.facts(queue_gone("a"))
    found.settle()
    assert accountant(found).ledger.usage == {}
    found.sound()


def test_another_half_life_begins_anew_and_none_forgets() -> None:
    found = bench(HALF_AN_HOUR)
    runs(found, "a1", "a", 4)
    found.pass_time(2 * HOUR)
    waits(found, "b1", "b", 1)
    assert accountant(found).ledger.usage
    found.facts(queue("a", gpu=EQUAL, created=1, rules={"usage-half-life": "10m"}))
    found.settle()
    assert accountant(found).ledger.usage == {} and accountant(found).lately["kai"].half_life == 10 * MINUTE
    found.facts(queue("a", gpu=EQUAL, created=1))
    found.settle()
    assert accountant(found).lately == {} and accountant(found).weighed == {}
    found.sound()


def test_who_asks_why_hears_of_the_past() -> None:
    found = bench(HALF_AN_HOUR)
    runs(found, "a1", "a", 3)
    waits(found, "a2", "a", 2)
    found.pass_time(3 * HOUR)
    waits(found, "b1", "b", 4)
    view = ReadModel()
    folder, state = Folder(view), view.initial()
    for stored in found.log:
        folder.fold(state, stored)
    [row] = [each for each in queue_share(state, "kai/a").rows if each.resource == GPU]
    assert row.why == (
        "asks for 5; no quota; 0 of a surplus of 4 at priority 100, where its weight is worth 20 %, heeding that it "
        "used 75.0 % of the capacity lately; 1 that rounding left over"
    )


# --- what people write ----------------------------------------------------------------------------------------------


def test_the_annotations_that_are_read_are_those_that_are_known() -> None:
    assert in_words(read_usage(dict.fromkeys(USAGE, "1m"))[1]).startswith(
        "annotation muster.dev/usage-weight: '1m' is not a number"
    )
    assert read_usage({"usage-window": "2h", "usage-half-life": "10m", "usage-weight": "0.5", "other": "x"}) == (
        {"usage_window_ms": 2 * HOUR, "usage_half_life_ms": 10 * MINUTE, "usage_weight": 500},
        None,
    )
    assert [read_usage({"usage-weight": text})[0].get("usage_weight") for text in ("0", "1.25", "100", "100.001")] == [
        *(0, 1250, 100_000),
        None,
    ]
    assert in_words(read_usage({"usage-window": "0"})[1]) == (
        "annotation muster.dev/usage-window: it must be longer than 0; leave it out to count no past usage"
    )


def test_the_oldest_queue_at_the_top_says_it_and_the_others_are_warned() -> None:
    found = bench({"usage-window": "2h"})
    found.facts(
        queue("b", gpu=EQUAL, created=2, rules={"usage-window": "3h", "usage-weight": "2"}),
        queue("below", "b", gpu=EQUAL, rules={"usage-window": "1h"}),
        queue("odd", gpu=EQUAL, rules={"usage-window": "long"}),
    )
    found.settle()
    accepted = found.happened(QuotaTreeAccepted)[-1]
    assert (accepted.tree.rules.usage_window_ms, accepted.tree.rules.usage_weight) == (2 * HOUR, 2000)
    assert tuple(map(in_words, accepted.warnings)) == (
        "below: its annotations about past usage count on a queue without a parent only",
        "b: queue a is older and sets muster.dev/usage-window differently; its value is used",
        "queue odd is disabled: annotation muster.dev/usage-window: 'long' is not a span of time like 90s, 10m or "
        "1h30m",
    )
    assert "odd" in accepted.tree.disabled


def test_the_weight_of_the_past_is_k_of_the_formula() -> None:
    for text, expected in (("0", {"kai/a": 2000, "kai/b": 2000}), ("0.5", {"kai/a": 1000, "kai/b": 3000})):
        found = bench({"usage-window": "2h", "usage-weight": text})
        runs(found, "a1", "a", 4)
        found.pass_time(2 * HOUR)
        waits(found, "b1", "b", 4)
        waits(found, "a2", "a", 4)
        assert shares(found) == expected, text


def test_a_bucket_is_no_shorter_than_a_second() -> None:
    counted = lately(Rules(usage_window_ms=1), 5)
    assert counted is not None and (counted.span, counted.origin, counted.ends_at()) == (decay.LEAST_MS, 5, 1005)
    assert lately(Rules(usage_half_life_ms=5), 5) is None
    assert Fraction(ONE, 2) == decayed(7, 7)
