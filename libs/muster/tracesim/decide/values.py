"""Single values of a state file: exact numbers, times, amounts, and names that tell things apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from reprlib import Repr
from typing import Any

from muster.tracesim.decide.document import Number
from muster.tracesim.decide.situation import StateFileError

MAX_SECONDS = 10**9
MIB = 1 << 20
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


def shown(value: Any) -> str:
    """A value in a message: on one line, and just long enough to be found."""
    return _SHORT.repr(value)


def exact(value: Number, where: str) -> Decimal:
    """A finite number as it is written."""
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise StateFileError(f"{where}: {shown(value)} is not a number")
    return number


def seconds(value: Number, where: str) -> int:
    """Milliseconds."""
    number = exact(value, where)
    if not 0 <= number <= MAX_SECONDS:
        raise StateFileError(f"{where}: {shown(value)} is not a time from 0 to {MAX_SECONDS} seconds")
    return int(number * 1000)


def at_least(where: str, least: int, most: int = 10**12, **values: int | None) -> None:
    """Refuses the first of the values that is below ``least`` or above ``most``; None is not given."""
    for name, value in values.items():
        if value is not None and not least <= value <= most:
            end = f"to {most}" if value > most else "on"
            raise StateFileError(f"{where}: {name} is {shown(value)}; write a whole number from {least} {end}")


def named(where: str, name: str) -> None:
    """Refuses what is no name."""
    if not name:
        raise StateFileError(f"{where}: its name is empty")
    if not name.isprintable():
        raise StateFileError(f"{where}: its name {shown(name)} has characters that cannot be printed")


def unique(kind: str, names: Iterable[str]) -> None:
    """Refuses a repeated name; ``what``: the kind of the named thing."""
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise StateFileError(f"{kind} {twice!r} is there twice; names tell them apart")
