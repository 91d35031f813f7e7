"""What is wasted on a node, measured against what is usually asked for."""

from __future__ import annotations

from random import Random

from muster.core.placement.mix import MAX_USED, Mix, waste
from muster.model.placing import GPU, PodRules

Kind = tuple[int, int, int, int, int]
"""cpu, memory, devices, share, times"""


def told(kinds: list[Kind], odd: int = 0) -> str:
    return f"{odd};" + ";".join(",".join(map(str, kind)) for kind in kinds)


def counted(cpu: int, memory: int, whole: int, shared: tuple[int, ...], kinds: list[Kind]) -> int:
    """The same kind by kind: all of the GPUs for a kind that has no place, else the devices too small for it; and
    for each what is left without CPU, at the mean of the mix."""
    left, total = whole * 1000 + sum(shared), 0
    for need_cpu, need_memory, devices, share, times in kinds:
        fits = need_cpu <= cpu and need_memory <= memory
        if share:
            fits = fits and (whole > 0 or any(each >= share for each in shared))
            small = sum(each for each in shared if each < share)
        else:
            fits = fits and whole >= devices
            small = sum(shared)
        total += times * (small if fits else left)
    gpus = sum((devices * 1000 + share) * times for _, _, devices, share, times in kinds)
    cpus = sum(need * times for need, _, _, _, times in kinds)
    return total + sum(times for *_, times in kinds) * max(0, left - cpu * gpus // cpus)


def test_a_device_that_no_kind_can_use_is_wasted() -> None:
    mix = told([(4000, 100, 1, 0, 10), (1000, 10, 0, 500, 5)])
    assert waste(8000, 1000, 2, (), mix) == 0
    without = 2000 - 2000 * (10 * 1000 + 5 * 500) // (10 * 4000 + 5 * 1000)
    assert waste(2000, 1000, 2, (), mix) == 10 * 2000 + 15 * without, "too little cpu beside them for whole ones"
    assert waste(8000, 1000, 0, (400,), mix) == 15 * 400
    assert waste(8000, 1000, 1, (600,), mix) == 10 * 600, "the sliver is of no use to who wants a whole one"


def test_gpus_that_the_cpu_beside_them_does_not_serve_are_wasted_though_a_pod_fits() -> None:
    mix = told([(4000, 100, 1, 0, 10)])
    assert waste(32_000, 1000, 8, (), mix) == 0
    assert waste(16_000, 1000, 8, (), mix) == 10 * 4000
    assert waste(16_000, 1000, 4, (), mix) == 0


def test_it_is_counted_as_kind_by_kind_where_who_asks_for_more_cpu_asks_for_more_memory() -> None:
    rng = Random(1)
    for _ in range(300):
        kinds: list[Kind] = []
        for _ in range(rng.randint(1, 12)):
            size = rng.randint(1, 9)
            devices = rng.choice([0, 1, 2, 4])
            share = 0 if devices else rng.choice([100, 250, 500])
            kinds.append((size * 1000, size * 64, devices, share, rng.randint(1, 9)))
        size, whole = rng.randint(0, 10), rng.randint(0, 4)
        shared = tuple(sorted(rng.choice([50, 200, 500, 900]) for _ in range(rng.randint(0, 3))))
        assert waste(size * 1000, size * 64, whole, shared, told(kinds)) == counted(
            size * 1000, size * 64, whole, shared, kinds
        )


def test_where_they_do_not_go_together_it_is_never_more_and_less_room_never_wastes_less_of_it() -> None:
    rng = Random(2)
    for _ in range(300):
        kinds = [
            (rng.randint(1, 9) * 1000, rng.randint(1, 9), 1, 0, rng.randint(1, 9)) for _ in range(rng.randint(1, 9))
        ]
        cpu, memory = rng.randint(0, 10) * 1000, rng.randint(0, 10)
        found = waste(cpu, memory, 2, (), told(kinds))
        assert found <= counted(cpu, memory, 2, (), kinds)
        assert found <= waste(max(cpu - 1000, 0), memory, 2, (), told(kinds))
        assert found <= waste(cpu, max(memory - 1, 0), 2, (), told(kinds))


def test_many_kinds_count_not_only_the_most_frequent() -> None:
    mix = Mix()
    for _ in range(4):
        for index in range(60):
            mix.learn({"cpu": 1000 + index, GPU: 1000}, PodRules(), 100 - index)
    assert len(mix.for_nodes({}, ()).split(";")) == 1 + 60 <= 1 + MAX_USED
