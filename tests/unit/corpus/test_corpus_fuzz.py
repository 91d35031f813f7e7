"""Good objects with anything put anywhere into them: read or reported, and nobody else is disturbed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit import facts
from kit.bench import Bench
from kit.depth import examples
from kit.hostile import BASES, watching
from kit.words import in_words
from muster.core.objects.meta import UnreadableError
from muster.core.reading.watched import WATCHED
from muster.core.reading.watcher import MAX_FACT_BYTES, about, gist
from muster.events.decisions import GangAdmitted
from muster.events.envelope import MAX_BYTES, encode_commit
from muster.events.facts import ObjectUnreadable
from muster.events.registry import encode
from muster.runtime.logkeeping.snapshotting import encode_state

SLOW = [HealthCheck.too_slow]

texts = st.text(max_size=20) | st.sampled_from(
    ["", "1e999999", "0x10", "-5", "\x1b[31m", "9" * 400, "a/b", "true", "NaN", "12Ei", "2025-01-10T01:36:24Z", "0-0-0"]
)
numbers = (
    st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([2**31, 2**63, 2**64, -1, 10**400, 1e300, 1.5])
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value, the value itself left out."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found: list[tuple[Any, ...]] = []
    for key, inner in members:
        found += [(*path, key), *places(inner, (*path, key))]
    return found


@st.composite
def mutants(draw: st.DrawFn, shards: list[str]) -> tuple[str, bytes]:
    """A resource, and one of its objects with up to three places changed."""
    shard = draw(st.sampled_from(shards))
    found = json.loads(json.dumps(BASES[shard]()))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(found)))
        holder = found
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = draw(values)
    return shard, json.dumps(found).encode()


@settings(max_examples=examples(600), suppress_health_check=SLOW)
@given(mutants(sorted(WATCHED)))
def test_reading_never_raises_anything_but_the_declared_error(mutant: tuple[str, bytes]) -> None:
    shard, body = mutant
    try:
        fact = WATCHED[shard].read(body)
    except UnreadableError as err:
        assert err.problem.path
        assert len(in_words(err.problem)) < 1500
    else:
        if fact is not None:
            about(fact), gist(fact)


@settings(max_examples=examples(100), suppress_health_check=SLOW)
@given(mutants(["rayjobs", "elasticquotatrees", "priorityclasses", "queues"]))
def test_whatever_is_reported_stops_nobody(mutant: tuple[str, bytes]) -> None:
    shard, body = mutant
    odd = watching(shard).see(body)
    for fact in odd:
        assert len(encode(fact)) <= MAX_FACT_BYTES
    bench = Bench()
    bench.facts(facts.tree(), *odd)
    bench.synced()
    good = facts.job("good")
    bench.facts(facts.seen(good))
    decided = bench.settle()
    assert good.ref in [event.ref for event in decided if isinstance(event, GangAdmitted)]
    for stored in bench.log:
        assert len(encode_commit(stored.commit)) <= MAX_BYTES
    for state in bench.states.values():
        encode_state(state)


@pytest.mark.parametrize("cut", range(0, 700, 7))
def test_an_object_that_is_cut_off_is_not_read(cut: int) -> None:
    body = json.dumps(BASES["rayjobs"]()).encode()[:cut]
    assert all(isinstance(fact, ObjectUnreadable) for fact in watching("rayjobs").see(body))
