"""A small Kubernetes client for tests: plain HTTP, objects as dicts, errors with the full answer.

It deliberately shares nothing with the product's client, so a fault there cannot hide here.
"""

import asyncio
import io
import json
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp
from multidict import CIMultiDict

from kit.deployed import every
from kit.waiting import until

#: A Kubernetes object as JSON has it.
Object = dict[str, Any]

#: Seconds until a request counts as failed.
REQUEST_TIMEOUT_S = 30.0
#: What says that a server cannot answer yet; how often, and after how many seconds, it is asked again.
LATER, TRIES, RETRY_S = (429, 503), 30, 1.0
#: Seconds that a kind may take to be served after its definition was created.
DISCOVERY_TIMEOUT_S = 60.0

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class ApiError(Exception):
    """The API server refused a request. `status` is the HTTP status, `body` the Status object."""

    def __init__(self, method: str, path: str, status: int, body: Object) -> None:
        self.status = status
        self.body = body
        #: Machine reason such as `AlreadyExists`; empty when the server gave none.
        self.reason = str(body.get("reason", ""))
        super().__init__(f"{method} {path}: {status} {self.reason}: {body.get('message', body)}")


class KubeClient:
    """Talks to one API server as one user. `async with KubeClient(...) as kube`.

    Kinds are found by discovery, so any installed kind works. `namespace` is left out for objects
    of the cluster. Every method raises ApiError when the server refuses, and aiohttp.ClientError
    when there is none.
    """

    def __init__(self, url: str, *, token: str, ca_file: Path, acts_as: tuple[str, ...] = ()) -> None:
        """``acts_as``: user and groups, as ``kubectl --as --as-group`` has it."""
        self._url = url
        self._tls = ssl.create_default_context(cafile=ca_file)
        self._headers = CIMultiDict({"Authorization": f"Bearer {token}"})
        for user, *groups in [acts_as] if acts_as else []:
            self._headers.extend([("Impersonate-User", user), *(("Impersonate-Group", group) for group in groups)])
        self._session: aiohttp.ClientSession | None = None
        #: (apiVersion, kind) -> (plural name, whether it lives in namespaces).
        self._kinds: dict[tuple[str, str], tuple[str, bool]] = {}
        self.warnings: list[str] = []
        """What kubectl shows beside the answers: each header in turn."""

    async def __aenter__(self) -> "KubeClient":
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=100),
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """Send one request and return the answer; `{"text": ...}` when that is not JSON.

        A server that asks to come again later (429, 503), as while its caches fill or while what changes objects has
        not learned of a new definition, is asked again, as every client does.
        """
        for _ in range(TRIES):
            try:
                return await self._send(method, path, body, params, content_type)
            except ApiError as err:
                if err.status not in LATER:
                    raise
            await asyncio.sleep(RETRY_S)
        return await self._send(method, path, body, params, content_type)

    async def _send(
        self, method: str, path: str, body: Any, params: Mapping[str, str] | None, content_type: str
    ) -> Object:
        assert self._session is not None, "use the client inside `async with`"
        async with self._session.request(
            method,
            self._url + path,
            data=None if body is None else io.BytesIO(json.dumps(body).encode()),
            params=params,
            headers={"Content-Type": content_type},
        ) as response:
            text = await response.text()
            self.warnings += response.headers.getall("Warning", [])
            is_json = response.content_type.endswith("json")
            answer: Object = json.loads(text) if is_json else {"text": text, "message": text}
            if response.status >= 400:
                raise ApiError(method, path, response.status, answer)
            return answer

    async def create(self, manifest: Object) -> Object:
        """Create an object and return it as stored. 409 when it exists."""
        path = await self._path_of(manifest, with_name=False)
        return await self.request("POST", path, body=manifest)

    async def apply(self, manifest: Object, *, field_manager: str = "test-kit") -> Object:
        """Create or change an object by server-side apply, taking over contested fields."""
        return await self.request(
            "PATCH",
            await self._path_of(manifest),
            body=manifest,
            params={"fieldManager": field_manager, "force": "true"},
            content_type=APPLY_PATCH,
        )

    async def apply_yaml(self, text: str, *, namespace: str | None = None) -> list[Object]:
        """Apply every document of a YAML text in order; `namespace` is for those that name none."""
        applied = []
        for manifest in every(text):
            if not manifest:
                continue
            _, namespaced = await self._resource(manifest["apiVersion"], manifest["kind"])
            if namespace is not None and namespaced:
                manifest["metadata"].setdefault("namespace", namespace)
            applied.append(await self.apply(manifest))
        return applied

    async def replace(self, manifest: Object, *, subresource: str = "") -> Object:
        """Write a whole object. 409 when its resourceVersion is no longer the newest."""
        path = await self._path_of(manifest)
        return await self.request("PUT", _join(path, subresource), body=manifest)

    async def put(self, manifest: Object) -> Object:
        """Create an object, or write the whole object over the present one."""
        meta = manifest["metadata"]
        present = await self.find(manifest["apiVersion"], manifest["kind"], meta["name"], meta.get("namespace"))
        if present is None:
            return await self.create(manifest)
        version = present["metadata"]["resourceVersion"]
        return await self.replace({**manifest, "metadata": {**meta, "resourceVersion": version}})

    async def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object:
        """One object. 404 when there is none."""
        return await self.request("GET", await self._path(api_version, kind, namespace, name))

    async def find(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """One object, or None when there is none."""
        try:
            return await self.get(api_version, kind, name, namespace)
        except ApiError as err:
            if err.status == 404:
                return None
            raise

    async def list_objects(
        self,
        api_version: str,
        kind: str,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
    ) -> Sequence[Object]:
        """Objects of one namespace, or of all when None. `labels`, `fields`: selectors as text."""
        chosen = {"labelSelector": labels, "fieldSelector": fields}
        path = await self._path(api_version, kind, namespace)
        params = {key: value for key, value in chosen.items() if value}
        items: Sequence[Object] = (await self.request("GET", path, params=params))["items"]
        return items

    async def patch(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str | None = None,
        *,
        patch: Object | Sequence[Object],
        subresource: str = "",
    ) -> Object:
        """Change an object: a dict is a merge patch, a list a JSON patch.

        422 when a `test` of a JSON patch fails.
        """
        path = await self._path(api_version, kind, namespace, name)
        content_type = MERGE_PATCH if isinstance(patch, Mapping) else JSON_PATCH
        return await self.request("PATCH", _join(path, subresource), body=patch, content_type=content_type)

    async def delete(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        grace_s: int | None = None,
        propagation: str = "Background",
    ) -> Object:
        """Delete an object. 404 when there is none, 409 when it does not have `uid`."""
        options: Object = {"propagationPolicy": propagation}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        path = await self._path(api_version, kind, namespace, name)
        return await self.request("DELETE", path, body=options)

    async def _path_of(self, manifest: Object, *, with_name: bool = True) -> str:
        meta = manifest["metadata"]
        name = meta["name"] if with_name else ""
        return await self._path(manifest["apiVersion"], manifest["kind"], meta.get("namespace"), name)

    async def _path(self, api_version: str, kind: str, namespace: str | None, name: str = "") -> str:
        plural, namespaced = await self._resource(api_version, kind)
        if namespaced and namespace is None and name:
            raise ValueError(f"cannot reach {kind} {name}: it lives in a namespace; say which")
        where = f"namespaces/{namespace}" if namespaced and namespace is not None else ""
        return _join(_root(api_version), where, plural, name)

    async def _resource(self, api_version: str, kind: str) -> tuple[str, bool]:
        """(plural name, whether namespaced). Waits a little, as for a definition just created."""

        async def known() -> tuple[str, bool] | None:
            try:
                found = await self.request("GET", _root(api_version))
            except ApiError as err:
                if err.status == 404:
                    return None
                raise
            for entry in found["resources"]:
                if "/" not in entry["name"]:
                    self._kinds[api_version, entry["kind"]] = (entry["name"], entry["namespaced"])
            return self._kinds.get((api_version, kind))

        if (api_version, kind) not in self._kinds:
            what = f"kind {kind} of {api_version} to be served (is its definition installed?)"
            await until(known, DISCOVERY_TIMEOUT_S, what=what)
        return self._kinds[api_version, kind]


def condition(found: Object, kind: str) -> Object:
    """The status condition of that type, empty when the object has none (yet)."""
    conditions: Sequence[Object] = found.get("status", {}).get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == kind), {})


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def _join(*parts: str) -> str:
    return "/".join(part for part in parts if part)
