"""The rights of the accounts of an installed Muster: roles of an older version lack rights that this version needs.

The API server judges each account, so any role may give a right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from typing import NamedTuple

from muster.core.actuation.patches import GROUPS
from muster.core.objects.gpushares import RESERVATIONS
from muster.core.reading.watched import WATCHED, shards_of
from muster.core.workloads.registry import KINDS
from muster.events.subjects import DEFAULT_CELL
from muster.kube.discovery import can_i
from muster.model import api
from muster.model.api import ApiResource
from muster.model.language import listed, say
from muster.model.text import counted
from muster.ports import ApiStatusError, ApiTransport
from muster.runtime.pairing import KNOWN_BY
from muster.runtime.witness import name_of
from muster_cli.findings import Finding

SYSTEM = "muster-system"
"""Where ``deploy`` puts the accounts."""
LEASE = "muster"
ACCOUNTS = ApiResource("", "v1", "serviceaccounts", "ServiceAccount")
APPLY = "kubectl apply -k deploy/rbac"
SHOWN = 12


class Need(NamedTuple):
    """A right that an account needs."""

    verb: str
    resource: ApiResource
    part: str = ""
    """Of the resource: ``status``; empty: the resource itself."""
    namespace: str = ""
    """Empty: in all of them."""
    name: str = ""
    """The only object it is needed for; empty: any."""

    def __str__(self) -> str:
        """``delete pods in namespace muster-gpu-reservations``, ``patch queues.scheduling.run.ai/status``."""
        detail = f"{self.verb} {self.resource}{f'/{self.part}' if self.part else ''}"
        return " ".join(
            (
                detail,
                *([self.name] if self.name else ()),
                *([say("in namespace {namespace}", namespace=self.namespace)] if self.namespace else ()),
            )
        )


WHICH_CLUSTER = Need("get", api.NAMESPACES, name=KNOWN_BY)


class Account(NamedTuple):
    """An account of ``deploy/rbac``."""

    name: str
    namespace: str = SYSTEM

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


WATCHER, ACTUATOR = Account("muster-watcher"), Account("muster-actuator")
GATEWAY = Account("muster-gateway")
REVIEWS = (
    ApiResource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview"),
    ApiResource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview"),
)
RESERVATION = Account("muster-gpu-reservation", RESERVATIONS)


READ = ("get", "list", "watch")


def needs(kinds: Collection[str] = KINDS) -> dict[Account, list[Need]]:
    """The needs of each account for these kinds of workloads: equal to ``deploy/rbac`` (a test keeps both equal)."""
    return {
        WATCHER: [*_watcher(kinds)],
        ACTUATOR: [*_actuator(kinds)],
        GATEWAY: [*(Need("create", resource) for resource in REVIEWS), WHICH_CLUSTER],
        RESERVATION: [Need("patch", api.PODS, namespace=RESERVATIONS)],
    }


def _watcher(kinds: Collection[str]) -> Iterator[Need]:
    for row in (WATCHED[shard] for shard in shards_of(kinds)):
        yield from (Need(verb, row.resource, "", row.namespace, row.name) for verb in READ)
    yield from (Need(verb, added) for added in (api.LIMIT_RANGES, api.RUNTIME_CLASSES) for verb in READ)
    yield from (WHICH_CLUSTER, Need("list", api.CRDS))
    yield from _record()


def _record() -> Iterator[Need]:
    """The record of the log: of the cell that ``deploy`` is for."""
    yield Need("create", api.LEASES)
    yield from (Need(verb, api.LEASES, "", SYSTEM, name_of(DEFAULT_CELL)) for verb in ("get", "update"))


def _actuator(kinds: Collection[str]) -> Iterator[Need]:
    writes = {
        **{KINDS[kind].resource: "get patch" for kind in kinds},
        api.PODS: "get list delete patch",
        api.DISRUPTION_BUDGETS: "list",
        api.CONFIG_MAPS: "create patch",
        api.PROVISIONING_REQUESTS: "create delete",
        api.POD_TEMPLATES: "create delete",
        GROUPS: "create delete get",
        api.QUEUES: "create delete patch",
        api.QUEUE_UNITS: "create patch",
        api.QUOTA_TREES: "list patch watch",
        api.KAI_POD_GROUPS: "create list patch watch",
        api.EVENTS: "create list patch",
        **dict.fromkeys(api.POD_GROUPS, "create delete patch"),
        api.NAMESPACES: "create",
    }
    for resource, verbs in writes.items():
        yield from (Need(verb, resource) for verb in verbs.split())
    yield from (Need(verb, api.LEASES, "", SYSTEM, LEASE) for verb in ("get", "update"))
    yield from _record()
    yield WHICH_CLUSTER
    yield Need("create", api.PODS, "binding")
    yield Need("create", api.PODS, "eviction")
    shown = (api.QUEUES, api.QUEUE_UNITS, api.QUOTA_TREES, api.KAI_QUEUES, api.KAI_POD_GROUPS, *api.POD_GROUPS)
    yield from (Need("patch", resource, "status") for resource in (*shown, api.PODS))
    yield from (Need(verb, api.PODS, "", RESERVATIONS) for verb in ("create", "delete"))


async def role_findings(transport: ApiTransport, kinds: Collection[str] = KINDS) -> list[Finding]:
    """What the accounts lack; nothing where Muster is not installed. Raises ApiUnreachableError."""
    installed = await transport.request("GET", ACCOUNTS.path(ACTUATOR.namespace, ACTUATOR.name))
    if installed.status == 404:
        return []
    findings, checked = [], 0
    try:
        for account, wanted in needs(kinds).items():
            lacks = await _lacks(transport, account, wanted)
            checked += len(wanted)
            if lacks:
                findings.append(Finding("bad", say("roles"), _said(account, lacks), APPLY))
    except ApiStatusError as err:
        detail = say("what the accounts of Muster may do cannot be asked: {err}", err=err)
        return [
            Finding(
                "note", say("roles"), detail, say("grant it: verb create on subjectaccessreviews.authorization.k8s.io")
            )
        ]
    return findings or [
        Finding("ok", say("roles"), say("{rights} that the accounts of Muster need", rights=counted(checked, "right")))
    ]


def _said(account: Account, lacks: list[Need]) -> str:
    named = listed(str(lack) for lack in lacks[:SHOWN])
    more = say(" and {number} more", number=len(lacks) - SHOWN) if len(lacks) > SHOWN else ""
    return say(
        "account {account} may not {named}{more}: its role is older than this version, or was changed",
        account=account,
        named=named,
        more=more,
    )


async def _lacks(transport: ApiTransport, account: Account, wanted: list[Need]) -> list[Need]:
    user = f"system:serviceaccount:{account.namespace}:{account.name}"
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{account.namespace}", "system:authenticated")
    answers = await asyncio.gather(
        *(
            can_i(
                transport,
                need.verb,
                need.resource,
                need.namespace,
                name=need.name,
                subresource=need.part,
                user=user,
                groups=groups,
            )
            for need in wanted
        )
    )
    return [need for need, answer in zip(wanted, answers, strict=True) if not answer.allowed]
