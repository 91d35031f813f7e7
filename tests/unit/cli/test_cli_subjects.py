"""Which subjects ``muster doctor`` names as those that may pass by the queue, and how it judges an attempt."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from muster.ports import ApiResponse
from muster_cli.attacks import Attempt, attempts, judged
from muster_cli.subjects import POWERS, holders

GLASS, STATUS, POLICIES = POWERS


def rule(group: str, resource: str, *verbs: str, **more: Any) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [resource], "verbs": [*verbs], **more}


def binding(role: str, user: str, namespace: str = "") -> dict[str, Any]:
    meta = {"name": role, **({"namespace": namespace} if namespace else {})}
    ref = {"kind": "ClusterRole", "name": role}
    return {"metadata": meta, "roleRef": ref, "subjects": [{"kind": "User", "name": user}]}


ROLES: dict[tuple[str, str, str], list[Any]] = {
    ("ClusterRole", "", "all"): [rule("*", "*", "*")],
    ("ClusterRole", "", "acts"): [rule("", "groups", "impersonate", resourceNames=["muster:break-glass"])],
    ("ClusterRole", "", "operates"): [rule("ray.io", "*/status", "patch")],
    ("ClusterRole", "", "one"): [rule("", "groups", "impersonate", resourceNames=["x"])],
    ("ClusterRole", "", "edits"): [rule("batch", "jobs", "update", "patch")],
    ("ClusterRole", "", "guards"): [rule("admissionregistration.k8s.io", "validatingadmissionpolicies", "delete")],
}
BINDINGS = [
    binding("all", "root"),
    binding("all", "local", "video"),
    binding("acts", "bob"),
    binding("operates", "ray"),
    binding("one", "eve"),
    binding("edits", "alice", "video"),
    binding("guards", "carol"),
    binding("none", "dave"),
]


def test_subjects_are_named_with_where_they_may() -> None:
    assert [*holders(GLASS, ROLES, BINDINGS)] == ["User root", "User bob"]
    assert [*holders(STATUS, ROLES, BINDINGS)] == ["User root", "User local in namespace video", "User ray"]
    assert [*holders(POLICIES, ROLES, BINDINGS)] == ["User root", "User carol"]


class Answers:
    def __init__(self, status: int, body: object) -> None:
        self._answer = ApiResponse(status, msgspec.json.encode(body))
        self.queries: list[Any] = []

    async def request(self, _method: str, _path: str, *, query: Any, **_: Any) -> ApiResponse:
        self.queries.append(query)
        return self._answer


@pytest.mark.parametrize(
    ("status", "body", "verdict"),
    [
        (403, {"message": "ValidatingAdmissionPolicy 'muster-pods' with binding denied request"}, "guarded"),
        (403, {"message": "User alice cannot create resource pods"}, "no_right"),
        (422, {"message": "spec is invalid"}, "untried"),
        (201, {"spec": {"suspend": True}}, "guarded"),
        (201, {"spec": {"suspend": False}}, "passed"),
    ],
)
async def test_an_attempt_is_a_dry_run_and_judged_by_its_answer(status: int, body: object, verdict: str) -> None:
    server = Answers(status, body)
    found, _ = await judged(server, Attempt("x", "POST", "/x", {}, "/spec/suspend"))  # type: ignore[arg-type]
    assert (found, server.queries) == (verdict, [{"dryRun": "All"}])


def test_what_is_there_is_attacked_in_its_state() -> None:
    pod = {"template": {"spec": {"containers": [{"name": "main"}]}}}
    meta = {"namespace": "video", "name": "mine"}
    for waits, word in ((True, "start Job mine"), (False, "enlarge Job mine, which runs")):
        there = {"Job": {"metadata": meta, "spec": {"suspend": waits, **pod}}}
        made = [*attempts("video", "text", there)]
        assert word in [each.what for each in made]
        assert "create a Job in quota text" in [each.what for each in made]
