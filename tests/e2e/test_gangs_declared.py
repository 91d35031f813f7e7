"""Gang declarations on a real API server: what it takes, what it refuses, and that we read what it stored."""

from __future__ import annotations

import msgspec
import pytest

from kit.api import Api, Object, real_api
from kit.words import in_words
from muster.core.gang.declare import declare, read_pod_group
from muster.model.api import NAMESPACES, POD_GROUPS, PODS, ApiResource

__all__ = ["real_api"]

NAMESPACE = "gangs-declared"
GROUP = '["gangs-declared/gang-example1", "gangs-declared/gang-example2"]'
GROUPS_KEY = "pod-group.scheduling.sigs.k8s.io/groups"


@pytest.fixture
async def api(real_api: Api) -> Api:
    answer = await real_api.call("POST", NAMESPACES.path(), {"metadata": {"name": NAMESPACE}})
    assert answer.status in (201, 409), answer
    return real_api


def pod(**metadata: object) -> Object:
    spec = {"containers": [{"name": "main", "image": "example.invalid/none"}], "automountServiceAccountToken": False}
    return {"metadata": {"generateName": "gang-", **metadata}, "spec": spec}


@pytest.mark.parametrize("resource", POD_GROUPS, ids=lambda each: each.group)
async def test_a_pod_group_is_stored_and_read(api: Api, resource: ApiResource) -> None:
    body = {
        "apiVersion": resource.api_version,
        "kind": "PodGroup",
        "metadata": {"generateName": "nginx-", "annotations": {GROUPS_KEY: GROUP}},
        "spec": {"minMember": 3, "scheduleTimeoutSeconds": 10, "minResources": {"cpu": "3", "memory": 1}},
    }
    answer = await api.call("POST", resource.path(NAMESPACE), body)
    assert answer.status == 201, answer
    found = read_pod_group(msgspec.json.encode(answer.body))
    assert (found.minimum, found.timeout_s, found.annotations) == (3, 10, {GROUPS_KEY: GROUP})


async def test_a_minimum_below_one_is_refused_by_the_server_or_by_us(api: Api) -> None:
    for resource, status in zip(POD_GROUPS, (201, 422), strict=True):
        body = {"metadata": {"generateName": "none-"}, "spec": {"minMember": 0}}
        body |= {"apiVersion": resource.api_version, "kind": "PodGroup"}
        answer = await api.call("POST", resource.path(NAMESPACE), body)
        assert answer.status == status, answer
        if status == 201:
            name = answer.body["metadata"]["name"]
            labels = {"pod-group.scheduling.sigs.k8s.io": name}
            told = declare(NAMESPACE, labels, {}, read_pod_group(msgspec.json.encode(answer.body)))
            assert told is not None
            assert in_words(told.refusal) == f"spec.minMember: PodGroup {NAMESPACE}/{name} says 0; write 1 or more"


async def test_the_list_of_a_gang_group_cannot_be_a_label(api: Api) -> None:
    answer = await api.call("POST", PODS.path(NAMESPACE), pod(labels={GROUPS_KEY: GROUP}))
    assert answer.status == 422, answer
    assert "metadata.labels" in str(answer.body)


async def test_as_an_annotation_it_is_stored_and_read(api: Api) -> None:
    labels = {
        "pod-group.scheduling.sigs.k8s.io/name": "gang-example1",
        "pod-group.scheduling.sigs.k8s.io/min-available": "2",
        "pod-group.scheduling.sigs.k8s.io/match-policy": "waiting-and-running",
    }
    answer = await api.call("POST", PODS.path(NAMESPACE), pod(labels=labels, annotations={GROUPS_KEY: GROUP}))
    assert answer.status == 201, answer
    stored = answer.body["metadata"]
    told = declare(NAMESPACE, stored["labels"], stored["annotations"])
    assert told is not None
    assert (told.minimum, told.policy, told.refusal, told.complaints) == (2, "waiting-and-running", None, ())
    assert told.group == ("gangs-declared/gang-example1", "gangs-declared/gang-example2")
