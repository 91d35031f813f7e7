"""Shares of devices: what is said to fit does, nothing is ever overcommitted, and a pod never has one device twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muster.core.placement.devices import WHOLE, pick, pods_fitting

LEFT = st.dictionaries(st.integers(0, 7), st.integers(0, WHOLE - 1), max_size=5)
SHARE = st.integers(1, WHOLE)


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
                after[device] = after.get(device, WHOLE) - share
        assert len(found) == count
        assert len(after) - len(left) <= whole
        assert all(rest >= 0 for rest in after.values())


@given(LEFT, st.integers(0, 4), SHARE, st.integers(1, 4))
def test_one_more_than_fits_does_not(left: dict[int, int], whole: int, share: int, devices: int) -> None:
    """By Hall's condition for pods that take different devices each."""
    most = pods_fitting(left.values(), whole, share, devices)
    slots = [each // share for each in left.values()] + [WHOLE // share] * whole
    assert sum(min(each, most + 1) for each in slots) < (most + 1) * devices
