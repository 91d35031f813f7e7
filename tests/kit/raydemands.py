"""Ray clusters and what waits in them, by chance: for comparing what Muster makes of them with what Ray does."""

from __future__ import annotations

import random
from typing import Any

from muster.core.autoscaling.wish import Wish, wish_of
from muster.model.elastic import Counts, Elastic, ScaledGroup
from muster.model.raydemand import (
    RAY_UNIT,
    RayConstraint,
    RayDemand,
    RayIdle,
    RayPlacementGroup,
    RayRoom,
    RaySelector,
    RayShape,
)

Object = dict[str, Any]
"""A cluster and its demand, as JSON: groups, joined nodes, pending, gangs, explicit."""

GIB = 2**30
SIZES = [
    {"CPU": 1}, {"CPU": 2, "memory": 8 * GIB}, {"CPU": 4}, {"CPU": 4, "memory": 16 * GIB}, {"CPU": 8}, {"CPU": 16},
    {"CPU": 4, "GPU": 1}, {"CPU": 8, "GPU": 1}, {"CPU": 16, "GPU": 2}, {"CPU": 32, "GPU": 8}, {"CPU": 8, "spot": 1},
    {"CPU": 8, "TPU": 4}, {"CPU": 3, "memory": 4 * GIB},
]  # fmt: skip
SHAPES = [
    {"CPU": 1}, {"CPU": 1}, {"CPU": 2}, {"CPU": 3}, {"CPU": 4}, {"CPU": 0.5}, {"CPU": 1, "memory": 4 * GIB}, {"GPU": 1},
    {"GPU": 0.5}, {"CPU": 1, "GPU": 1}, {"CPU": 4, "GPU": 2}, {"CPU": 1, "spot": 0.1}, {"TPU": 4}, {"CPU": 9},
]  # fmt: skip
MAX_ROUNDS = 60
LABELS = {"market": ["spot", "ondemand"], "zone": ["a", "b", "c"]}
STRATEGIES = ["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]


def drawn(seed: int, *, labels: bool = False, joined: bool = True) -> Object:
    """One cluster with two to five groups."""
    chance = random.Random(seed)
    groups = []
    for index in range(chance.randint(2, 5)):
        named = {key: chance.choice(values) for key, values in LABELS.items() if labels and chance.random() < 0.7}
        priority = chance.choice([0, 0, 0, 5, -1])
        size = dict(chance.choice(SIZES))
        groups.append(
            {
                "name": f"g{index}",
                "offers": size,
                "labels": named,
                "priority": priority,
                "most": chance.choice([1, 3, 10, 50]),
            }
        )

    def selectors() -> list[list[Any]]:
        if not labels or chance.random() < 0.4:
            return []
        found = []
        for _ in range(chance.choice([1, 1, 2, 3])):
            keys = chance.sample(sorted(LABELS), chance.randint(1, 2))
            values = [chance.sample(LABELS[key], chance.randint(1, 2)) for key in keys]
            found.append([[key, sorted(some), chance.random() < 0.2] for key, some in zip(keys, values, strict=True)])
        return found

    def shapes(most: int, count: int) -> list[Object]:
        found: list[Object] = []
        for _ in range(chance.randint(1, most)):
            shape = {"resources": dict(chance.choice(SHAPES)), "selectors": selectors()}
            if shape not in [{key: each[key] for key in shape} for each in found]:
                found.append({**shape, "count": chance.randint(1, count)})
        return found

    gangs = [
        {"name": f"{index:036x}", "strategy": chance.choice(STRATEGIES), "bundles": shapes(2, 4)}
        for index in range(chance.choice([0, 0, 1, 2]))
    ]
    nodes = []
    for index in range(chance.randint(0, 3) if joined else 0):
        group = chance.choice(groups)
        if sum(1 for each in nodes if each["group"] == group["name"]) >= group["most"]:
            continue
        idle = chance.random() < 0.3
        free = {name: whole if idle else chance.randint(0, whole - 1) for name, whole in group["offers"].items()}
        nodes.append({"pod": f"pod-{index}", "group": group["name"], "free": free, "idle": idle})
    pending = shapes(4, chance.choice([3, 20])) if not gangs or chance.random() < 0.7 else []
    explicit = [{**each, "selectors": []} for each in shapes(2, 5)] if chance.random() < 0.1 else []
    explicit = [
        each
        for index, each in enumerate(explicit)
        if each["resources"] not in [x["resources"] for x in explicit[:index]]
    ]
    return {"groups": groups, "nodes": nodes, "pending": pending, "gangs": gangs, "explicit": explicit}


def elastic_of(case: Object) -> Elastic:
    """The cluster as Muster knows it."""
    there = [node["group"] for node in case["nodes"]]
    groups = tuple(
        ScaledGroup(
            name=group["name"],
            replicas=there.count(group["name"]),
            asked=there.count(group["name"]),
            most=group["most"],
            offers=_exact(group["offers"]),
            labels=group["labels"],
            priority=group["priority"],
        )
        for group in case["groups"]
    )
    return Elastic(groups=groups)


def demand_of(case: Object) -> RayDemand:
    """What its head says."""
    joined: dict[str, int] = {}
    for node in case["nodes"]:
        joined[node["group"]] = joined.get(node["group"], 0) + 1
    return RayDemand(
        version="v2",
        pending=_shapes(case["pending"]),
        placement_groups=tuple(
            RayPlacementGroup(gang["name"], gang["strategy"], _shapes(gang["bundles"])) for gang in case["gangs"]
        ),
        explicit=_shapes(case["explicit"]),
        joined=joined,
        idle=tuple(RayIdle(node["pod"], node["group"]) for node in case["nodes"] if node["idle"]),
        room=tuple(RayRoom(node["group"], _exact(node["free"])) for node in case["nodes"] if not node["idle"]),
    )


def launched(wish: Wish, elastic: Elastic) -> dict[str, int]:
    """Replicas that would be made, were all of it granted as it is asked for first."""
    return {name: more for name, count in sorted(wish.in_all.items()) if (more := count - elastic.sizes[name])}


def wish(case: Object) -> Wish:
    return wish_of(elastic_of(case), demand_of(case))


def _exact(amounts: dict[str, float]) -> dict[str, int]:
    return {name: round(amount * RAY_UNIT) for name, amount in sorted(amounts.items())}


def _shapes(found: list[Object]) -> tuple[RayShape, ...]:
    return tuple(
        RayShape(_exact(each["resources"]), each["count"], tuple(_selector(one) for one in each["selectors"]))
        for each in found
    )


def _selector(constraints: list[Any]) -> RaySelector:
    return tuple(RayConstraint(key, tuple(values), excluded) for key, values, excluded in constraints)


# --- with quota ---------------------------------------------------------------------------------------------------


def cost(case: Object, counts: Counts) -> Counts:
    """Cores and GPUs of so many replicas."""
    offers = {group["name"]: group["offers"] for group in case["groups"]}
    return {name: sum(offers[group].get(name, 0) * count for group, count in counts.items()) for name in ("CPU", "GPU")}


def settled(case: Object, quota: Counts) -> Counts:
    """{group: replicas} that are there or granted in the end, where quota for new ones is all that limits them.

    Unit by unit and alternative by alternative, as the accountant does.
    """
    elastic, demand = elastic_of(case), demand_of(case)
    granted, refused = dict(elastic.sizes), tuple[str, ...]()
    for _ in range(MAX_ROUNDS):
        found = wish_of(elastic, demand, granted, None, refused)
        before = dict(granted)
        for unit in found.units:
            left = unit.times
            for groups, times in ((unit.groups, 1), *((each.groups, each.times) for each in unit.otherwise)):
                fits = 0
                while fits < left * times:
                    more = plus(granted, groups)
                    if any(much > quota[name] for name, much in cost(case, plus(more, elastic.sizes, -1)).items()):
                        break
                    granted, fits = more, fits + 1
                left -= -(-fits // times)
        last = tuple(sorted({*refused, *found.gangs}))
        if granted == before and last == refused:
            return granted
        refused = last if granted == before else refused
    raise AssertionError(f"no end after {MAX_ROUNDS} rounds: {case}")


def plus(one: Counts, other: Counts, times: int = 1) -> Counts:
    return {name: one.get(name, 0) + other.get(name, 0) * times for name in (one | other)}


def gated(case: Object, most: Counts) -> Object:
    """The same cluster with these for ``maxReplicas``."""
    return {**case, "groups": [{**group, "most": most[group["name"]]} for group in case["groups"]]}


def one_more(case: Object, quota: Counts, granted: Counts) -> list[Counts]:
    """What could be granted besides: one replica of each group, and each two of them."""
    sizes = elastic_of(case).sizes
    names = [group["name"] for group in case["groups"]]
    found = [{name: 1} for name in names] + [plus({one: 1}, {other: 1}) for one in names for other in names]
    ceilings = {group["name"]: group["most"] for group in case["groups"]}
    return [
        plus(granted, more)
        for more in found
        if all(granted[name] + count <= ceilings[name] for name, count in more.items())
        and all(much <= quota[name] for name, much in cost(case, plus(plus(granted, more), sizes, -1)).items())
    ]
