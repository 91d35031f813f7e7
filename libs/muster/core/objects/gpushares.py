"""Shares of GPUs requested by pods, by annotations of the pod or of its template.

``gpu-fraction: "0.5"`` or ``gpu-memory: "4096"`` (MiB), of ``gpu-fraction-num-devices`` devices, for the container
``gpu-fraction-container-name``. ``nvidia.com/container.NAME.gpu-memory.request`` states an amount and a container at
once; ``.limit`` replaces a missing request. As in KAI Scheduler, one container of a pod shares, and the errors have the
words of KAI Scheduler.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from decimal import ROUND_HALF_UP, Decimal

from msgspec.structs import replace

from muster.core.objects.meta import GPU_DEVICE, GPU_GROUPS
from muster.model.placing import WHOLE, PodRules, part_of
from muster.model.problem import FieldProblem, problem
from muster.model.resources import QuantityError, parse_quantity

FRACTION = "gpu-fraction"
MEMORY = "gpu-memory"
DEVICES = "gpu-fraction-num-devices"
CONTAINER = "gpu-fraction-container-name"
MPS = "mps"
GROUP = "runai-gpu-group"
"""Label of a pod that shares a device: the group; for several devices one label each, ``runai-gpu-group/ID``."""
KEEPS = "muster.dev/keeps-gpu"
"""Label of a pod that keeps a device from the device plugin: the group that shares the device."""
RESERVATIONS = "muster-gpu-reservations"
"""Namespace of the keeping pods: elsewhere the label means nothing, since any user may write the label."""
COMPUTE_MODE = "kai.scheduler/gpu-compute-sharing-mode"
TIME_SLICING = "time-slicing"
MAX_DEVICES = 64
MAX_MEMORY = 1 << 30
"""MiB; more than any device has."""

BAD_FRACTION = problem("", "bad_gpu_fraction")
BAD_MEMORY = problem("", "bad_gpu_memory")
BAD_COUNT = problem("", "bad_gpu_count")
FRACTION_AND_WHOLE = problem("", "fraction_and_whole_gpu")
MEMORY_AND_GPU = problem("", "gpu_memory_and_gpu")
COUNT_ALONE = problem("", "gpu_count_alone")
MPS_ALONE = problem("", "mps_alone")
SEVERAL = problem("", "several_containers_share")
LIMIT_BESIDE = problem("", "gpu_limit_beside")

_NUMBER = re.compile(r"[0-9]{0,9}(\.[0-9]{0,30})?([eE][-+]?[0-9]{1,2})?", re.ASCII)
_CONTAINER_MEMORY = re.compile(r"nvidia\.com/container\.([-a-z0-9]{1,63})\.gpu-memory\.(request|limit)", re.ASCII)
_CONTAINER_MODE = re.compile(r"nvidia\.com/container\.([-a-z0-9]{1,63})\.gpu-compute\.mode", re.ASCII)


def asks_for_share(annotations: Mapping[str, str]) -> bool:
    """Whether annotations say anything of a share of a GPU, right or wrong."""
    return any(
        key in (FRACTION, MEMORY, DEVICES, MPS, COMPUTE_MODE)
        or _CONTAINER_MEMORY.fullmatch(key)
        or _CONTAINER_MODE.fullmatch(key)
        for key in annotations
    )


def with_share(rules: PodRules, annotations: Mapping[str, str], whole: bool, names: Collection[str]) -> PodRules:
    """The rules of a pod with the GPU share from the pod's annotations.

    ``whole``: the pod names whole GPUs, even zero. ``names``: of the pod's containers; empty where unknown.
    ``unsupported`` of the result has the error of the annotations: such a pod is not placed.
    """
    if not asks_for_share(annotations):
        return rules
    share, memory, count, wrong = _read(annotations, whole, names)
    return (
        replace(rules, unsupported=wrong)
        if wrong is not None
        else replace(rules, share=share, gpu_memory=memory, devices=count)
    )


def container_of(annotations: Mapping[str, str]) -> str:
    """The name of the sharing container; empty for the first container."""
    return annotations.get(CONTAINER) or _by_key(annotations)


def _by_key(annotations: Mapping[str, str]) -> str:
    """The container named in an annotation for container memory; empty without such an annotation."""
    matches = (_CONTAINER_MEMORY.fullmatch(key) for key in sorted(annotations))
    return next((match.group(1) for match in matches if match is not None), "")


def _read(
    annotations: Mapping[str, str], whole: bool, names: Collection[str]
) -> tuple[int, int, int, FieldProblem | None]:
    """(thousandths, MiB, devices, error)"""
    fraction, memory, count = annotations.get(FRACTION), annotations.get(MEMORY), annotations.get(DEVICES)
    none = (0, 0, 1)
    amounts, wrong = _of_containers(annotations)
    wrong = wrong or _container_wrong(annotations, names)
    if wrong is not None:
        return *none, wrong
    if fraction is None and memory is None and not amounts and annotations.get(MPS) == "true":
        return *none, MPS_ALONE
    if fraction is not None and whole:
        return *none, FRACTION_AND_WHOLE
    if (memory is not None or amounts) and (fraction is not None or whole):
        return *none, MEMORY_AND_GPU
    if count is not None and fraction is None and memory is None and not amounts:
        return *none, COUNT_ALONE
    mebibytes, wrong = _memory(memory, amounts)
    if wrong is not None:
        return *none, wrong
    share = thousandths(fraction) if fraction is not None else 0
    if fraction is not None and not share:
        return *none, BAD_FRACTION
    devices = _integer(count, MAX_DEVICES) if count is not None else 1
    if not devices:
        return *none, BAD_COUNT
    for key in sorted(annotations):
        if (key == COMPUTE_MODE or _CONTAINER_MODE.fullmatch(key)) and annotations[key] != TIME_SLICING:
            return *none, problem("", "only_time_slicing", key=key, value=TIME_SLICING)
    return share, mebibytes, devices, None


def _memory(memory: str | None, amounts: Mapping[str, int]) -> tuple[int, FieldProblem | None]:
    """(MiB, error), from the annotation of the pod and the request of one container."""
    asked = amounts.get("request", amounts.get("limit", 0))
    if memory is None:
        return asked, None
    mebibytes = _integer(memory, MAX_MEMORY)
    if not mebibytes:
        return 0, BAD_MEMORY
    if "limit" in amounts:
        return 0, LIMIT_BESIDE
    if asked and asked != mebibytes:
        return 0, problem("", "gpu_memory_differs", asked=asked, key=MEMORY, memory=memory)
    return mebibytes, None


def _of_containers(annotations: Mapping[str, str]) -> tuple[dict[str, int], FieldProblem | None]:
    """({"request" or "limit": MiB} of the container named in the annotations for containers, error)"""
    amounts, named = dict[str, int](), dict[str, None]()
    for key in sorted(annotations):
        amount_key, mode = _CONTAINER_MEMORY.fullmatch(key), _CONTAINER_MODE.fullmatch(key)
        if amount_key is not None:
            amount = _mebibytes(annotations[key])
            if not 0 < amount <= MAX_MEMORY:
                return {}, problem("", "bad_container_memory", key=key)
            amounts[amount_key.group(2)] = amount
        either = amount_key or mode
        if either is not None:
            named[either.group(1)] = None
    if not amounts:
        return {}, None
    if len(named) > 1:
        return {}, SEVERAL
    if amounts.get("request", 0) > amounts.get("limit", MAX_MEMORY):
        return {}, problem("", "gpu_request_over_limit", container=next(iter(named)))
    return amounts, None


def _container_wrong(annotations: Mapping[str, str], names: Collection[str]) -> FieldProblem | None:
    """The error of the sharing container's name."""
    wanted, by_key = container_of(annotations), _by_key(annotations)
    if by_key and wanted != by_key:
        return problem("", "gpu_container_differs", key=CONTAINER, value=wanted[:63], container=by_key)
    if wanted and names and wanted not in names:
        return problem("", "gpu_container_missing", container=wanted[:63])
    return None


