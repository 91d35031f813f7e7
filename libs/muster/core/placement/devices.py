"""Shares of GPU devices on one node: the share of a pod, the number of pods that fit, and the devices of each pod.

A device is shared or whole, never both. Shares are in parts of a device, so many that rounding down admits no pod too
many: of 512 pods on 2 TiB the amounts of memory are compared exactly. A pod with several devices takes the same share
of each device, and never two shares of one device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster.model.placing import GPU_MEMORY, WHOLE, PodRules

PART = 1 << 30
"""A thousandth of a device, in parts."""
DEVICE = WHOLE * PART
"""One device, in parts."""


def share_on(rules: PodRules, labels: Mapping[str, str]) -> int:
    """The share of a pod in each of its devices on a node with these labels, in parts; 0 for a pod without shares.

    Memory is counted against the device memory in the node's label ``nvidia.com/gpu.memory``. More than ``DEVICE``: no
    device of the node is large enough.
    """
    if not rules.gpu_memory:
        return rules.share * PART
    memory = memory_of(labels)
    return rules.gpu_memory * DEVICE // memory if memory else DEVICE + 1


def memory_of(labels: Mapping[str, str]) -> int:
    """MiB of a device on a node with these labels; 0 where the node does not say."""
    text = labels.get(GPU_MEMORY, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0


def shares_gpu(rules: PodRules) -> bool:
    """Whether a pod takes shares of devices instead of whole devices."""
    return bool(rules.share or rules.gpu_memory)


def pods_fitting(left: Iterable[int], whole: int, share: int, devices: int) -> int:
    """The number of pods that fit. Each pod takes ``share`` parts of each of ``devices`` different devices.

    ``left``: the parts left of each shared device; ``whole``: the number of free whole devices.
    """
    if not 0 < share <= DEVICE:
        return 0
    each_whole = DEVICE // share
    slots = [rest // share for rest in left]
    if devices <= 1:
        return sum(slots) + max(whole, 0) * each_whole
    slots += [each_whole] * max(whole, 0)
    low, high = 0, sum(slots) // devices
    while low < high:
        middle = (low + high + 1) // 2
        if sum([min(slot, middle) for slot in slots]) >= middle * devices:
            low = middle
        else:
            high = middle - 1
    return low


def pick(left: Mapping[int, int], whole: int, share: int, devices: int, count: int) -> list[tuple[int, ...]]:
    """The devices of ``count`` pods that fit, pod by pod.

    Shared devices come first, the fullest first, so that few whole devices are opened; an opened device gets the lowest
    free number. ``left`` and ``whole`` as in :func:`pods_fitting`.
    """
    order = sorted((rest, device) for device, rest in left.items() if rest >= share)
    numbers = [device for _, device in order]
    slots = {device: rest // share for rest, device in order}
    opened = iter(device for device in range(len(left) + whole) if device not in left)
    for _ in range(whole):
        device = next(opened)
        numbers.append(device)
        slots[device] = DEVICE // share
    used: list[int] = []
    for device in numbers:
        if sum([min(slots[device], count) for device in used]) >= count * devices:
            break
        used.append(device)
    places = {device: index for index, device in enumerate(used)}
    picked: list[tuple[int, ...]] = []
    for remaining in range(count, 0, -1):
        # Devices with as many slots as pods remain must serve every remaining pod; otherwise the fullest device comes
        # first.
        ready = sorted(
            (device for device in used if slots[device] > 0),
            key=lambda device: (-min(slots[device], remaining) if devices > 1 else 0, places[device]),
        )
        chosen = ready[:devices]
        assert len(chosen) == devices, f"{count} pods with {share} of {devices} devices do not fit into {dict(left)}"
        for device in chosen:
            slots[device] -= 1
        picked.append(tuple(sorted(chosen)))
    return picked
