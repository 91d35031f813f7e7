"""``muster decide`` on random states: nothing is given twice, gangs are whole, the order of the file means nothing, and
the state that it leads to is one in which nothing more happens.
"""

from __future__ import annotations

import json
from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kit import lives, states
from kit.depth import examples
from kit.guarantee import Work, World, drawn, left_undone, state_of
from muster.tracesim.decide.answer import Answer
from muster.tracesim.decide.reading import read_state
from muster.tracesim.decide.run import decide

MOST_EVICTIONS = 2
"""Of one gang until a state is quiet: for one that is owed quota, and for one more that lacks room on the nodes."""


def answer(state: states.State) -> Answer:
    return decide(read_state(json.dumps(state), "state"))


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32))
def test_nothing_is_given_twice_and_gangs_are_whole_and_the_end_is_quiet(seed: int) -> None:
    """Who takes part in a move rests for an hour, and a file knows nothing of that: such states are left out."""
    rng = Random(seed)
    state = states.state(rng)
    found = answer(state)
    assert states.wrong(state, found) == []
    assert states.told(answer(states.shuffled(state, rng))) == states.told(found), "the order of the file means nothing"
    assert max(Counter((each.job, *each.pods) for each in found.evicted).values(), default=0) <= MOST_EVICTIONS
    if not found.moved:
        after = answer(states.ended(state, found))
        assert (after.admitted, after.evicted, after.moved) == ([], [], [])


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32))
def test_every_queue_gets_what_it_is_guaranteed(seed: int) -> None:
    """On one node, with quotas that add up to less than it has: nobody within its quota waits, whoever runs."""
    rng = Random(seed)
    quotas = {name: rng.randint(0, 3) for name in ("a", "b", "c")}
    total = sum(quotas.values()) + rng.randint(0, 2)
    queues = [{"name": name, "quota": quota, "weight": rng.randint(0, 2)} for name, quota in quotas.items()]
    jobs, free = [], total
    for index in range(rng.randint(2, 10)):
        gpus = rng.randint(1, 2)
        runs = rng.random() < 0.6 and gpus <= free
        free -= gpus if runs else 0
        pod = {"gpus": gpus} | ({"phase": "Running", "node": "n"} if runs else {})
        jobs.append({"name": f"j{index}", "queue": rng.choice("abc"), "pods": [pod], "created_s": index})
    found = answer({"nodes": [{"name": "n", "gpus": total}], "queues": queues, "jobs": jobs})
    asks = {job["name"]: (job["queue"], job["pods"][0]["gpus"]) for job in jobs}
    used = Counter(dict.fromkeys(quotas, 0))
    for name, _ in states.placed(found):
        used[asks[name][0]] += asks[name][1]
    for each in found.waiting:
        queue, gpus = asks[each.job]
        assert used[queue] + gpus > quotas[queue], f"{each.job} is owed {gpus} in {queue}, which has {used[queue]}"


@settings(max_examples=examples(120), deadline=None)
@given(st.integers(0, 2**32))
def test_guarantees_are_served_once_and_by_the_rule(seed: int) -> None:
    """Trees of up to three levels and two resources. Brute force says what is left over at the end."""
    assert broken(drawn(Random(seed), sound=True, ranks=(0,))) == []


def broken(world: World) -> list[str]:
    """What is wrong with the decisions about a world; ``world.runs`` are the running jobs afterwards."""
    found, before = answer(state_of(world)), list(world.runs)
    times = Counter(each.job for each in found.evicted)
    wrong = [f"{name} is evicted {count} times" for name, count in times.items() if count > 1]
    wrong += [f"{name} is started and evicted" for name in times if name not in before]
    after = {name for name, _ in states.placed(found)}
    world.runs = [name for name in before if name in after] + sorted(after - {*before})
    wrong += [
        f"{each.claimant} waits after {each.job} left for it" for each in found.evicted if each.claimant not in after
    ]
    return wrong + list(left_undone(world))


def flat(least: dict[str, int], whole: int, jobs: dict[str, tuple[str, int]], *runs: str) -> World:
    """Queues by path below the root, and their jobs: (queue, cpu)."""
    root = {"cpu": whole}
    world = World(
        {"root": root, **{path: {"cpu": amount} for path, amount in least.items()}},
        {"root": root, **{path: {} for path in least}},
    )
    world.jobs = {name: Work(queue, {"cpu": amount}) for name, (queue, amount) in jobs.items()}
    world.runs = list(runs)
    return world