def thousandths(text: str) -> int:
    """A fraction above 0 and below 1, as the nearest number of thousandths, 1 at least; else 0."""
    if not text or not any(letter.isdigit() for letter in text) or _NUMBER.fullmatch(text) is None:
        return 0
    amount = Decimal(text)
    return max(1, int((amount * WHOLE).to_integral_value(ROUND_HALF_UP))) if 0 < amount < 1 else 0


def _integer(text: str, most: int) -> int:
    """A whole number from 1 on; 0 for anything else."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
    return number if number <= most else 0


def _mebibytes(text: str) -> int:
    """An amount of memory in MiB: a quantity such as ``4Gi``; a bare number is in MiB. 0 for any other text."""
    if text.isascii() and text.isdigit():
        return _integer(text, MAX_MEMORY)
    try:
        return -(-parse_quantity(text, "memory") >> 20)
    except QuantityError:
        return 0


def charged(rules: PodRules, memory: int = 0) -> int:
    """The charge of a quota for a share, thousandths of a GPU.

    ``memory``: MiB of a device; 0 where unknown.
    """
    return (part_of(rules.gpu_memory, memory) if rules.gpu_memory else rules.share) * rules.devices


def devices_of(annotations: Mapping[str, str]) -> tuple[int, ...]:
    """The devices a pod was given, as our annotation says: ``0`` or ``0,2``."""
    parts = annotations.get(GPU_DEVICE, "").split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 5 for part in parts) or len(parts) > MAX_DEVICES:
        return ()
    return tuple(map(int, parts))


def groups_of(annotations: Mapping[str, str], labels: Mapping[str, str]) -> tuple[str, ...]:
    """The groups that share the pod's devices, in the order of the devices."""
    text = annotations.get(GPU_GROUPS, "")
    groups = text.split(",") if text else [labels[GROUP]] if labels.get(GROUP) else []
    return tuple(group[:64] for group in groups[:MAX_DEVICES])
