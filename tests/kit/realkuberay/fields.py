"""The edits of `kit.rayfields` on the real operator, without Muster: what it makes of each, in numbers.

All objects of a kind live at once, a namespace for each state. The test admits what is suspended, as Muster would.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from kit.cluster import RAY
from kit.compose import REPOSITORY
from kit.kubeclient import ApiError
from kit.rayfieldsplayed import STATES, Row, clusters_of, edit_of, made, pods_of, rows
from kit.realkuberay.cluster import RealKubeRay

Object = dict[str, Any]
FOLDER = REPOSITORY / "tests" / "kit" / "records" / "rayfields"
QUIET_S, AT_MOST_S = 12.0, 150.0
BEGUN = {"runs": ("Running", "ready", "Ready"), "over": ("Complete",), "serves": ("Running",)}


class Seen(Struct, frozen=True, omit_defaults=True):
    """What the real operator made of an edit. Pods and RayClusters: (before, still there after, after)."""

    pods: tuple[int, int, int] = (0, 0, 0)
    clusters: tuple[int, int, int] = (0, 0, 0)
    word: str = ""
    """``status.jobDeploymentStatus`` of a RayJob, after the edit."""
    admitted: int = 0
    """Pods after the admission of one that the edit suspended."""
    refused: str = ""
    """The API server's reason not to take the edit."""
    dropped: bool = False
    """The definition of the release has no such field."""


def path_of(version: str) -> Path:
    return FOLDER / f"{version}.json"


def recorded(version: str) -> dict[str, Seen]:
    """{name of the row: what was seen}"""
    return msgspec.json.decode(path_of(version).read_bytes(), type=dict[str, Seen])


def keep(version: str, seen: dict[str, Seen]) -> None:
    """Write what was seen over what the record has of these rows."""
    known = recorded(version) if path_of(version).exists() else {}
    known |= seen
    names = [row.name for row in rows() if row.name in known]
    FOLDER.mkdir(exist_ok=True)
    lines = [f"{json.dumps(name)}: {msgspec.json.encode(known[name]).decode()}" for name in names]
    path_of(version).write_text("{\n" + ",\n".join(lines) + "\n}\n")


