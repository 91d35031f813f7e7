"""Annotations on objects of the API server: the author, and the one patch that writes annotations."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from typing import Any

import msgspec

from muster.core.actuation.patches import pointer
from muster.kube.objects import decode_status
from muster.model.api import JSON_PATCH, ApiResource
from muster.model.keys import Ref
from muster.model.language import say
from muster.model.text import clean
from muster.ports import ApiResponse, ApiTransport
from muster_cli.api import Api
from muster_cli.exits import FAILED, FORBIDDEN, NOT_FOUND, CliError
from muster_cli.options import ClusterOption

SELF_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
MAX_TEXT = 200
"""Characters of an author or a reason that are kept."""


def patch_of(meta: Mapping[str, Any], uid: str, wanted: Mapping[str, str | None]) -> list[dict[str, Any]]:
    """The JSON patch that sets annotations, or removes annotations (None), of exactly the object that was read.

    An object without annotations gets its first annotations only if the object has not changed meanwhile.
    """
    present: Mapping[str, str] | None = meta.get("annotations")
    patch: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": uid}]
    if present is None:
        patch.append({"op": "test", "path": "/metadata/resourceVersion", "value": meta.get("resourceVersion")})
        patch.append({"op": "add", "path": "/metadata/annotations", "value": {}})
    for key, value in wanted.items():
        path = pointer(key)
        if value is not None:
            patch.append({"op": "add", "path": path, "value": value})
        elif key in (present or {}):
            patch.append({"op": "remove", "path": path})
    return patch


async def annotations_of(transport: ApiTransport, resource: ApiResource, ref: Ref) -> dict[str, Any]:
    """The metadata of the present object. Raises CliError if the object is gone, or is another object of that name."""
    answer = await transport.request("GET", resource.path(ref.namespace, ref.name))
    if not answer.ok:
        raise refusal(answer, say("read {kind} {key}", kind=ref.kind, key=ref.key))
    meta: dict[str, Any] = msgspec.json.decode(answer.body)["metadata"]
    if meta.get("uid") != ref.uid:
        raise CliError(
            say(
                "{kind} {key} on the server is not the one in the log (uid {uid}): is this the right cluster?",
                kind=ref.kind,
                key=ref.key,
                uid=ref.uid,
            ),
            NOT_FOUND,
        )
    return meta


async def annotate(
    transport: ApiTransport, resource: ApiResource, ref: Ref, meta: Mapping[str, Any], wanted: Mapping[str, str | None]
) -> int:
    """Write annotations; returns the resourceVersion that brings. Raises CliError when the server refuses."""
    body = msgspec.json.encode(patch_of(meta, ref.uid, wanted))
    path = resource.path(ref.namespace, ref.name)
    answer = await transport.request("PATCH", path, body=body, content_type=JSON_PATCH)
    if not answer.ok:
        raise refusal(answer, say("change {kind} {key}", kind=ref.kind, key=ref.key))
    return int(msgspec.json.decode(answer.body)["metadata"]["resourceVersion"])


def refusal(answer: ApiResponse, attempted: str) -> CliError:
    """Why the server did not do something, as an error of the command."""
    message = decode_status(answer.body).message or f"HTTP {answer.status}"
    code = {401: FORBIDDEN, 403: FORBIDDEN, 404: NOT_FOUND}.get(answer.status, FAILED)
    return CliError(say("cannot {attempted}: {message}", attempted=attempted, message=message), code)


async def author(api: Api, cluster: ClusterOption | None, environ: Mapping[str, str] = os.environ) -> str:
    """The author of a change: as the server knows us, else the user of the kubeconfig, else of this machine."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = await api.transport.request("POST", SELF_REVIEWS, body=msgspec.json.encode(review))
    if answer.ok:
        status = msgspec.json.decode(answer.body).get("status") or {}
        if name := (status.get("userInfo") or {}).get("username"):
            return short(str(name))
    return short(_context_user(api, cluster, environ) or user_here(environ))


def user_here(environ: Mapping[str, str]) -> str:
    """The user of this process: USER or LOGNAME, else by the user database, else ``uid N``."""
    for name in ("USER", "LOGNAME"):
        if environ.get(name):
            return environ[name]
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return say("uid {getuid} (set USER to give a name)", getuid=os.getuid())


def _context_user(api: Api, cluster: ClusterOption | None, environ: Mapping[str, str]) -> str:
    """The name of the user entry of the context in use; empty for the demo and inside a pod."""
    from muster.kube import kubeconfig
    from muster.kube.errors import KubeConfigError

    if api.simulated:
        return ""
    cluster = cluster or ClusterOption()
    try:
        read = kubeconfig.read(kubeconfig.locate(cluster.kubeconfig or "", environ))
    except (KubeConfigError, OSError):
        return ""
    return str(read.contexts.get(cluster.context or read.current, {}).get("user") or "")


def short(text: str) -> str:
    """A text as it is stored: one harmless line."""
    return clean(" ".join(text.split()))[:MAX_TEXT]