def test_a_claim_and_its_claimant_count_once() -> None:
    """``one`` leaves for ``first`` and ``second``, who are owed one and two of three: ``lends`` must not start."""
    jobs = {"lends": ("root/c", 1), "first": ("root/b", 1), "one": ("root/a", 3), "second": ("root/a", 2)}
    assert broken(flat({"root/a": 2, "root/b": 1, "root/c": 0}, 3, jobs, "one")) == []


def test_who_is_owed_at_a_lower_node_starts_first() -> None:
    """``low`` is owed by t/u, ``high`` by t alone; ``small`` makes room that both would fit in."""
    least = {"root/t": 8, "root/t/u": 8, "root/t/u/q": 2, "root/t/w": 0}
    jobs = {"high": ("root/t/w", 3), "low": ("root/t/u/q", 6), "lent": ("root/t/w", 7), "small": ("root/t/u/q", 2)}
    assert broken(flat(least, 8, jobs, "lent")) == []


def test_who_fits_behind_a_borrower_of_its_queue_starts_before_other_borrowers() -> None:
    """``fits`` stays within the guarantee of its queue, and ``wide`` before it does not; ``lends`` is the oldest."""
    jobs = {"lends": ("root/a", 1), "wide": ("root/b", 3), "fits": ("root/b", 2), "small": ("root/b", 1)}
    assert broken(flat({"root/a": 0, "root/b": 3}, 3, jobs, "small")) == []


def test_who_is_refused_behind_a_borrower_keeps_its_room_from_those_answered_before() -> None:
    """``loan`` leaves for ``owed``. ``lends`` would start in the room, for the head of its queue is answered first."""
    whole = {"cpu": 3, "memory": 8}
    least = {"root": whole, "root/a": {"memory": 8}, "root/b": {"cpu": 3}, "root/c": {}}
    world = World(least, {"root": whole, "root/a": {}, "root/b": {}, "root/c": {}})
    world.jobs = {
        "lends": Work("root/a", {"cpu": 1, "memory": 4}),
        "loan": Work("root/c", {"cpu": 1, "memory": 1}),
        "head": Work("root/b", {"memory": 3}),
        "owed": Work("root/b", {"cpu": 3}),
    }
    world.runs = ["loan"]
    assert broken(world) == []


def gpu_job(name: str, queue: str, gpus: int, created: int, *, on: str = "", priority: int = 50) -> states.State:
    pod = {"name": "p", "gpus": gpus} | ({"node": on, "phase": "Running", "started_s": created} if on else {})
    return {"name": name, "queue": queue, "created_s": created, "priority": priority, "pods": [pod]}


def hasty(queues: list[states.State], gpus: int, *jobs: states.State) -> list[str]:
    state = {"now_s": 1000, "nodes": [{"name": "n", "gpus": gpus}], "queues": queues, "jobs": list(jobs)}
    return list(lives.hasty(state, answer(state)))


def test_in_kai_queues_who_could_take_the_room_back_starts_first() -> None:
    """The share of each is two: ``wide`` takes b beyond its share, and is first in KAI's order."""
    queues = [
        {"name": "a", "quota": 1, "limit": -1, "weight": 2, "priority": 200},
        {"name": "b", "quota": 2, "limit": -1, "weight": 1, "priority": 100},
    ]
    jobs = [gpu_job("mine", "a", 1, 1, on="n"), gpu_job("within", "a", 1, 900), gpu_job("wide", "b", 3, 901)]
    jobs += [gpu_job("more", "a", 4, 902, priority=60)]
    assert hasty(queues, 4, *jobs) == []


def test_in_a_kai_queue_nobody_starts_who_would_leave_for_a_refused_job_of_higher_priority() -> None:
    queues = [{"name": "a", "quota": 4, "limit": -1, "weight": 1, "priority": 100}]
    jobs = [gpu_job("low", "a", 3, 1, on="n"), gpu_job("high", "a", 4, 900, priority=60), gpu_job("new", "a", 1, 901)]
    assert hasty(queues, 4, *jobs) == []


def test_the_states_are_worth_something() -> None:
    found = [answer(states.state(Random(seed))) for seed in range(60)]
    assert sum(len(each.admitted) for each in found) > 60
    assert sum(len(each.evicted) for each in found) > 10
    assert sum(len(each.moved) for each in found) > 1
