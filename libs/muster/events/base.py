"""The two roots of the event vocabulary.

An event type is one frozen struct; its tag is its class name in snake case and is never reused. New fields
need a default; anything else is a new type. Times are ms since the epoch, amounts base units, ids uids.
"""

from __future__ import annotations

import re

from msgspec import Struct


class Cause(Struct, frozen=True, gc=False, order=True, array_like=True):
    """The event answered by a decision: sequence in the log and place inside the commit."""

    seq: int
    item: int


def tag_of(class_name: str) -> str:
    """``WorkloadObserved`` -> ``workload_observed``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", class_name).lower()


class Event(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, tag_field="type", tag=tag_of):
    """Anything the log may hold."""


class Decision(Event, frozen=True, kw_only=True):
    """A decision of a stage: a pure function of the log before the decision."""

    cause: Cause
