"""Random histories in which everything happens at once: no crash, no circle, no quota passed, nobody forgotten.

They are judged by the audit, by what the stages know, and by a second reading of the log that shares no code with
Muster.
200 of them in every run, others in each round of `make shake`, and as many as MUSTER_TEST_HISTORIES says.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from msgspec.structs import replace

from kit.histories import is_sound, kinds_of, worth
from kit.secondreading import Reading
from kit.turmoil import Turmoil
from muster.audit.auditor import Auditor
from muster.core.preemption.preemptor import Preemptor
from muster.events.claims import ClaimEnded
from muster.events.decisions import EvictionOrdered
from muster.events.envelope import Stored, encode_commit

BLOCKS = 20
EACH = max(int(os.environ.get("MUSTER_TEST_HISTORIES", "200")) // BLOCKS, 1)
FIRST = Random().randrange(10**9) if os.environ.get("MUSTER_TEST_EXAMPLES") == "random" else 0


def played(seed: int) -> Turmoil:
    turmoil = Turmoil(seed)
    turmoil.run()
    return turmoil


@pytest.mark.parametrize("block", range(BLOCKS))
def test_any_history_keeps_the_invariants_comes_to_rest_and_replays(block: int) -> None:
    for seed in range(FIRST + block * EACH, FIRST + (block + 1) * EACH):
        sound(seed)


NOT_SOUND_ONCE = (
    65, 129, 274, 363, 402, 554, 611, 858, 881, 947, 1266, 1284,
    1369, 1519, 1945, 7107, 8189, 21007, 22882, 26047, 27107, 30517, 40202, 1122900295, 700000127,
)  # fmt: skip


@pytest.mark.parametrize("seed", NOT_SOUND_ONCE)
def test_histories_that_were_not_sound_once(seed: int) -> None:
    """Work suspended for nothing, beside a gang with claimed nodes or a slow victim of another; a rest for an edit;
    a claim that ended and was no news for who lacked what it held; one for who stood behind a head that was tried, or
    found no place; nodes that were cleared for a job again and again, as its victims took longer than room was kept; a
    job that moved to room which the victim of another order had not left; one that an edit of the limits let ask again,
    and that was not heard of while others had the room; an order for a claimant that was gone when it was given; one
    for a victim that had moved to another queue since it was found; a job that an edit of the tree let borrow, and that
    stayed behind those that came later; moves for a KAI queue of work that is in none; a claim behind a head that came
    back under `Block`; a claim that an adoption ended, and that another job was served by in the same commit; work of a
    KAI queue that has got queues below it.
    """
    sound(seed)


def sound(seed: int) -> None:
    try:
        turmoil = played(seed)
        turmoil.at_rest()
        second = Reading()
        read_again(turmoil, second)
        turmoil.without_rules()
        read_again(turmoil, second)
        is_sound(turmoil.bench, seed)
    except Exception as err:
        raise AssertionError(f"seed {seed}") from err


def read_again(turmoil: Turmoil, reading: Reading) -> None:
    """What a reader finds that knows the log alone, and nothing of Muster's code."""
    for stored in turmoil.bench.log[reading.seq :]:
        reading.hear(stored.seq, json.loads(encode_commit(stored.commit)))
    reading.at_rest()
    assert not reading.wrong, reading.wrong


def test_the_second_reading_sees_a_guarantee_that_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is ever taken back; and a limit that is passed, where nothing is ever released."""
    with monkeypatch.context() as patch:
        patch.setattr(Preemptor, "decide", lambda _self, _state: [])
        turmoil = played(10)
        turmoil.without_rules()
        with pytest.raises(AssertionError, match="is owed"):
            read_again(turmoil, Reading())
    wrong = []
    for seed in range(20):
        reading = Reading()
        for stored in played(seed).bench.log:
            commit = json.loads(encode_commit(stored.commit))
            commit["events"] = [each for each in commit["events"] if each["type"] != "quota_released"]
            reading.hear(stored.seq, commit)
        wrong += reading.wrong
    assert any("asks for" in each for each in wrong)


def test_the_histories_are_worth_something() -> None:
    """Everything that should be endured does happen in the first sixty."""

    def happened(seed: int) -> Iterator[str]:
        log = played(seed).bench.log
        yield from kinds_of(log)
        yield from ("gap" for each in log if each.commit.kind == "decision" and each.commit.in_seq < each.seq - 1)

    worth(
        map(happened, range(60)),
        gap=200,
        EvictionOrdered=15,
        ClaimOpened=3,
        ClaimEnded=5,
        EffectFailed=10,
        QuotaMoved=5,
        QuotaTreeRemoved=5,
        WorkloadAdopted=50,
        SuspensionOrdered=10,
        ObjectUnreadable=50,
        GangDeferred=30,
        PlacesFound=10,
    )


# --- what the audit finds -----------------------------------------------------------------------------------------


def found(log: list[Stored]) -> Counter[str]:
    auditor = Auditor()
    for stored in log:
        auditor.feed(stored)
    auditor.finish()
    return auditor.broken


def test_the_audit_finds_a_claim_that_is_not_ended() -> None:
    noticed = 0
    for seed in range(100):
        log = played(seed).bench.log
        cut = [
            replace(stored, commit=replace(stored.commit, events=kept))
            for stored in log
            if (kept := tuple(event for event in stored.commit.events if not isinstance(event, ClaimEnded)))
        ]
        noticed += bool(found(cut)["I25"])
        if noticed == 3:
            return
    raise AssertionError(f"only {noticed}")


def test_the_audit_finds_evictions_for_nobody() -> None:
    """Right after an order: its claim ends though nothing has come between, or more are ordered to leave for it."""
    logs = (played(seed).bench.log for seed in range(100))
    log, at, order = next(
        (log, s, e) for log in logs for s in log for e in s.commit.events if isinstance(e, EvictionOrdered)
    )
    assert not found(log[: at.seq])["I26"]
    ended = ClaimEnded(cause=order.cause, ref=order.ref, outcome="expired")
    for event in (ended, order):
        more = replace(at.commit, events=(event,), in_seq=at.seq)
        assert found([*log[: at.seq], Stored(at.seq + 1, more)])["I26"]
