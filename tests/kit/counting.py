"""Counts the requests that are made through a transport, by what they are for.

Told apart by what a request says, not by who claims to have made it: a patch that resumes a job is the decision path,
every other write is presentation. All of them are counted when they are made, whatever becomes of them.
"""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Any

from muster.kube.paths import describe
from muster.model.api import JSON_PATCH, RAYJOBS
from muster.ports import ApiResponse, ApiTransport
from muster.runtime.clusterlease import NAMESPACE
from muster.told.wording import explain

UNIT_SUFFIX = "-ray-qu"
PASSING = re.compile(f"it is evaluated soon$|^{re.escape(explain.being_started().text)}$")


class Counting:
    """An ApiTransport."""

    def __init__(self, transport: ApiTransport) -> None:
        self._transport = transport
        self.decision: Counter[str] = Counter()
        """namespace/name of a job -> patches that resume it"""
        self.fenced: Counter[str] = Counter()
        """namespace/name of a job -> patches among these that are refused, as it was edited since it was read"""
        self.shown: Counter[str] = Counter()
        """namespace/name of a job -> writes that show something of it"""
        self.told: Counter[str] = Counter()
        """namespace/name of a job -> Events among these"""
        self.passing: Counter[str] = Counter()
        """namespace/name of a job -> writes among these that show it where nobody stays: between two stages"""
        self.kept: Counter[str] = Counter()
        """`verb path` of what is written for the cell as a whole"""
        self.leased: Counter[str] = Counter()
        """`verb resource` of what keeps the lease of the cluster"""
        self.read: Counter[str] = Counter()
        """`verb resource`"""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float = 10.0,
    ) -> ApiResponse:
        resumed = self._count(method, path, body, content_type)
        answer = await self._transport.request(
            method, path, query=query, body=body, content_type=content_type, timeout_s=timeout_s
        )
        if resumed and answer.status == HTTPStatus.UNPROCESSABLE_ENTITY:
            self.fenced[resumed] += 1
        return answer

    def watch(self, path: str, *, query: Mapping[str, str], idle_limit_s: float) -> AsyncIterator[bytes]:
        self.read[" ".join(describe("GET", path, watch=True))] += 1
        return self._transport.watch(path, query=query, idle_limit_s=idle_limit_s)

    def _count(self, method: str, path: str, body: bytes | None, content_type: str) -> str:
        """Returns namespace/name of the job that a patch resumes; empty for any other request."""
        verb, resource = describe(method, path)
        if f"/{NAMESPACE}" in path or (method == "POST" and resource == "namespaces"):
            self.leased[f"{verb} {resource}"] += 1
            return ""
        if method == "GET":
            self.read[f"{verb} {resource}"] += 1
            return ""
        found: Any = json.loads(body or b"{}")
        parts = path.split("/")
        where = parts[parts.index("namespaces") + 1] if "namespaces" in parts[:-1] else ""
        kind = resource.partition(".")[0].partition("/")[0]
        if kind == RAYJOBS.plural:
            job = f"{where}/{parts[-1]}"
            resumes = content_type == JSON_PATCH and any(step["path"] == "/spec/suspend" for step in found)
            (self.decision if resumes else self.shown)[job] += 1
            return job if resumes else ""
        if kind == "queueunits":
            name = found.get("metadata", {}).get("name") or parts[parts.index("queueunits") + 1]
            job = f"{where}/{name.removesuffix(UNIT_SUFFIX)}"
            self.shown[job] += 1
            status = found.get("status") or {}
            if status.get("phase") == "Enqueued" and PASSING.search(status.get("message", "")):
                self.passing[job] += 1
        elif kind == "events":
            about = found["involvedObject"]
            for counter in (self.shown, self.told):
                counter[f"{about['namespace']}/{about['name']}"] += 1
        else:
            self.kept[f"{method} {path}"] += 1
        return ""
