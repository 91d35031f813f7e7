"""What ``muster doctor`` says of the accounts of an installed Muster: each right that one lacks, and the way out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kit.deployed import Object, objects
from muster.core.workloads.registry import KINDS
from muster.model import api
from muster.ports import ApiResponse
from muster_cli.rolechecks import ACTUATOR, APPLY, Account, Need, needs, role_findings

Rule = tuple[str, str, str, str, str]
"""(verb, API group, resource, namespace or "", name or "")"""


def given() -> dict[Account, set[Rule]]:
    """What ``deploy/rbac`` gives each account, right by right."""
    found: dict[Account, set[Rule]] = {}
    shipped = objects("rbac")
    roles = {(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each for each in shipped}
    for binding in (each for each in shipped if each["kind"].endswith("Binding")):
        where = binding["metadata"].get("namespace", "")
        role = roles[binding["roleRef"]["kind"], where, binding["roleRef"]["name"]]
        for subject in (each for each in binding["subjects"] if each["kind"] == "ServiceAccount"):
            rights = found.setdefault(Account(subject["name"], subject["namespace"]), set())
            rights |= {rule for each in role["rules"] for rule in _rules(each, where)}
    return found


def _rules(rule: Object, namespace: str) -> list[Rule]:
    return [
        (verb, group, resource, namespace, name)
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
    ]


def as_rule(need: Need, rights: set[Rule]) -> Rule:
    """The right that covers a need; one that is given everywhere covers a namespace."""
    resource = f"{need.resource.plural}/{need.part}" if need.part else need.resource.plural
    own = (need.verb, need.resource.group, resource, need.namespace, need.name)
    return own if own in rights else (*own[:3], "", need.name)


class Server:
    """Answers as an API server whose accounts have these rights."""

    def __init__(self, rights: dict[Account, set[Rule]], *, asked: int = 201, installed: bool = True) -> None:
        self._rights = {f"system:serviceaccount:{each.namespace}:{each.name}": rights[each] for each in rights}
        self._asked, self._installed = asked, installed

    async def request(self, method: str, path: str, *, body: bytes = b"", **_: Any) -> ApiResponse:
        if method == "GET":
            assert path == "/api/v1/namespaces/muster-system/serviceaccounts/muster-actuator"
            return ApiResponse(200 if self._installed else 404, b"{}")
        assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        if self._asked != 201:
            return ApiResponse(self._asked, b'{"message": "no"}')
        spec = json.loads(body)["spec"]
        asked = spec["resourceAttributes"]
        resource = "/".join(part for part in (asked["resource"], asked["subresource"]) if part)
        allowed = any(
            (asked["verb"], asked["group"], resource, namespace, name) in self._rights.get(spec["user"], set())
            for namespace in {asked["namespace"], ""}
            for name in {asked["name"], ""}
        )
        return ApiResponse(201, json.dumps({"status": {"allowed": allowed}}).encode())


async def test_what_is_given_is_enough() -> None:
    [found] = await role_findings(Server(given()))  # type: ignore[arg-type]
    assert (found.grade, found.title) == ("ok", "roles")


def test_every_right_that_is_given_is_asked_for_and_no_other() -> None:
    rights = given()
    wanted = {account: {as_rule(each, rights[account]) for each in found} for account, found in needs().items()}
    assert wanted.keys() == rights.keys()
    for account, found in wanted.items():
        assert found == rights[account], account


@pytest.mark.parametrize("account", list(needs()), ids=str)
async def test_each_right_that_is_missing_is_named_with_the_command(account: Account) -> None:
    for need in needs()[account]:
        rights = given()
        gone = as_rule(need, rights[account])
        rights[account] -= {gone, (*gone[:3], "", gone[4])}
        [found] = await role_findings(Server(rights))  # type: ignore[arg-type]
        assert (found.grade, found.fix) == ("bad", APPLY), need
        assert str(account) in found.detail and str(need.resource) in found.detail and need.verb in found.detail


async def test_an_account_without_a_role_is_told_in_one_line() -> None:
    [found] = await role_findings(Server(given() | {ACTUATOR: set()}))  # type: ignore[arg-type]
    assert " more: its role is older than this version" in found.detail and len(found.detail) < 700


async def test_kinds_that_are_off_need_no_right() -> None:
    rights = given()
    kinds = [kind for kind in KINDS if KINDS[kind].resource.group != "kubeflow.org" and kind != "AppWrapper"]
    for account in rights:
        rights[account] = {rule for rule in rights[account] if rule[1] != "kubeflow.org"}
    assert [each.grade for each in await role_findings(Server(rights), kinds)] == ["ok"]  # type: ignore[arg-type]
    assert [each.grade for each in await role_findings(Server(rights))] == ["bad", "bad"]  # type: ignore[arg-type]


async def test_where_muster_is_not_installed_nothing_is_said() -> None:
    assert await role_findings(Server({}, installed=False)) == []  # type: ignore[arg-type]


async def test_who_may_not_ask_is_told_so() -> None:
    [found] = await role_findings(Server({}, asked=403))  # type: ignore[arg-type]
    assert (found.grade, found.title) == ("note", "roles")
    assert "subjectaccessreviews" in found.fix


def test_a_need_reads_as_a_right() -> None:
    assert str(Need("patch", api.KAI_QUEUES, "status")) == "patch queues.scheduling.run.ai/status"
    assert str(Need("get", api.LEASES, "", "muster-system", "muster")) == (
        "get leases.coordination.k8s.io muster in namespace muster-system"
    )
