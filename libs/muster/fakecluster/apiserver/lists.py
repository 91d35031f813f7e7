"""Lists: selection, pages, and the state at an older version.

A page's continue token has the version at which the list began, and the key to continue after; later pages are read
from the state at this version, so a list in pages shows a single moment. When the version is forgotten the answer is
410 with a token for the present state, as on a real server.
"""

from __future__ import annotations

import base64
import binascii
import json
from bisect import bisect_right
from collections.abc import Mapping

from muster.fakecluster.apiserver.selectors import parse_selectors
from muster.fakecluster.apiserver.status import Obj, StatusError, bad_request, expired, too_new
from muster.fakecluster.apiserver.store import Key, KindTable, Store

INCONSISTENT = -1
"""Version in a token that goes on from the present state."""


def list_objects(store: Store, table: KindTable, namespace: str, query: Mapping[str, str]) -> Obj:
    """The List object that answers a GET of a collection; an empty namespace means all of them."""
    matches = parse_selectors(query, table.kind.fields)
    version, objects, start = _state(store, table, query)
    prefix = f"{namespace}/"
    keys = sorted(key for key in objects if not namespace or key.startswith(prefix))
    if start:
        keys = keys[bisect_right(keys, start) :]
    if matches is not None:
        keys = [key for key in keys if matches(objects[key])]
    meta: Obj = {"resourceVersion": str(version)}
    limit = _limit(query)
    if limit and len(keys) > limit:
        meta["continue"] = _token(version, keys[limit - 1])
        if matches is None:
            meta["remainingItemCount"] = len(keys) - limit
        keys = keys[:limit]
    resource = table.kind.resource
    return {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": meta,
        "items": [objects[key] if table.kind.custom else _untyped(objects[key]) for key in keys],
    }


def wanted_version(query: Mapping[str, str]) -> int | None:
    """The ``resourceVersion`` of a request; None when it names none."""
    text = query.get("resourceVersion", "")
    if not text:
        return None
    try:
        version = int(text)
    except ValueError:
        version = -1
    if version < 0:
        raise StatusError(500, "", f'resourceVersion: Invalid value: "{text}": must be a whole number')
    return version


def _untyped(obj: Obj) -> Obj:
    """Objects of built-in kinds do not say in lists what they are."""
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}


def _state(store: Store, table: KindTable, query: Mapping[str, str]) -> tuple[int, dict[Key, Obj], Key]:
    """(version of the list, objects to choose from, key to begin after)."""
    token = query.get("continue", "")
    if token:
        version, start = _read_token(token)
        if version == INCONSISTENT:
            return store.version, table.objects, start
        try:
            return version, table.at(version), start
        except StatusError as err:
            raise _restart(err, start) from None
    version_wanted = wanted_version(query)
    if version_wanted is not None and version_wanted > store.version:
        raise too_new(version_wanted, store.version)
    if query.get("resourceVersionMatch") == "Exact" and version_wanted:
        return version_wanted, table.at(version_wanted), ""
    return store.version, table.objects, ""


def _limit(query: Mapping[str, str]) -> int:
    try:
        return int(query.get("limit") or 0)
    except ValueError:
        raise bad_request(f"limit: {query['limit']!r} is not a number") from None


def _token(version: int, start: Key) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": start})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, Key]:
    try:
        position = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(position["rv"]), str(position["start"])
    except (ValueError, KeyError, TypeError, binascii.Error):
        raise bad_request("invalid continue token: continue key is not valid") from None


def _restart(cause: StatusError, start: Key) -> StatusError:
    refusal = expired(f"the continue token is too old for a consistent list: {cause.message}")
    refusal.body["metadata"] = {"continue": _token(INCONSISTENT, start)}
    return refusal
