"""A head's dashboard over HTTP, for heads without reachable gRPC: the text of `ray status` and two lists.

Four requests and text where gRPC needs one call: a fallback. The dashboard shows the same demand, without the labels
by which some demand chooses its nodes, and without the autoscaler's activity.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import aiohttp
import msgspec
from msgspec import Struct, field

from muster.model.raydemand import RayShape
from muster.ray.decoding import HEAD_RESOURCE, placement_groups
from muster.ray.errors import (
    DemandError,
    GarbledError,
    RefusedError,
    SlowError,
    TooLargeError,
    UnreachableError,
    UnsupportedError,
)
from muster.ray.reading import RayNode, Reading, Status
from muster.ray.shapes import bundle, group_of, shapes
from muster.ray.statustext import WaitingGroups, parse_status

TIMEOUT_S = 10.0
"""Of one request: the dashboard asks the head in turn, and every agent for some."""
ANSWER_LIMIT_BYTES = 16 * 1024 * 1024
MAX_ROWS = 10_000
"""What a dashboard lists at most."""

_WAITING = "filter_keys=state&filter_predicates=!%3D&filter_values="
_STATUS = "/api/cluster_status?format=1"
_GROUPS = f"/api/v0/placement_groups?detail=1&limit={MAX_ROWS}&{_WAITING}CREATED&{_WAITING}REMOVED"
_ACTORS = f"/api/v0/actors?detail=1&limit={MAX_ROWS}&filter_keys=state&filter_predicates=%3D&filter_values=ALIVE"
_NODES = "/nodes?view=summary"
_TOTALS = f"/api/v0/nodes?detail=1&limit={MAX_ROWS}"


class _Text(Struct, rename="camel"):
    cluster_status: str | None = None


class _Bundle(Struct):
    unit_resources: dict[str, float] = field(default_factory=dict)
    node_id: str | None = None


class _Group(Struct):
    placement_group_id: str
    bundles: list[_Bundle] | None = None


class _Actor(Struct):
    node_id: str | None = None


class _Totals(Struct):
    node_id: str
    resources_total: dict[str, float] = field(default_factory=dict)


class _Snapshot(Struct, rename="camel"):
    state: str = ""
    idle_duration_ms: str | int = "0"
    node_activity: list[str] | None = None


class _Raylet(Struct, rename="camel"):
    node_id: str = ""
    instance_id: str = ""
    node_type_name: str = ""
    state: str = ""
    is_head_node: bool = False
    session_dir: str = ""
    state_snapshot: _Snapshot = field(default_factory=_Snapshot)


class _Node(Struct):
    raylet: _Raylet = field(default_factory=_Raylet)


class _Summary(Struct):
    summary: list[_Node]


Row = TypeVar("Row")
_STATES: dict[str, Status] = {"IDLE": "idle", "DRAINING": "draining"}


class DashboardClient:
    """The dashboard of a head. A DemandSource; belongs to the event loop that first calls it.

    ``url``: ``http://host:8265``; ``token``: empty if the head asks for none; ``timeout_s``: of each request.
    """

    def __init__(self, url: str, *, token: str = "", timeout_s: float = TIMEOUT_S) -> None:
        self._url = url.rstrip("/")
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def read(self) -> Reading:
        """What the head says now. Raises DemandError."""
        text = parse_status((await self._get(_STATUS, _Text)).cluster_status or "")
        waiting = await self._list(_GROUPS, _Group)
        nodes = (await self._get(_NODES, _Summary)).summary
        totals = {row.node_id: row.resources_total for row in await self._list(_TOTALS, _Totals)}
        actors = await self._living()
        unplaced = {group.placement_group_id: _unplaced(group) for group in waiting}
        groups, left_out = placement_groups(
            (name, _strategy(bundles, text.groups), bundles) for name, bundles in unplaced.items()
        )
        living = [node.raylet for node in nodes if node.raylet.state == "ALIVE"]
        return Reading(
            session=next((node.session_dir.rpartition("/")[2] for node in living if node.is_head_node), ""),
            version="",
            pending=text.waiting,
            placement_groups=groups,
            explicit=text.requested,
            nodes=tuple(
                sorted((_node(node, totals.get(node.node_id, {})) for node in living), key=lambda node: node.id)
            ),
            launching=_launching(text.launching, text.coming),
            actors_on=actors,
            left_out=text.left_out + left_out,
        )

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _living(self) -> frozenset[str] | None:
        """Ids of the nodes with actors; None if unknown: a hint, and its absence costs nothing else."""
        try:
            return frozenset(row.node_id for row in await self._list(_ACTORS, _Actor) if row.node_id)
        except DemandError:
            return None

    async def _list(self, path: str, row: type[Row]) -> list[Row]:
        """Rows of the state API. Raises DemandError, also where the dashboard cut the list."""
        answer = await self._get(path, dict[str, Any])
        result = answer.get("result")
        if not isinstance(result, dict):
            raise GarbledError(f"{self._url}{path}: a list without a result")
        if result.get("partial_failure_warning"):
            raise GarbledError(f"{self._url}{path}: half an answer: {str(result['partial_failure_warning'])[:200]}")
        return self._converted(path, result.get("result"), list[row])  # type: ignore[valid-type]

    async def _get(self, path: str, wanted: type[Row]) -> Row:
        body = await self._body(path)
        try:
            answer = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError) as err:
            raise GarbledError(f"{self._url}{path}: {body[:80]!r} is not JSON: {err}") from err
        if not isinstance(answer, dict) or answer.get("result") is not True:
            message = answer.get("msg", "") if isinstance(answer, dict) else answer
            raise GarbledError(f"{self._url}{path}: no result: {str(message)[:200]}")
        return self._converted(path, answer.get("data"), wanted)

    def _converted(self, path: str, value: object, wanted: type[Row]) -> Row:
        try:
            return msgspec.convert(value, wanted, strict=False)
        except msgspec.ValidationError as err:
            raise GarbledError(f"{self._url}{path}: another form than expected: {err}") from err

    async def _body(self, path: str) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(headers=self._headers, trust_env=False)
        url = self._url + path
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                # A redirect would carry the token elsewhere.
                self._session.get(url, allow_redirects=False) as response,
            ):
                body = await _limited(response, url)
                status = response.status
        except TimeoutError as err:
            raise SlowError(f"{url}: no answer within {self._timeout_s:g} s") from err
        except (aiohttp.ClientError, OSError, ValueError) as err:
            raise UnreachableError(f"{url}: {type(err).__name__}: {err}") from err
        if status != 200:
            kind: type[DemandError] = GarbledError
            if status in (401, 403):
                kind = RefusedError
            elif status in (301, 302, 307, 308, 404, 405):
                kind = UnsupportedError
            elif status >= 500:
                kind = UnreachableError
            raise kind(f"{url}: answered {status}: {body[:200]!r}")
        return body


async def _limited(response: aiohttp.ClientResponse, url: str) -> bytes:
    """The body. Raises TooLargeError."""
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_chunked(256 * 1024):
        parts.append(part)
        size += len(part)
        if size > ANSWER_LIMIT_BYTES:
            raise TooLargeError(f"{url}: more than {ANSWER_LIMIT_BYTES // 1024 // 1024} MiB")
    return b"".join(parts)


def _strategy(bundles: list[RayShape], told: list[WaitingGroups]) -> str:
    """The strategy of a waiting group, missing in the list: by its bundles from the text, which has a group of each
    strategy.

    Where the text leaves several strategies, PACK: the fewest workers; missing workers show the next time.
    """
    shape, _ = shapes(bundles)
    alike = {group.strategy for group in told if group.bundles == shape} or {group.strategy for group in told}
    return alike.pop() if len(alike) == 1 else "PACK"


def _unplaced(group: _Group) -> list[RayShape]:
    return [RayShape(bundle(entry.unit_resources)) for entry in group.bundles or [] if not entry.node_id]


def _node(raylet: _Raylet, totals: dict[str, float]) -> RayNode:
    snapshot = raylet.state_snapshot
    try:
        idle = int(snapshot.idle_duration_ms)
    except ValueError as err:
        raise GarbledError(f"node {raylet.node_id}: idle for {snapshot.idle_duration_ms!r} ms") from err
    return RayNode(
        id=raylet.node_id,
        pod=raylet.instance_id,
        group=raylet.node_type_name,
        status=_STATES.get(snapshot.state, "running"),
        idle_ms=idle,
        head=raylet.is_head_node or HEAD_RESOURCE in totals,
        holds=tuple(sorted({held for name in totals if (held := group_of(name)) is not None})),
        activity=tuple(snapshot.node_activity or ()),
    )


def _launching(asked: dict[str, int], coming: dict[str, tuple[str, str]]) -> dict[str, int]:
    counts = dict(asked)
    for group, _state in coming.values():
        counts[group] = counts.get(group, 0) + 1
    return counts
