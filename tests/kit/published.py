"""What outsiders would read of every log that a test makes, judged by a validator that is not ours.

`judge` is installed once per session (`tests/conftest.py`) where logs grow: on the bench of the deciders, in memory,
in the simulation; logs of real servers come through `kit.proof`.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from kit.compose import REPOSITORY
from muster.events.envelope import Stored
from muster.events.public import PUBLIC_TYPES
from muster.events.registry import encode
from muster.told.views.publication import public_event

SCHEMAS = REPOSITORY / "proto-schemas" / "v1"
_SURE = 500
"""So many of one event, type and fields that are there, are judged; of more of the very same kind every hundredth."""

_validators: dict[str, Draft202012Validator] = {}
judged: Counter[str] = Counter()
"""Tag -> how many public events have been judged in this process."""
_seen: Counter[tuple[str, ...]] = Counter()


class ContractError(AssertionError):
    """A public event that its schema does not allow."""


def judge(stored: Stored) -> None:
    """Judge every public event of a commit. Raises ContractError."""
    for index, event in enumerate(stored.commit.events):
        found = public_event("test", 1, stored.seq, index, stored.commit.at, event)
        if found is None:
            continue
        tag = str(type(found).__struct_config__.tag)
        body = json.loads(encode(found))
        kind = (tag, *body, str(body.get("reason", "")), str(body.get("outcome", "")))
        _seen[kind] += 1
        if _seen[kind] > _SURE and _seen[kind] % 100:
            continue
        judged[tag] += 1
        for error in _validator(tag).iter_errors(body):
            raise ContractError(f"{tag} at {stored.seq}: {error.message}: {body}")


def judge_all(commits: Iterable[Stored]) -> None:
    """Judge a whole log. Raises ContractError."""
    for stored in commits:
        judge(stored)


def _validator(tag: str) -> Draft202012Validator:
    if not _validators:
        for each in PUBLIC_TYPES:
            schema = json.loads((SCHEMAS / f"{each}.schema.json").read_text())
            _validators[each] = Draft202012Validator(schema, format_checker=FormatChecker())
    return _validators[tag]


def judging(append: Callable[..., Any], newest: Callable[[Any], Stored | None]) -> Callable[..., Any]:
    """A method that stores a commit, so that what it stored is judged; ``newest``: that commit, of the object."""

    def stored_and_judged(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = append(self, *args, **kwargs)
        stored = newest(self)
        if stored is not None:
            judge(stored)
        return result

    return stored_and_judged
