"""A tenant who asks everything at every moment is never told a name of another namespace, in an answer or an error."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.chaos import NAMESPACES, Chaos
from kit.depth import examples
from kit.foreign import foreign_words, forged, leak
from kit.recorded import ADMIN, questions, tenant
from kit.standings import SCENES
from muster.events.envelope import Stored
from muster.serving import views
from muster.serving.access import Viewed
from muster.serving.answering import EXPECTED, ROUTES, Questions, problem
from muster.serving.streaming import Turns, messages
from muster_cli import samples

SETTINGS = settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])


async def everything(
    asked: Questions, viewed: Viewed, at: str, wanted: Sequence[str], foreign: Sequence[str] = ()
) -> list[bytes]:
    """All answers and errors: of every route, about every name there is; ``foreign``: put into every parameter."""
    found: list[bytes] = []
    for route in ROUTES:
        keys = list(wanted) if "{namespace}" in route.path else [""]
        for key in keys:
            namespace, _, name = key.partition("/")
            events = (
                [(seq, 0) for seq in range(1, asked.live.state.seq + 1, 7)] if "{sequence}" in route.path else [(0, 0)]
            )
            for seq, index in events:
                path = {"namespace": namespace, "name": name, "sequence": str(seq), "index": str(index)}
                filters = [({name: word}, b"") for name in (*route.query, "at", *foreign) for word in foreign]
                for query, body in [*asks(asked, route.path, key), *(filters if seq == events[0][0] else [])]:
                    said = {"at": at, **query} if at and route.path != "/api/v1/viewer" else query
                    try:
                        answer = await asked.answer(route, viewed, path, said, body)
                    except tuple(EXPECTED) as err:
                        answer = problem(err, viewed.scope, asked.live.state)
                    found.append(msgspec.json.encode(answer))
    return found


def asks(asked: Questions, path: str, key: str) -> list[tuple[dict[str, str], bytes]]:
    if path == "/api/v1/series":
        return [({"queue": each, "resource": "cpu"}, b"") for each in asked.live.state.queues.ledger.nodes]
    if path == "/api/v1/ask":
        body = samples.manifest(samples.TRAINING)
        asked_of = [{**body, "metadata": {"name": "new", "namespace": each}} for each in sorted(asked.namespaces())]
        return [({}, msgspec.json.encode({"manifest": each})) for each in asked_of]
    if path == "/api/v1/whatif":
        changes = [{"queue": each, "field": "max", "resource": "cpu", "value": "99"} for each in
                   asked.live.state.queues.ledger.nodes]  # fmt: skip
        changes += [{"job": record.ref.key, "resource": "cpu", "value": "1"} for record in
                    asked.live.state.records.values()]  # fmt: skip
        changes.append({"nodes": 2, "resource": "cpu", "value": "64"})
        return [({}, msgspec.json.encode({"changes": [change]})) for change in changes]
    return [({}, b"")]


def asked_by(commits: Sequence[Stored], own: str, cut: int) -> None:
    with TemporaryDirectory() as folder:
        asked = questions(commits, Path(folder))
        words = foreign_words(asked, own)
        pattern = leak(words)
        keys = sorted({record.ref.key for record in asked.live.state.records.values()})

        async def run() -> list[bytes]:
            told: list[bytes] = []
            for at in ("", str(1 + cut % asked.live.state.seq)):
                told += await everything(asked, tenant(own), at, keys, words[:: max(len(words) // 3, 1)])
            return told + await streamed(asked, tenant(own))

        for answer in asyncio.run(run()):
            found = pattern.search(answer.decode())
            assert found is None, f"{found.group()} in {answer.decode()}"
        seen = asyncio.run(everything(asked, ADMIN, "", keys))
        assert not words or any(pattern.search(answer.decode()) for answer in seen), "the judge itself sees nothing"


async def streamed(asked: Questions, viewed: Viewed) -> list[bytes]:
    """The first message of a stream that begins at the beginning."""

    async def again() -> Viewed:
        return viewed

    stream = messages(Turns(asked, asked._clock), again, 0)
    try:
        return [await anext(stream)]
    finally:
        await stream.aclose()  # type: ignore[attr-defined]


@SETTINGS
@given(st.integers(0, 2**32), st.sampled_from(NAMESPACES), st.integers(0, 10_000))
def test_a_tenant_is_told_nothing_of_others(seed: int, own: str, cut: int) -> None:
    chaos = Chaos(Random(seed))
    chaos.run(steps=150)
    asked_by(forged(chaos.bench.log, NAMESPACES), f"zq-{own}-0", cut)


@pytest.mark.parametrize("name", SCENES)
def test_in_every_scene_a_tenant_is_told_nothing_of_others(name: str) -> None:
    scene, _ = SCENES[name]()
    names = sorted(set(scene.bench.states["queue_sorter"].ledger.leaf_of) | {"video", "a", "b"}
                   if hasattr(scene.bench.states.get("queue_sorter"), "ledger") else {"video", "a", "b"})  # fmt: skip
    asked_by(forged(scene.bench.log, names), "zq-a-0", 5)


def test_what_is_hidden_and_what_is_not_there_read_alike() -> None:
    chaos = Chaos(Random(5))
    chaos.run(steps=150)
    with TemporaryDirectory() as folder:
        asked = questions(chaos.bench.log, Path(folder))
        state = asked.live.state
        hidden = next(record.ref.key for record in state.records.values() if record.ref.namespace != "video")
        lens = asked.lens(tenant("video").scope, state)
        said = []
        for key in (hidden, f"{hidden.partition('/')[0]}/none-such"):
            with pytest.raises(views.MissingError) as err:
                views.why(state, lens, views.moment_of(state, 0, live=True), key, "", now=0)
            said.append(str(err.value).replace(key, "KEY"))
        assert said[0] == said[1]
