"""What the gateway answers about what is not so yet: a change that is tried out, and a job that is not submitted.

The OpenAPI document is made of these as of `serving.shapes`: fields are added, none is changed or removed.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from muster.serving.shapes import MomentView, StartView


class Change(Struct, frozen=True):
    """One thing that would be otherwise: of a quota its min, max or weight; a job's request; or more nodes."""

    queue: str = ""
    field: str = ""
    """Of a quota: min, max or weight."""
    resource: str = ""
    value: str = ""
    """A quantity as Kubernetes writes it."""
    job: str = ""
    """namespace/name of a job that would ask for ``value`` of ``resource`` instead."""
    nodes: int = 0
    """So many more nodes, each with ``value`` of ``resource``."""


class Changes(Struct, frozen=True):
    """What would be otherwise."""

    changes: list[Change]
    job: str = ""
    """namespace/name of a job that is asked about; it is listed first."""


class Effect(Struct, frozen=True):
    """A waiting job, before and after. Starts are in ms from now; None: not to be foreseen."""

    job: str
    queue: str
    before: int | None
    after: int | None
    binds: str
    """What still keeps it waiting after the change; empty when it would start at once."""
    owed_before: bool = False
    """It is owed its start: jobs that borrow are reclaimed for it, as it is,"""
    owed_after: bool = False
    """and with the change."""


class WhatIf(Struct, frozen=True):
    """What a change would do, by the queues played forward."""

    moment: MomentView
    changes: list[Change]
    waiting: int
    now_before: int
    """Jobs that could start now as it is,"""
    now_after: int
    """and with the change."""
    earlier: int
    later: int
    effects: list[Effect]
    summary: str


class Submission(Struct, frozen=True):
    """A job as it would be submitted."""

    manifest: dict[str, Any]


class Advice(Struct, frozen=True):
    """A change with which it would start now."""

    change: str
    text: str


class AskView(Struct, frozen=True):
    """What a job would meet that is not submitted yet."""

    moment: MomentView
    kind: str
    job: str
    queue: str
    request: dict[str, str]
    starts_now: bool
    promise: StartView | None
    why_no_promise: str
    binds: str
    """What it would wait for; empty when it would start now."""
    costs: list[str]
    """The jobs that would be evicted or delayed for it, a sentence each."""
    advice: list[Advice]
    summary: str
    complete: bool = True
    """False: time ran out. Promise, costs and advice were not looked for, or not all of them."""
