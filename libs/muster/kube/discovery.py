"""Questions about the API server itself: served resources, version, our rights.

Asked at start-up and by ``muster doctor``; every call is one request, nothing is cached. All raise ApiStatusError for
an answer that is neither yes nor no, and ApiUnreachableError without an answer.
"""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec
from msgspec import Struct

from muster.kube.objects import decode_status
from muster.model.api import ApiResource
from muster.model.language import say
from muster.ports import ApiResponse, ApiStatusError, ApiTransport

T = TypeVar("T")

ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
REVIEWS_OF_OTHERS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class ServerVersion(Struct, frozen=True, order=True):
    """``ServerVersion(1, 34, "v1.34.4")``; providers' suffixes are cut from the numbers."""

    major: int
    minor: int
    git: str = ""


class Access(Struct, frozen=True):
    """Whether we may, and the authorizer's words for it (often empty)."""

    allowed: bool
    reason: str = ""


class _Served(Struct):
    name: str = ""


class _ResourceList(Struct):
    resources: list[_Served] | None = None


class _Version(Struct, rename="camel"):
    major: str = ""
    minor: str = ""
    git_version: str = ""


class _ReviewStatus(Struct, rename="camel"):
    allowed: bool = False
    reason: str = ""
    evaluation_error: str = ""


class _Review(Struct):
    status: _ReviewStatus


async def served(transport: ApiTransport, resource: ApiResource) -> bool:
    """Whether the server has this resource in this version."""
    return resource.plural in await served_names(transport, resource)


async def has_status_subresource(transport: ApiTransport, resource: ApiResource) -> bool:
    """Whether the status is written apart from the spec. False also for a resource that is not served."""
    return f"{resource.plural}/status" in await served_names(transport, resource)


async def server_version(transport: ApiTransport) -> ServerVersion:
    """The version of the server that answered; a rolling upgrade may show others a moment later."""
    answer = await transport.request("GET", "/version")
    version = decode_answer(answer, _Version)
    return ServerVersion(_number(version.major), _number(version.minor), version.git_version)


async def can_i(
    transport: ApiTransport,
    verb: str,
    resource: ApiResource,
    namespace: str = "",
    *,
    name: str = "",
    subresource: str = "",
    user: str = "",
    groups: tuple[str, ...] = (),
) -> Access:
    """Whether we have the right; an empty namespace asks about all namespaces, an empty name about any object.

    ``user``, ``groups``: ask about another user; this takes a right of its own.
    """
    attributes = {
        "verb": verb,
        "group": resource.group,
        "version": resource.version,
        "resource": resource.plural,
        "subresource": subresource,
        "namespace": namespace,
        "name": name,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview" if user else "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes, **({"user": user, "groups": groups} if user else {})},
    }
    path = REVIEWS_OF_OTHERS if user else ACCESS_REVIEWS
    answer = await transport.request("POST", path, body=msgspec.json.encode(review))
    status = decode_answer(answer, _Review).status
    return Access(status.allowed, status.reason or status.evaluation_error)


async def served_names(transport: ApiTransport, resource: ApiResource) -> set[str]:
    """Resources and ``resource/subresource`` of the group version; none when it is not served."""
    answer = await transport.request("GET", resource.root)
    if answer.status == 404:
        return set()
    return {entry.name for entry in decode_answer(answer, _ResourceList).resources or []}


def decode_answer(answer: ApiResponse, kind: type[T]) -> T:
    """The body of an answer. Raises ApiStatusError for a refusal, and for a body of another shape."""
    if not answer.ok:
        status = decode_status(answer.body)
        message = status.message or answer.body[:200].decode(errors="replace")
        after = answer.retry_after_s if answer.retry_after_s is not None else status.retry_after_s
        raise ApiStatusError(answer.status, message, after)
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except ValueError as err:
        raise ApiStatusError(answer.status, say("the answer is not what Kubernetes sends: {err}", err=err)) from err


def _number(text: str) -> int:
    """The digits at the start, as in ``28+``; 0 when there are none."""
    digits = re.match(r"\d+", text)
    return int(digits[0]) if digits else 0
