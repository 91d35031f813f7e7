"""How long a Reflector waits before it asks again, in virtual time."""

import itertools
from contextlib import aclosing

import pytest

from kit.reflecting import make, run, words
from kit.scripted import ScriptedTransport, Step, bookmark, error, line, obj, page
from muster.kube.backoff import AWAY_CAP_S, STARTING_S
from muster.kube.deltas import Upsert
from muster.kube.reflector import MIN_GAP_S
from muster.ports import ApiStatusError, ApiUnreachableError

pytestmark = pytest.mark.looptime


async def test_immediate_ends_do_not_make_a_hot_loop() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.extend([[]] * 1000)
    reflector, hooks = make(api)
    await run(reflector, 600)
    starts = api.times("watch")
    assert 30 <= len(starts) <= 70  # a mean of 15 s between them once the back-off is full
    assert max(b - a for a, b in itertools.pairwise(starts)) <= 30.0
    assert set(hooks.causes) == {"ended"}


@pytest.mark.parametrize(
    "failure", [ApiUnreachableError("reset"), ApiStatusError(500, ""), ApiStatusError(502, "<html>")], ids=str
)
async def test_a_server_that_is_away_is_asked_every_few_seconds_for_as_long_as_it_takes(failure: Exception) -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.extend([[failure]] * 1000)
    await run(make(api)[0], 600)
    starts = api.times("watch")
    assert 150 <= len(starts) <= 240
    assert max(b - a for a, b in itertools.pairwise(starts)) <= AWAY_CAP_S
    assert len(api.times("list")) == 1


@pytest.mark.parametrize(
    "end", [[ApiStatusError(410, "")], [bookmark(8), error(410, "")]], ids=["without progress", "with progress"]
)
async def test_expired_at_once_does_not_make_a_hot_loop_of_lists(end: list[Step]) -> None:
    api = ScriptedTransport()
    api.lists.extend([page(7, token="t"), page(7)] * 500)
    api.watches.extend([end] * 500)
    await run(make(api)[0], 600)
    assert len(api.times("watch")) <= 70


async def test_stream_with_progress_is_resumed_at_once_but_for_a_gap() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.extend([[]] * 12)
    api.watches.append([bookmark(8)])
    api.watches.extend([bookmark(rv)] for rv in range(9, 20))
    await run(make(api)[0], 600)
    gaps = [b - a for a, b in itertools.pairwise(api.times("watch")[12:24])]
    assert gaps == pytest.approx([MIN_GAP_S] * 11)


async def test_watch_that_lived_long_takes_the_back_off_back() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.extend([[]] * 12)
    same = bookmark(7)
    api.watches.extend([[same, 120.0], [same, 120.0, ApiUnreachableError("idle")], [same, 119.0], [same, 119.0], []])
    await run(make(api)[0], 1000)
    starts = api.times("watch")
    gaps = [b - a for a, b in itertools.pairwise(starts)][12:]
    assert gaps[0] == 120.0
    assert 120.0 <= gaps[1] <= 120.8
    assert 119.0 <= gaps[2] <= 120.6
    assert 119.0 <= gaps[3] <= 122.2


async def test_watch_without_a_sign_of_life_is_not_trusted() -> None:
    """So does a real server behave whose store was set back behind the position we ask for."""
    api = ScriptedTransport()
    api.lists.extend([page(1000, obj("a", 900)), page(500)])
    api.watches.append([150.0, ApiUnreachableError("idle")])
    reflector, hooks = make(api)
    assert words(await run(reflector, 200)) == ["+a@900", "synced 1", "-a@900 concluded", "resynced 0"]
    assert api.queries("watch")[1]["resourceVersion"] == "500"
    assert hooks.causes == ["unreachable"]


async def test_watch_honours_retry_after() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.extend(
        [[ApiStatusError(429, "", 17.0)], [ApiStatusError(503, "", 9.0)], [error(429, retryAfterSeconds=33)], []]
    )
    await run(make(api)[0], 300)
    gaps = [b - a for a, b in itertools.pairwise(api.times("watch"))]
    assert gaps[:3] == [17.0, 9.0, 33.0]


async def test_forbidden_watch_is_not_ready_until_it_delivers() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.extend(
        [[ApiStatusError(403, "no watch for you")], [ApiStatusError(401, "who are you")], [3.0, bookmark(8), 9.0]]
    )
    reflector, hooks = make(api)
    await run(reflector, 60)
    assert hooks.readiness == [(True, ""), (False, "forbidden: no watch for you"), (True, "")]
    gaps = [b - a for a, b in itertools.pairwise(api.times("watch"))]
    assert 2.5 <= gaps[0] <= 5.0
    assert 5.0 <= gaps[1] <= 10.0
    assert len(api.times("list")) == 1


async def test_what_a_starting_server_forbids_is_asked_again_soon() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.append([ApiUnreachableError("refused")])
    api.watches.extend([[ApiStatusError(403, "rights are not known yet")]] * 100)
    await run(make(api)[0], 1000)
    starts = api.times("watch")
    gaps = [(a, b - a) for a, b in itertools.pairwise(starts)]
    assert all(gap <= AWAY_CAP_S for at, gap in gaps if at < STARTING_S)
    assert gaps[-1][1] >= 30.0, "forbidden for good: rights do not come back by asking often"


async def test_a_server_that_is_back_and_has_forgotten_our_position_is_listed_at_once() -> None:
    api = ScriptedTransport()
    api.lists.extend([page(7), page(9)])
    api.watches.extend([[ApiUnreachableError("refused")]] * 20)
    api.watches.extend([[ApiStatusError(403, "rights are not known yet")], [error(410, reason="Expired")], []])
    await run(make(api)[0], 200)
    assert api.times("list")[1] - api.times("watch")[21] <= 1.0


async def test_age_of_the_last_sign_of_life_is_told() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.append([60.0, bookmark(8), 60.0, line("ADDED", obj("a", 9)), 60.0])
    reflector, hooks = make(api)
    await run(reflector, 150)
    assert hooks.heard_s == [0.0, 60.0, 120.0]


async def test_closing_the_deltas_closes_the_watch() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.append([line("ADDED", obj("a", 8)), 600.0])
    async with aclosing(make(api)[0].deltas()) as stream:
        async for delta in stream:
            if isinstance(delta, Upsert):
                break
    assert api.closed == 1
