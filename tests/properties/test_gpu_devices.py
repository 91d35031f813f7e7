"""Shares of devices: what is said to fit does, nothing is ever overcommitted, and a pod never has one device twice."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from muster.core.placement.devices import DEVICE, WHOLE, pick, pods_fitting, share_on
from muster.model.placing import GPU_MEMORY, PodRules

LEFT = st.dictionaries(st.integers(0, 7), st.integers(0, DEVICE - 1), max_size=5)
SHARE = st.integers(DEVICE // WHOLE, DEVICE)


@given(LEFT, st.integers(0, 4), SHARE, st.integers(1, 4))
def test_as_many_as_fit_are_given_devices_and_none_is_overcommitted(
    left: dict[int, int], whole: int, share: int, devices: int
) -> None:
    most = pods_fitting(left.values(), whole, share, devices)
    for count in {1, most // 2, most} - {0}:
        if count > most:
            continue
        found = pick(left, whole, share, devices, count)
        after = dict(left)
        for each in found:
            assert len(set(each)) == devices
            for device in each:
                after[device] = after.get(device, DEVICE) - share
        assert len(found) == count
        assert len(after) - len(left) <= whole
        assert all(rest >= 0 for rest in after.values())


@given(LEFT, st.integers(0, 4), SHARE, st.integers(1, 4))
def test_one_more_than_fits_does_not(left: dict[int, int], whole: int, share: int, devices: int) -> None:
    """By Hall's condition for pods that take different devices each."""
    most = pods_fitting(left.values(), whole, share, devices)
    slots = [each // share for each in left.values()] + [DEVICE // share] * whole
    assert sum(min(each, most + 1) for each in slots) < (most + 1) * devices


@given(
    st.integers(1, 1 << 21),
    st.lists(st.fractions(0, 1), min_size=1, max_size=60),
    st.lists(st.integers(1, 999), max_size=8),
    st.integers(-1, 1),
)
def test_amounts_of_memory_fit_where_their_sum_does(
    memory: int, parts: list[Fraction], shares: list[int], beyond: int
) -> None:
    """Pods that come one by one, beside shares in thousandths: the last one asks for what is left, or a MiB more."""
    labels, left, room = {GPU_MEMORY: str(memory)}, {0: DEVICE}, Fraction(memory)
    amounts = [max(1, int(part * memory / len(parts))) for part in parts]
    for rules, takes in [
        *((PodRules(share=share), Fraction(share * memory, 1000)) for share in shares),
        *((PodRules(gpu_memory=amount), Fraction(amount)) for amount in amounts),
    ]:
        fits = takes <= room
        share = share_on(rules, labels)
        assert (pods_fitting(left.values(), 0, share, 1) > 0) == fits
        if fits:
            left[0], room = left[0] - share, room - takes
    last = int(room) + beyond
    if last > 0:
        assert (pods_fitting(left.values(), 0, share_on(PodRules(gpu_memory=last), labels), 1) > 0) == (beyond <= 0)
