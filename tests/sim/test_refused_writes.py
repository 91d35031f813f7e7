"""Writes that the API server refuses again and again: they hold up nobody else, whatever the refusal says."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kit.shell import Cell, play, small_job, small_tree
from muster.ports import ApiResponse, ApiTransport
from muster.runtime.runners import acting

Refusal = Callable[[str, str], ApiResponse | None]
"""Of a method and a path."""


class Refusing:
    """A transport on which some requests are refused."""

    def __init__(self, inner: ApiTransport, refusal: Refusal) -> None:
        self._inner, self._refusal = inner, refusal
        self.watch = inner.watch

    async def request(self, method: str, path: str, **options: Any) -> ApiResponse:
        refused = self._refusal(method, path)
        return refused or await self._inner.request(method, path, **options)


class RefusingCell(Cell):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__()
        self._refusal = refusal

    def _transport(self) -> Any:
        return Refusing(super()._transport(), self._refusal)


def status(code: int, message: str) -> ApiResponse:
    return ApiResponse(code, json.dumps({"kind": "Status", "message": message}, ensure_ascii=False).encode())


def test_what_is_forbidden_for_one_job_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "MAX_IN_FLIGHT", 2)
    refused: list[str] = []

    def refusal(method: str, path: str) -> ApiResponse | None:
        if method != "PATCH" or "/rayjobs/forbidden-" not in path:
            return None
        refused.append(path)
        return status(403, 'rayjobs.ray.io is forbidden: User "muster" cannot patch resource "rayjobs"')

    async def scene(cell: Cell) -> None:
        cell.create(small_tree())
        for number in range(3):
            cell.create(small_job(f"forbidden-{number}", cpu="1", memory="500M", runtime="99h"))
        await cell.until(lambda: len(set(refused)) == 3, what="all three to be tried")
        cell.create(small_job("allowed", cpu="1", memory="500M", runtime="99h"))
        await cell.until(lambda: cell.jobs()["allowed"] == "Running", what="the job that is allowed to run")

    play(RefusingCell(refusal), scene)


def test_a_refusal_in_any_script_ends_no_process() -> None:
    def refusal(method: str, path: str) -> ApiResponse | None:
        odd = method == "POST" and "/queueunits" in path
        # Whatever is cut off of it, and wherever.
        return status(422, "".join("é" * number + "x" for number in range(60))) if odd else None

    cell = RefusingCell(refusal)

    async def scene(cell: Cell) -> None:
        cell.create(small_tree())
        cell.create(small_job("first", cpu="1", memory="500M", runtime="99h"))
        await cell.until(lambda: cell.jobs()["first"] == "Running", what="the job to run")

    play(cell, scene)
    assert cell.starts["presenter"] == 1
