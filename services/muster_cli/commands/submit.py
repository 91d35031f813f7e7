"""``muster submit``."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from muster.kube.objects import decode_status
from muster.model.api import ApiResource
from muster.model.language import say
from muster.ports import ApiResponse, ApiTransport
from muster_cli.api import api_of
from muster_cli.console import Output
from muster_cli.exits import FAILED, FORBIDDEN, NOT_FOUND, OK, USAGE, CliError
from muster_cli.manifests import Manifest, read_manifests
from muster_cli.options import ClusterOption
from muster_cli.textfiles import text_of

MAX_TIMES = 10_000


async def submit(
    file: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="YAML file, several documents if you like; - for stdin.")
    ],
    /,
    *,
    times: Annotated[int, Parameter(help="How often to create it; more than once needs generateName.")] = 1,
    cluster: ClusterOption | None = None,
) -> int:
    """Create the objects of a file."""
    if not 1 <= times <= MAX_TIMES:
        raise CliError(
            say("--times is {times}; take a number from 1 to {max_times}", times=times, max_times=MAX_TIMES), USAGE
        )
    manifests = read_manifests(text_of(file), "stdin" if file == "-" else file)
    if times > 1 and any(manifest.name for manifest in manifests):
        named = next(str(manifest) for manifest in manifests if manifest.name)
        raise CliError(
            say("{named} has a name and can be created only once; use generateName with --times", named=named), USAGE
        )
    out = Output()
    async with api_of(cluster, simulated_only=True) as api:
        if api is None:
            raise CliError(
                say("no demo is running to submit to: start one with `muster up`, or name a cluster with --context"),
                NOT_FOUND,
            )
        kinds = Kinds(api.transport)
        worst = OK
        for _ in range(times):
            for manifest in manifests:
                worst = max(worst, await _create(api.transport, kinds, manifest, out))
    return worst


async def _create(transport: ApiTransport, kinds: Kinds, manifest: Manifest, out: Output) -> int:
    resource = await kinds.find(manifest)
    namespace = (manifest.namespace or "default") if resource.namespaced else ""
    answer = await transport.request("POST", resource.path(namespace), body=msgspec.json.encode(manifest.body))
    if answer.ok:
        meta = msgspec.json.decode(answer.body)["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
        out.line(say("{kind} {key} created", kind=manifest.kind, key=key))
        return OK
    out.note(say("muster submit: {manifest} was refused: {refusal}", manifest=manifest, refusal=_refusal(answer)))
    return {401: FORBIDDEN, 403: FORBIDDEN}.get(answer.status, FAILED)


def _refusal(answer: ApiResponse) -> str:
    return decode_status(answer.body).message or f"HTTP {answer.status}"


class Kinds:
    """Which resource a kind is served as, asked of the server once per group version."""

    def __init__(self, transport: ApiTransport) -> None:
        self._transport = transport
        self._known: dict[tuple[str, str], ApiResource] = {}

    async def find(self, manifest: Manifest) -> ApiResource:
        """Raises CliError for a kind the server does not have."""
        key = (manifest.api_version, manifest.kind)
        if key not in self._known:
            await self._ask(manifest.api_version)
        if key not in self._known:
            raise CliError(
                say(
                    "{manifest} cannot be created: the server has no kind {kind} in {group}",
                    manifest=manifest,
                    kind=key[1],
                    group=key[0],
                ),
                NOT_FOUND,
            )
        return self._known[key]

    async def _ask(self, api_version: str) -> None:
        group, _, version = api_version.rpartition("/")
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        answer = await self._transport.request("GET", root)
        if not answer.ok:
            return
        entries: list[dict[str, Any]] = msgspec.json.decode(answer.body).get("resources") or []
        for entry in entries:
            if "/" not in entry["name"]:
                resource = ApiResource(group, version, entry["name"], entry["kind"], entry.get("namespaced", True))
                self._known[api_version, entry["kind"]] = resource
