"""Every right that a team may give, one by one: what it allows, and that it allows nothing else."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from kit.cluster import RAY
from kit.controlplane import ControlPlane
from kit.guarded import CAROL, ERIN, MANAGED, NO_SUBMIT, change, client, job, remove
from kit.kubeclient import ApiError, KubeClient, Object
from kit.waiting import until

RBAC = "rbac.authorization.k8s.io"
QUOTA = "quota.scheduling.alibabacloud.com/name"
Act = Callable[[KubeClient, Object], Awaitable[Object]]


def marks(**said: str | None) -> Object:
    return {"metadata": {"annotations": {f"muster.dev/{key.replace('_', '-')}": text for key, text in said.items()}}}


ACTS: dict[str, tuple[Act, set[str]]] = {
    "names the quota of another team": (
        lambda kube, made: change(kube, made, {"metadata": {"labels": {QUOTA: NO_SUBMIT}}}),
        {"submit"},
    ),
    "lowers a priority": (lambda kube, made: change(kube, made, marks(priority="3")), {"set-priority"}),
    "raises a priority": (
        lambda kube, made: change(kube, made, marks(priority="11")),
        {"set-priority", "jump"},
    ),
    "releases what Carol holds": (lambda kube, made: change(kube, made, marks(hold=None)), {"hold"}),
    "starts it": (
        lambda kube, made: change(
            kube, made, {"spec": {"suspend": False}, **marks(changed_by=ERIN.name, change_reason="it cannot wait")}
        ),
        set(),
    ),
}
"""{what Erin does: (how, which rights allow it)}"""
VERBS = ("submit", "set-priority", "jump", "hold", "")


@pytest_asyncio.fixture(params=VERBS)
async def right(plane: ControlPlane, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """One right of Erin's in namespace video; empty: none."""
    verb: str = request.param
    name, meta = "one-right", {"name": "one-right", "namespace": MANAGED}
    rule = {"apiGroups": ["queues.muster.dev"], "resources": ["queues"], "verbs": [verb]}
    async with client(plane, plane.admin) as admin:
        if verb:
            role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]}
            await admin.create(role)
            await admin.create(
                {
                    "apiVersion": f"{RBAC}/v1",
                    "kind": "RoleBinding",
                    "metadata": meta,
                    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
                    "subjects": [{"apiGroup": RBAC, "kind": "User", "name": ERIN.name}],
                }
            )
        await _known(plane, verb)
        yield verb
        if verb:
            await admin.delete(f"{RBAC}/v1", "RoleBinding", name, MANAGED)
            await admin.delete(f"{RBAC}/v1", "ClusterRole", name)


async def _known(plane: ControlPlane, verb: str) -> None:
    """The server hears of a right, and that one is taken away, a moment later."""
    async with client(plane, ERIN) as erin:

        async def told() -> bool:
            found = set()
            for each in VERBS[:-1]:
                asked = {"group": "queues.muster.dev", "resource": "queues", "verb": each, "namespace": MANAGED}
                review = {
                    "apiVersion": "authorization.k8s.io/v1",
                    "kind": "SelfSubjectAccessReview",
                    "spec": {"resourceAttributes": asked},
                }
                where = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
                if (await erin.request("POST", where, body=review))["status"]["allowed"]:
                    found.add(each)
            return found == ({verb} - {""})

        await until(told, what=f"Erin to have {verb or 'no right'}")


async def test_a_right_allows_what_it_is_for_and_nothing_else(plane: ControlPlane, right: str) -> None:
    async with client(plane, ERIN) as erin, client(plane, CAROL) as carol:
        allowed, expected = set(), {what for what, (_, rights) in ACTS.items() if right in rights}
        for what, (act, _) in ACTS.items():
            made = await erin.create(job(suspend=True))
            held = marks(hold="true", changed_by=CAROL.name)
            await change(carol, made, held if "holds" in what else marks(priority="9"))
            try:
                await act(erin, made)
                allowed.add(what)
            except ApiError as err:
                assert err.status == 403, err
                assert "ValidatingAdmissionPolicy 'muster-jobs'" in str(err), err
            await remove(carol, made)
        assert allowed == expected
        assert not [each for each in await erin.list_objects(RAY, "RayJob", MANAGED) if not each["spec"]["suspend"]]
