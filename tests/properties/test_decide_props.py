"""``muster decide`` on random states: nothing is given twice, gangs are whole, the order of the file means nothing, and
the state that it leads to is one in which nothing more happens.
"""

from __future__ import annotations

import json
from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from kit import states
from kit.depth import examples
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


@settings(max_examples=examples(60))
@given(st.integers(0, 2**32))
def test_what_is_owed_goes_first_and_nobody_starts_to_be_evicted_at_once(seed: int) -> None:
    """An ElasticQuotaTree on one node, whose mins add up to all there is, in one or two departments."""
    rng = Random(seed)
    state, mins = owed_before_borrowed(rng)
    found = answer(state)
    asks = {job["name"]: (job["queue"], job["pods"][0]["gpus"]) for job in state["jobs"]}
    ran = {job["name"] for job in state["jobs"] if job["pods"][0].get("phase")}
    assert {each.job for each in found.evicted} <= ran, "started and evicted in the same minute"
    assert max(Counter(each.job for each in found.evicted).values(), default=0) <= 1
    used = Counter(dict.fromkeys(mins, 0))
    for name, _ in states.placed(found):
        used[asks[name][0]] += asks[name][1]
    for each in found.waiting:
        queue, gpus = asks[each.job]
        assert used[queue] + gpus > mins[queue], f"{each.job} is owed {gpus} in {queue}, which has {used[queue]}"


def owed_before_borrowed(rng: Random) -> tuple[states.State, dict[str, int]]:
    """(the state, the min of each queue)"""
    gpu, mins = "nvidia.com/gpu", {name: rng.randint(0, 4) for name in "abcd"}
    total = max(sum(mins.values()), 1)
    leaves = [
        {"name": name, "namespaces": [name], "min": {gpu: least}, "max": {gpu: total}} for name, least in mins.items()
    ]
    if rng.random() < 0.5:
        halves = ("left", leaves[:2]), ("right", leaves[2:])
        sums = [sum(leaf["min"][gpu] for leaf in half) for _, half in halves]
        leaves = [
            {"name": name, "min": {gpu: least}, "max": {gpu: total}, "children": half}
            for (name, half), least in zip(halves, sums, strict=True)
        ]
    root = {"name": "root", "min": {gpu: total}, "max": {gpu: total}, "children": leaves}
    tree = {"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree", "metadata": {"name": "t"}}
    jobs, free = [], total
    for index in range(rng.randint(2, 10)):
        gpus = rng.randint(1, min(4, total))
        runs = rng.random() < 0.6 and gpus <= free
        free -= gpus if runs else 0
        pod = {"gpus": gpus} | ({"phase": "Running", "node": "n", "started_s": index} if runs else {})
        jobs.append({"name": f"j{index}", "queue": rng.choice("abcd"), "pods": [pod], "created_s": index})
    queues = {**tree, "spec": {"root": root}}
    return {"nodes": [{"name": "n", "gpus": total}], "queues": queues, "jobs": jobs, "now_s": 86_400}, mins


def test_the_states_are_worth_something() -> None:
    found = [answer(states.state(Random(seed))) for seed in range(60)]
    assert sum(len(each.admitted) for each in found) > 60
    assert sum(len(each.evicted) for each in found) > 10
    assert sum(len(each.moved) for each in found) > 1
