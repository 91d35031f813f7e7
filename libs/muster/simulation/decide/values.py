"""Single values of a state file: exact numbers, times, amounts, and names that tell things apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation

from muster.simulation.decide.document import Number
from muster.simulation.decide.situation import StateFileError

MAX_SECONDS = 10**9
MIB = 1 << 20


def exact(value: Number, where: str) -> Decimal:
    """A finite number as it is written."""
    try:
        found = Decimal(str(value))
    except InvalidOperation:
        found = Decimal("NaN")
    if not found.is_finite():
        raise StateFileError(f"{where}: {value!r} is not a number")
    return found


def seconds(value: Number, where: str) -> int:
    """Milliseconds."""
    found = exact(value, where)
    if not 0 <= found <= MAX_SECONDS:
        raise StateFileError(f"{where}: {value} is not a time from 0 to {MAX_SECONDS} seconds")
    return int(found * 1000)


def at_least(where: str, least: int, **values: int | None) -> None:
    """Refuses the first of the values that is below ``least``; None is not given."""
    for name, value in values.items():
        if value is not None and not least <= value < 1 << 40:
            raise StateFileError(f"{where}: {name} is {value}; write a whole number from {least} on")


def unique(what: str, names: Iterable[str]) -> None:
    """Refuses a name that is there twice; ``what``: what it is the name of."""
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise StateFileError(f"{what} {twice!r} is there twice; names tell them apart")
