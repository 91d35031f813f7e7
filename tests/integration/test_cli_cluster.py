"""``muster up --context`` and ``muster doctor`` on a cluster that is somebody's: the simulated one, over HTTP."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest_asyncio

from kit.cli import Cli
from kit.deployed import controllers, shipped_policies
from kit.simulated import served
from kit.story import quota_tree, rayjob
from kit.waiting import until
from muster.fakecluster.apiserver.kinds import LEASES, ResourceRules
from muster.fakecluster.apiserver.names import stamp
from muster.fakecluster.world import SimCluster, VirtualClock
from muster.model import api
from muster.model.api import ApiResource
from muster.runtime.clock import SystemClock
from muster_cli.policychecks import POLICIES


class Theirs:
    """A cluster and the command line of somebody who may look at it."""

    def __init__(self, cluster: SimCluster, cli: Cli, kubeconfig: Path) -> None:
        self.cluster = cluster
        self.cli = cli
        self.context = ("--context", "theirs", "--kubeconfig", str(kubeconfig))

    def create(self, resource: ApiResource, body: dict[str, Any]) -> str:
        path = resource.path(body["metadata"].get("namespace", ""))
        answer = self.cluster.server.handle("POST", path, body=json.dumps(body).encode())
        assert answer.ok, answer.body
        name: str = json.loads(answer.body)["metadata"]["name"]
        return name

    def submit(self, name: str, **options: Any) -> None:
        self.create(api.RAYJOBS, rayjob(name, **options))

    def install_policies(self) -> None:
        """Serve admission policies, which this server otherwise does not know, and create ours."""
        shipped = shipped_policies()
        for policy in POLICIES:
            for resource in (policy.resource, policy.binding):
                self.cluster.server.serve(ResourceRules(resource=resource))
                self.create(resource, shipped[resource.kind, policy.name])
        self.create(api.CONFIG_MAPS, controllers())

    def names(self, resource: ApiResource) -> list[str]:
        return sorted(self.cluster.server.store.table(resource).objects)

    def job(self, name: str) -> dict[str, Any]:
        return self.cluster.server.objects.get(api.RAYJOBS, "video", name)


@pytest_asyncio.fixture
async def theirs(tmp_path: Path) -> AsyncIterator[Theirs]:
    clock = VirtualClock(SystemClock().now())
    cluster = SimCluster({"node-1": {"cpu": "48", "memory": "192Gi", "nvidia.com/gpu": "8"}}, clock=clock)
    async with served(cluster, tmp_path, "theirs") as kubeconfig:
        made = Theirs(cluster, Cli(tmp_path), kubeconfig)
        made.create(api.QUOTA_TREES, quota_tree())
        made.install_policies()
        yield made


async def test_observing_says_what_it_would_do_and_writes_nothing(theirs: Theirs) -> None:
    theirs.submit("one")
    theirs.submit("two")
    before = theirs.cluster.server.store.version
    async with theirs.cli.start("up", "--headless", *theirs.context) as up:
        banner = await up.line("only observes: nothing is written")
        assert banner
        admitted = await up.line("would admit")
        assert "video/one" in admitted
        assert "video/two" in await up.line("  waits  ")
        told = (await theirs.cli.run("why", "video/one")).ok()
        assert "WouldBeAdmitted" in told.lines[0]
        assert "this Muster only observes" in " ".join(told.out.split())
        ended = await up.stop()
    assert ended.code == 0
    assert "1 would have been admitted" in ended.lines[-1]
    assert " admitted  " not in ended.out
    assert theirs.job("one")["spec"]["suspend"] is True
    assert theirs.names(api.QUEUE_UNITS) == theirs.names(api.QUEUES) == theirs.names(api.EVENTS) == []
    assert "annotations" not in theirs.job("two")["metadata"] or not any(
        key.startswith(("muster.dev", "kube-queue")) for key in theirs.job("two")["metadata"]["annotations"]
    )
    assert theirs.cluster.server.store.version - before < 10  # KubeRay's own words on the two jobs.
    assert theirs.cli.left == []


async def test_acting_admits(theirs: Theirs) -> None:
    theirs.submit("one")
    async with theirs.cli.start("up", "--headless", "--act", *theirs.context) as up:
        assert "video/one" in await up.line("  admitted  ")
        await up.line("  running  ")
        await until(lambda: theirs.names(api.QUEUE_UNITS) == ["video/one-ray-qu"], what="it to be shown")
        assert (await up.stop()).code == 0
    assert theirs.job("one")["spec"]["suspend"] is False
    assert theirs.names(api.QUEUE_UNITS) == ["video/one-ray-qu"]


async def test_acting_is_refused_with_everything_that_is_missing(theirs: Theirs) -> None:
    server = theirs.cluster.server
    server.denied = frozenset([("patch", "ray.io", "rayjobs"), ("watch", "", "pods")])
    server.retire(api.QUEUE_UNITS)
    server.objects.delete(POLICIES[0].binding, "", POLICIES[0].name)
    renewed = {"holderIdentity": "kube-queue-0", "renewTime": stamp(SystemClock().now())}
    lease = {"metadata": {"name": "kube-queue-controller", "namespace": "kube-queue"}, "spec": renewed}
    theirs.create(LEASES, lease)
    theirs.submit("one")
    refused = await theirs.cli.run("up", "--headless", "--act", *theirs.context)
    assert refused.code == 1
    for words in (
        "not acting on this cluster",
        "permission: we may not patch rayjobs.ray.io in all namespaces",
        "permission: we may not watch pods in all namespaces",
        "definition QueueUnit: is not served as scheduling.x-k8s.io/v1alpha1",
        "policies: ValidatingAdmissionPolicyBinding muster-jobs missing: any user may start a queued job",
        "other owner kube-queue (ack-kube-queue): is active and admits jobs too",
        "lease kube-queue/kube-queue-controller held by kube-queue-0",
    ):
        assert words in refused.err, words
    assert theirs.job("one")["spec"]["suspend"] is True
    assert theirs.cli.left == []
    examined = await theirs.cli.run("doctor", *theirs.context)
    assert examined.code == 1
    assert examined.lines[-1].endswith(" to fix")
    for finding in [line for line in refused.err.splitlines() if line.startswith("  fix ")]:
        assert finding in examined.out


async def test_pods_of_gangs_that_nobody_steers_are_told_of(theirs: Theirs) -> None:
    examined = (await theirs.cli.run("doctor", *theirs.context)).ok()
    assert "muster-gang-pods-steered" in examined.out
    assert "gang pods" not in examined.out
    assert "native gangs: scheduling.k8s.io has no PodGroups here: spec.schedulingGroup makes no gang" in examined.out
    theirs.cluster.server.objects.delete(POLICIES[-1].resource, "", "muster-gang-pods-steered")
    examined = (await theirs.cli.run("doctor", *theirs.context)).ok()
    told = "MutatingAdmissionPolicy muster-gang-pods-steered missing: pods with the marks of a gang have to say"
    assert told in examined.out


async def test_watching_needs_less(theirs: Theirs) -> None:
    theirs.cluster.server.denied = frozenset([("patch", "*", "*"), ("create", "", "events")])
    assert (await theirs.cli.run("doctor", "--observe", *theirs.context)).ok()
    assert (await theirs.cli.run("doctor", *theirs.context)).code == 1


async def test_a_holder_that_stopped_renewing_is_no_owner(theirs: Theirs) -> None:
    spec = {"holderIdentity": "kube-queue-0", "renewTime": "2025-01-10T01:36:24Z"}
    theirs.create(LEASES, {"metadata": {"name": "kube-queue", "namespace": "kube-queue"}, "spec": spec})
    examined = (await theirs.cli.run("doctor", *theirs.context)).ok()
    assert "none of kube-queue, koord-queue, Kueue, KAI Scheduler or another Muster acts here" in examined.out


async def test_a_context_that_leads_nowhere_is_said(theirs: Theirs, tmp_path: Path) -> None:
    refused = await theirs.cli.run("up", "--context", "other", "--kubeconfig", theirs.context[3])
    assert refused.code == 1
    assert "cannot use context other" in refused.err
    examined = await theirs.cli.run("doctor", "--kubeconfig", str(tmp_path / "missing"))
    assert examined.code == 1
    assert "does not exist" in examined.out


async def test_submitting_needs_a_demo_or_a_name(theirs: Theirs, tmp_path: Path) -> None:
    manifest = tmp_path / "job.yaml"
    manifest.write_text(json.dumps(rayjob()))
    refused = await theirs.cli.run("submit", str(manifest))
    assert (refused.code, theirs.names(api.RAYJOBS)) == (3, [])
    created = (await theirs.cli.run("submit", str(manifest), *theirs.context)).ok()
    assert created.out.startswith("RayJob video/rayjob-video-")
    assert len(theirs.names(api.RAYJOBS)) == 1
