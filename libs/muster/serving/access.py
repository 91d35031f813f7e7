"""The user of a request, and the rights of the user: the API server decides both, by TokenReview and
SubjectAccessReview.

The right to see the jobs of a namespace is the right to list the pods of the namespace: pods already show the jobs. The
right to see nodes is the right to list nodes. Answers are remembered for a short time, also the answer to a bad token.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, field

from muster.ports import ApiTransport, ApiUnreachableError, Clock
from muster.serving.scope import EVERYTHING, Scope

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
REMEMBERED_MS = 60_000
MOST_REMEMBERED = 4_096
AT_ONCE = 8
"""Questions to the API server at once."""


class SignedIn(Struct, frozen=True):
    """As TokenReview says."""

    username: str = ""
    uid: str = ""
    groups: list[str] = field(default_factory=list)
    extra: dict[str, list[str]] = field(default_factory=dict)


class Viewed(Struct, frozen=True):
    """The user of a request, and what this user may see."""

    name: str
    scope: Scope


class DeniedError(Exception):
    """A request without a token, or with a token that the API server does not know."""


class UndecidedError(Exception):
    """The API server cannot be asked: nothing is shown."""


class _Token(Struct):
    authenticated: bool = False
    user: SignedIn = SignedIn()
    error: str = ""


class _Allowed(Struct):
    allowed: bool = False


S = TypeVar("S", bound=Struct)


class _ReviewObject(Struct):
    status: msgspec.Raw = msgspec.Raw(b"{}")


class _Remembered:
    """Answers for a while, the oldest forgotten first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[Any, tuple[int, Any]] = OrderedDict()

    def get(self, key: Any) -> Any:
        until, value = self._kept.get(key, (0, None))
        return value if until > self._clock.now() else None

    def put(self, key: Any, value: Any) -> None:
        self._kept[key] = (self._clock.now() + REMEMBERED_MS, value)
        self._kept.move_to_end(key)
        while len(self._kept) > MOST_REMEMBERED:
            self._kept.popitem(last=False)


class Unrestricted:
    """For a local demo on loopback: every reader sees everything."""

    async def viewed(self, _authorization: str, _namespaces: Iterable[str]) -> Viewed:
        return Viewed("", EVERYTHING)


class Reviewed:
    """By an API server."""

    def __init__(self, transport: ApiTransport, clock: Clock) -> None:
        self._transport = transport
        self._users = _Remembered(clock)
        self._rights = _Remembered(clock)
        self._busy = asyncio.Semaphore(AT_ONCE)

    async def viewed(self, authorization: str, namespaces: Iterable[str]) -> Viewed:
        """The user, and the visible part of ``namespaces``, the namespaces with objects. Raises DeniedError,
        UndecidedError.
        """
        user = await self._user(authorization)
        if await self._may(user, "pods", ""):
            return Viewed(user.username, Scope(None, cluster=await self._may(user, "nodes", "")))
        names = sorted(set(namespaces))
        allowed = await asyncio.gather(*(self._may(user, "pods", name) for name in names))
        seen = frozenset(name for name, may in zip(names, allowed, strict=True) if may)
        return Viewed(user.username, Scope(seen, cluster=await self._may(user, "nodes", "")))

    async def _user(self, authorization: str) -> SignedIn:
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise DeniedError("sign in with a token of this cluster: `kubectl create token NAME` makes one")
        key = hashlib.sha256(token.strip().encode()).digest()
        known: SignedIn | None = self._users.get(key)
        if known is None:
            spec = {"token": token.strip()}
            review = await self._ask(REVIEWS, "authentication.k8s.io/v1", "TokenReview", spec, _Token)
            known = review.user if review.authenticated else SignedIn()
            self._users.put(key, known)
        if not known.username:
            raise DeniedError("this cluster does not know the token: it may be over; make a new one")
        return known

    async def _may(self, user: SignedIn, resource: str, namespace: str) -> bool:
        key = (user.username, tuple(user.groups), resource, namespace)
        known: bool | None = self._rights.get(key)
        if known is None:
            spec = {
                "user": user.username,
                "uid": user.uid,
                "groups": user.groups,
                "extra": user.extra,
                "resourceAttributes": {"verb": "list", "resource": resource, "namespace": namespace},
            }
            review = await self._ask(ACCESS, "authorization.k8s.io/v1", "SubjectAccessReview", spec, _Allowed)
            known = review.allowed
            self._rights.put(key, known)
        return known

    async def _ask(self, path: str, version: str, kind: str, spec: dict[str, Any], status: type[S]) -> S:
        body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
        try:
            async with self._busy:
                answer = await self._transport.request("POST", path, body=body)
        except ApiUnreachableError as err:
            raise UndecidedError(
                "the API server did not answer when asked about your token; try again in a moment"
            ) from err
        if answer.status in (401, 403):
            raise UndecidedError(
                f"the gateway may not ask the API server about you (HTTP {answer.status} on a {kind}): its own account "
                "takes the rights of ClusterRole muster-gateway, deploy/rbac/gateway.yaml"
            )
        if not answer.ok:
            raise UndecidedError(f"the API server did not answer a {kind} (HTTP {answer.status}); see the log")
        try:
            return msgspec.json.decode(msgspec.json.decode(answer.body, type=_ReviewObject).status, type=status)
        except msgspec.DecodeError as err:
            raise UndecidedError(f"the API server's answer to a {kind} cannot be read; see the log") from err
