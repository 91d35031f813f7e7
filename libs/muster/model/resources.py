"""Exact resource quantities: Kubernetes texts to integers and back, and vectors of them.

A vector is a plain ``dict[str, int]``: resource name -> amount in the resource's base unit.
Base units: bytes for memory, storage and huge pages; thousandths for everything else
(cpu 2 = 2000, nvidia.com/gpu 1 = 1000), so that fractions of a GPU or a CPU stay integers.
A resource that is absent from a vector is zero there. Nothing here ever uses a float.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from muster.model.language import say
from muster.model.problem import ProblemError, problem
from muster.model.text import shorten

Vector = dict[str, int]
"""{resource name: amount in base units}; absent means zero."""

MAX_AMOUNT = 2**63 - 1
"""The largest amount one quantity may name; Kubernetes itself keeps quantities in an int64."""

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE](?P<exponent>[+-]?[0-9]{1,4}))?",
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_MAX_TEXT = 64
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?")
_MAX_NAME = 253 + 1 + 63
EVERYTHING = 2**62
"""As a guarantee: all there is. No quantity of a cluster comes near it."""
MAX_RESOURCES = 256
"""How many resources one place may name: far more than any node has."""


class QuantityError(ProblemError):
    """A text is not a Kubernetes quantity, or names more than :data:`MAX_AMOUNT`."""


def total_of(resource: str) -> str:
    """The name of a resource without a flavor."""
    return resource.partition("@")[0]


@lru_cache(maxsize=4096)
def in_bytes(resource: str) -> bool:
    """Whether the resource is counted in bytes; all others are counted in thousandths. A flavor changes nothing."""
    resource = total_of(resource)
    return (
        resource in ("memory", "storage", "ephemeral-storage")
        or resource.startswith("hugepages-")
        or resource.endswith((".storage", "-memory"))
    )


@lru_cache(maxsize=16384)
def parse_quantity(text: str, resource: str) -> int:
    """The amount a quantity text names, in the base unit of ``resource``, rounded up.

    Accepts what Kubernetes accepts: ``4``, ``500m``, ``4G``, ``14Gi``, ``1.5``, ``2e3``.
    Raises QuantityError for anything else, for negative amounts and for amounts over MAX_AMOUNT.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if match is None or not (match["whole"] or match["part"]):
        raise QuantityError(problem("", "not_a_quantity", value=shorten(text, _MAX_TEXT + 1)))
    part = match["part"] or ""
    digits = int((match["whole"] or "0") + part)
    if match["sign"] == "-" and digits:
        raise QuantityError(problem("", "negative", value=text))
    suffix = match["suffix"] or ""
    power = -len(part) + (0 if in_bytes(resource) else 3)
    shift = 0
    if match["exponent"]:
        power += int(match["exponent"])
    elif suffix in _BINARY:
        shift = _BINARY[suffix]
    else:
        power += _DECIMAL[suffix]
    if digits == 0:
        return 0
    if power > 40:
        raise QuantityError(problem("", "uncountable", value=text))
    amount: int = digits << shift
    amount = amount * 10**power if power >= 0 else -(-amount // 10**-power)
    if amount > MAX_AMOUNT:
        raise QuantityError(problem("", "uncountable", value=text))
    return amount


def is_resource_name(name: str) -> bool:
    """Whether Kubernetes could take a text as the name of a resource: ``cpu``, ``nvidia.com/gpu``."""
    return len(name) <= _MAX_NAME and _NAME.fullmatch(name) is not None


def format_quantity(amount: int, resource: str) -> str:
    """The shortest exact Kubernetes text for an amount in base units: ``12``, ``500m``, ``12G``, ``14Gi``.

    EVERYTHING reads ``unlimited``: no field of Kubernetes is ever given that amount.
    """
    if amount == EVERYTHING:
        return "unlimited"
    if amount < 0:
        return "-" + format_quantity(-amount, resource)
    if not in_bytes(resource):
        if amount % 1000:
            return f"{amount}m"
        return str(amount // 1000)
    best = str(amount)
    steps = [(suffix, 10**power) for suffix, power in _DECIMAL.items() if power > 0]
    steps += [(suffix, 1 << shift) for suffix, shift in _BINARY.items()]
    for suffix, unit in steps:
        if amount and amount % unit == 0:
            text = f"{amount // unit}{suffix}"
            best = text if len(text) < len(best) else best
    return best


def _of(part: str, whole: str) -> str:
    return say("{part} of {whole}", part=part, whole=whole)


def format_part(amount: int, whole: int | None, resource: str) -> str:
    """``30.5 of 64``, ``11.2Gi of 40Gi``: a part in the unit of the whole; the part alone without a whole."""
    alone = format_quantity(amount, resource)
    if whole is None:
        return alone
    text = format_quantity(whole, resource)
    suffix = text.lstrip("0123456789")
    if not in_bytes(resource) and amount > 0 and not suffix and amount % 1000:
        return _of(f"{amount // 1000}.{f'{amount % 1000:03}'.rstrip('0')}", text)
    if not in_bytes(resource) or not suffix or alone.endswith(suffix):
        return _of(alone, text)
    unit = 1 << _BINARY[suffix] if suffix in _BINARY else 10 ** _DECIMAL[suffix]
    tenths = (amount * 10 + unit // 2) // unit
    shown = f"{tenths // 10}{f'.{tenths % 10}' if tenths % 10 else ''}{suffix}"
    exact = not tenths or (shown == text and amount != whole)
    return _of(alone if exact else shown, text)


def format_vector(vector: Mapping[str, int]) -> str:
    """One line for humans, sorted by resource: ``cpu 12, memory 12G``."""
    return ", ".join(f"{name} {format_quantity(vector[name], name)}" for name in sorted(vector)) or say("nothing")


def texts(vector: Mapping[str, int]) -> dict[str, str]:
    """The vector as Kubernetes writes one: {resource name: quantity text}, sorted by name."""
    return {name: format_quantity(vector[name], name) for name in sorted(vector)}


def add_into(total: Vector, more: Mapping[str, int], times: int = 1) -> None:
    """Add ``times`` x ``more`` to ``total`` in place; resources at zero leave the vector."""
    get = total.get
    for name, amount in more.items():
        value = get(name, 0) + amount * times
        if value:
            total[name] = value
        else:
            total.pop(name, None)


def summed(vectors: Iterable[Mapping[str, int]]) -> Vector:
    """The sum of the vectors."""
    total: Vector = {}
    for vector in vectors:
        add_into(total, vector)
    return total


def scaled(vector: Mapping[str, int], times: int) -> Vector:
    """``times`` x ``vector``; empty when ``times`` is 0."""
    return {name: amount * times for name, amount in vector.items()} if times else {}


def highest(one: Mapping[str, int], other: Mapping[str, int]) -> Vector:
    """Per resource the larger of the two amounts."""
    result = dict(one)
    for name, amount in other.items():
        if amount > result.get(name, 0):
            result[name] = amount
    return result


def beyond(amounts: Mapping[str, int], limit: Mapping[str, int]) -> Vector:
    """By how much the amounts are above a limit, per resource; other resources are left out."""
    return {name: over for name in sorted(amounts) if (over := amounts[name] - limit.get(name, 0)) > 0}


def positive(amounts: Mapping[str, int]) -> Vector:
    """The amounts above zero, in the order of the resources."""
    return {name: amount for name, amount in sorted(amounts.items()) if amount > 0}


def lowest(one: Mapping[str, int], other: Mapping[str, int]) -> Vector:
    """Per resource of ``one`` the smaller of the two amounts."""
    return {name: min(amount, other.get(name, 0)) for name, amount in one.items()}


def in_proportion(amount: int, weights: Mapping[str, int]) -> dict[str, int]:
    """The amount in whole units by weight: the largest remainders get one unit more, ties by name."""
    whole = sum(weights.values())
    shares = {name: amount * weight // whole for name, weight in weights.items()}
    rest = amount - sum(shares.values())
    by_remainder = sorted(weights, key=lambda name: (-(amount * weights[name] % whole), name))
    for name in by_remainder[:rest]:
        shares[name] += 1
    return shares
