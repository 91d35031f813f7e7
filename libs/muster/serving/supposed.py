"""Answers about a supposed cell: with a change that is tried out, or with a job that is not submitted.

The OpenAPI document is made of these shapes and `serving.shapes`: fields are only added.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from muster.serving.shapes import MomentView, StartView


class Change(Struct, frozen=True):
    """One supposed change: min, max or weight of a quota; a job's request; or more nodes."""

    queue: str = ""
    field: str = ""
    """Of a quota: min, max or weight."""
    resource: str = ""
    value: str = ""
    """A quantity as Kubernetes writes it."""
    job: str = ""
    """namespace/name of a job that would ask for ``value`` of ``resource`` instead."""
    nodes: int = 0
    """The number of additional nodes, each with ``value`` of ``resource``."""


class Changes(Struct, frozen=True):
    """The supposed changes."""

    changes: list[Change]
    job: str = ""
    """namespace/name of the job in question, which is listed first."""


class Effect(Struct, frozen=True):
    """A waiting job, before and after. Starts are in ms from now; None: not to be foreseen."""

    job: str
    queue: str
    before: int | None
    after: int | None
    binds: str
    """The reason why the job still waits after the change; empty when the job would start at once."""
    owed_before: bool = False
    """The job is owed its start: jobs that borrow are reclaimed for the job, without the change,"""
    owed_after: bool = False
    """and with the change."""


class WhatIf(Struct, frozen=True):
    """The effects of a change, by the queues played forward."""

    moment: MomentView
    changes: list[Change]
    waiting: int
    now_before: int
    """Jobs that could start now without the change,"""
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
    """A change with which the job would start now."""

    change: str
    text: str


class AskView(Struct, frozen=True):
    """The prospects of a job that is not submitted yet."""

    moment: MomentView
    kind: str
    job: str
    queue: str
    request: dict[str, str]
    starts_now: bool
    promise: StartView | None
    why_no_promise: str
    binds: str
    """The reason why the job would wait; empty when the job would start now."""
    costs: list[str]
    """The jobs that would be evicted or delayed for the job, one sentence for each."""
    advice: list[Advice]
    summary: str
    complete: bool = True
    """False: time ran out. Promise, costs and advice are missing or not complete."""
