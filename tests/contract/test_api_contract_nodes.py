"""What nodes are asked for with, on the simulated API server and a real one: PodTemplates and ProvisioningRequests."""

from __future__ import annotations

from kit.api import COLLECTED_S, Api
from kit.nodes import ATOMIC
from kit.waiting import until
from muster.core.actuation.provisioning import pod_spec
from muster.model.api import CONFIG_MAPS, POD_TEMPLATES, PROVISIONING_REQUESTS
from muster.model.placing import HOSTNAME, HostPort, NodeTerm, PodRules, PodTerm, Requirement, Spread, Toleration
from muster.model.workload import PodSet

SAME = (Requirement("app", "In", ("a",)),)
RULES = PodRules(
    labels={"app": "a"},
    node_labels={"disk": "ssd"},
    tolerations=(Toleration("gpu", "Exists"), Toleration("a", "Equal", "b", "NoSchedule")),
    nodes=(NodeTerm(labels=(Requirement("zone", "In", ("x",)),), names=(Requirement("metadata.name", "In", ("n",)),)),),
    together=(PodTerm("zone", SAME, everywhere=True),),
    apart=(PodTerm(HOSTNAME, SAME, ("video",)),),
    spread=(Spread("zone", 1, SAME, domains=2),),
    ports=(HostPort(80), HostPort(53, "UDP", "10.0.0.1")),
)
WHOLE = PodSet("worker", 2, {"cpu": 1500, "memory": 1 << 30, "nvidia.com/gpu": 2000, "pods": 0}, RULES)


async def test_a_request_and_its_templates_are_made_and_removed(api: Api) -> None:
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod_spec(WHOLE)}
    made = await api.create(POD_TEMPLATES, {"metadata": {"name": "r-0"}, "template": template})
    assert made["metadata"]["generation"] == 1
    spec = {"provisioningClassName": ATOMIC, "podSets": [{"podTemplateRef": {"name": "r-0"}, "count": 2}]}
    request = await api.create(PROVISIONING_REQUESTS, {"metadata": {"name": "r"}, "spec": spec})
    again = {"apiVersion": PROVISIONING_REQUESTS.api_version, "kind": "ProvisioningRequest", **request}
    again["metadata"] = {"name": "r"}
    answer = await api.call("POST", api.path(PROVISIONING_REQUESTS), again)
    assert answer.said == (409, "AlreadyExists")
    assert "already exists" in answer.body["message"]
    condition = {"type": "Accepted", "status": "True", "reason": "r", "message": "m"}
    condition["lastTransitionTime"] = "2025-01-10T01:36:24Z"
    path = api.path(PROVISIONING_REQUESTS, "r", "status")
    status = await api.call("PUT", path, request | {"status": {"conditions": [condition]}})
    assert status.body["status"]["conditions"][0]["type"] == "Accepted"
    for resource, name in ((PROVISIONING_REQUESTS, "r"), (POD_TEMPLATES, "r-0")):
        assert (await api.call("DELETE", api.path(resource, name))).status == 200
        assert (await api.call("DELETE", api.path(resource, name))).status == 404


async def test_they_go_with_whom_they_are_for(api: Api) -> None:
    owner = await api.create(CONFIG_MAPS, {"metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    template = {"metadata": {}, "spec": pod_spec(PodSet("worker", 1, {"cpu": 1000}))}
    await api.create(POD_TEMPLATES, {"metadata": {"name": "r-0", "ownerReferences": [reference]}, "template": template})
    await api.call("DELETE", api.path(CONFIG_MAPS, "owner"))

    async def gone() -> bool:
        return await api.get(POD_TEMPLATES, "r-0") is None

    await until(gone, COLLECTED_S)


async def test_one_config_map_may_be_watched_by_its_name(api: Api) -> None:
    for name in ("other", "pools"):
        await api.create(CONFIG_MAPS, {"metadata": {"name": name}})
    found = (await api.select(CONFIG_MAPS, fieldSelector="metadata.name=pools")).body
    assert [each["metadata"]["name"] for each in found["items"]] == ["pools"]