class Play:
    """All rows of a kind in a state, in a namespace."""

    def __init__(self, cluster: RealKubeRay, kind: str, state: str) -> None:
        self.cluster, self.kube, self.kind, self.state = cluster, cluster.kube, kind, state
        self.namespace = f"{kind}-{state}".lower()
        mine = [row for row in rows() if (row.kind, row.state) == (kind, state)]
        self.rows = {f"f-{state}-{number}": row for number, row in enumerate(mine)}
        self._listed: tuple[list[Object], ...] = ([], [], [])

    async def played(self) -> dict[str, Seen]:
        meta = {"name": self.namespace}
        with contextlib.suppress(ApiError):
            await self.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
        for name in self.rows:
            await self.kube.create(self._object(name))
        await self.cluster.until(self._begun, AT_MOST_S, f"the objects of {self.namespace} to begin", every_s=1.0)
        await self._quiet()
        before = {name: self._things(name) for name in self.rows}
        refused = {name: await self._edited(name, row) for name, row in self.rows.items()}
        dropped = {name: not refused[name] and await self._lacks(name, row) for name, row in self.rows.items()}
        if self.state == "waits":
            await asyncio.sleep(3.0)
            await self._admit(self.rows)
        await self._quiet()
        after = {name: self._things(name) for name in self.rows}
        words = {name: self._word(name) for name in self.rows}
        suspended = [name for name in self.rows if self.state != "waits" and self._body(name)["spec"].get("suspend")]
        if suspended:
            await self._admit(suspended)
            await self._quiet()
        return {
            row.name: Seen(
                pods=_compared(before[name][0], after[name][0]),
                clusters=_compared(before[name][1], after[name][1]),
                word=words[name],
                admitted=len(self._things(name)[0]) if name in suspended else 0,
                refused=refused[name],
                dropped=dropped[name],
            )
            for name, row in self.rows.items()
        }

    # --- the objects ---------------------------------------------------------------------------------------------

    def _object(self, name: str) -> Object:
        body = made(self.kind, name, over=self.state == "over", namespace=self.namespace)
        spec = body["spec"]
        if self.kind == "RayService":
            spec["serveConfigV2"] = "applications:\n- {name: app, import_path: a.b}\n"
            spec["rayClusterDeletionDelaySeconds"] = 2
        spec |= {"suspend": True} if self.state == "waits" else {}
        if self.state != "waits":
            spec.pop("suspend", None)
        return body

    async def _edited(self, name: str, row: Row) -> str:
        try:
            await self.kube.patch(RAY, self.kind, name, self.namespace, patch=[edit_of(row.field)])
        except ApiError as err:
            return str(err.body.get("message", err.reason)).partition(": ")[2].partition("\n")[0][:160]
        return ""

    async def _lacks(self, name: str, row: Row) -> bool:
        if row.field.value is None:
            return False
        at: Any = (await self.kube.get(RAY, self.kind, name, self.namespace))["spec"]
        for step in row.field.path.replace("[0]", ".0").split("."):
            at = at[int(step)] if isinstance(at, list) else at.get(step)
            if at is None:
                return True
        return False

    async def _admit(self, names: Any) -> None:
        for name in names:
            with contextlib.suppress(ApiError):
                await self.kube.patch(RAY, self.kind, name, self.namespace, patch={"spec": {"suspend": False}})

    # --- what is seen --------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        self._listed = (
            await self.kube.list_objects(RAY, self.kind, self.namespace),
            await self.kube.list_objects(RAY, "RayCluster", self.namespace),
            await self.kube.list_objects("v1", "Pod", self.namespace),
        )

    def _body(self, name: str) -> Object:
        return next((body for body in self._listed[0] if body["metadata"]["name"] == name), {"spec": {}})

    def _things(self, name: str) -> tuple[set[str], set[str]]:
        clusters = clusters_of(self._listed[1], name)
        return {pod["metadata"]["uid"] for pod in pods_of(self._listed[2], clusters)}, clusters

    def _word(self, name: str) -> str:
        return str((self._body(name).get("status") or {}).get("jobDeploymentStatus", ""))

    async def _begun(self) -> bool:
        await self._look()
        if self.state == "waits":
            return all(self._waits(body) for body in self._listed[0])
        if any(len(self._things(name)[0]) < 3 for name in self.rows):
            return False
        if self.kind == "RayJob":
            return all(self._word(name) in BEGUN[self.state] for name in self.rows)
        if self.kind == "RayService":
            found = [(body.get("status") or {}).get("activeServiceStatus") or {} for body in self._listed[0]]
            return all(status.get("rayClusterName") for status in found)
        return all((body.get("status") or {}).get("state") == "ready" for body in self._listed[0])

    def _waits(self, body: Object) -> bool:
        status = body.get("status") or {}
        shown = [status.get("jobDeploymentStatus"), status.get("state")]
        shown += [each["type"] for each in status.get("conditions", ()) if each["status"] == "True"]
        return bool({"Suspended", "suspended", "RayClusterSuspended"} & set(shown))

    async def _quiet(self) -> None:
        """Until nothing of it changes any more."""
        last, since, began = "", time.monotonic(), time.monotonic()
        while time.monotonic() - since < QUIET_S and time.monotonic() - began < AT_MOST_S:
            await self._look()
            now = json.dumps([[sorted(self._things(name)[0]), sorted(self._things(name)[1]), self._word(name)]
                              for name in self.rows])  # fmt: skip
            if now != last:
                last, since = now, time.monotonic()
            await asyncio.sleep(1.0)


def _compared(before: set[str], after: set[str]) -> tuple[int, int, int]:
    return len(before), len(before & after), len(after)


def lasts(job: str) -> float:
    """How long a Ray job runs: by the name of its RayJob."""
    return 2.0 if job.startswith("f-over") else 1e9


async def all_states(cluster: RealKubeRay, kind: str, wanted: Callable[[str], bool]) -> dict[str, Seen]:
    """{name of the row: what was seen}, of a kind in every state that a release has."""
    plays = [Play(cluster, kind, state) for state in STATES[kind] if wanted(state)]
    seen = await asyncio.gather(*(play.played() for play in plays))
    return {name: one for each in seen for name, one in each.items()}
