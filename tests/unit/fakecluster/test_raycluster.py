"""The simulated operator's rules for RayClusters, rule by rule, on the pure function."""

import pytest

from kit.ray import BEGAN, Object, cluster_spec, group, raycluster, short
from muster.fakecluster.apiserver.names import stamp
from muster.fakecluster.kuberay import OperatorSettings, words
from muster.fakecluster.kuberay.raycluster import RayClusterSeen, reconcile_raycluster
from muster.fakecluster.operations import Create, Replace
from muster.model.api import RAYCLUSTERS

NAME = "j-raycluster-1"
#: Without what stands beside the pods.
BARE = OperatorSettings(services=False)


def pod(name: str, group_name: str = "small", *, phase: str = "Running", going: bool = False, **labels: str) -> Object:
    """A pod of the cluster; the head is of group headgroup."""
    node_type = "head" if group_name == words.HEAD_GROUP else "worker"
    marks = {words.CLUSTER: NAME, words.GROUP: group_name, words.NODE_TYPE: node_type}
    meta: Object = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": marks | labels}
    if going:
        meta["deletionTimestamp"] = stamp(BEGAN)
    ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
    return {"metadata": meta, "spec": {}, "status": {"phase": phase, "conditions": [ready]}}


def head(**fields: object) -> Object:
    return pod("head", words.HEAD_GROUP, **fields)  # type: ignore[arg-type]


def workers(count: int, first: int = 0) -> list[Object]:
    return [pod(f"w{number}") for number in range(first, first + count)]


class Look:
    """What one look at a cluster came to."""

    def __init__(self, cluster: Object, *pods: Object, after_ms: int = 0, settings: OperatorSettings = BARE) -> None:
        plan = reconcile_raycluster(RayClusterSeen(cluster, tuple(pods)), BEGAN + after_ms, settings)
        self.plan = plan
        last = plan.operations[-1] if plan.operations else None
        written = isinstance(last, Replace) and last.resource == RAYCLUSTERS
        self.status: Object = last.body["status"] if written else cluster.get("status") or {}  # type: ignore[union-attr]
        self.acts = [short(entry) for entry in (plan.operations[:-1] if written else plan.operations)]
        self.bodies = [entry.body for entry in plan.operations if isinstance(entry, Create)]

    def condition(self, kind: str) -> tuple[str, str] | None:
        found = {entry["type"]: (entry["status"], entry["reason"]) for entry in self.status.get("conditions", ())}
        return found.get(kind)


def with_status(cluster: Object, status: Object) -> Object:
    return cluster | {"status": status}


def test_the_head_comes_first_then_the_groups_in_order() -> None:
    cluster = raycluster(**cluster_spec(group("b", replicas=1), group("a", replicas=2)))
    assert Look(cluster).acts == [
        f"create pods {NAME}-head-",
        f"create pods {NAME}-b-worker-",
        f"create pods {NAME}-a-worker-",
        f"create pods {NAME}-a-worker-",
    ]


def test_pods_carry_the_labels_that_say_what_they_are() -> None:
    head_body, worker_body, _ = Look(raycluster()).bodies
    assert head_body["metadata"]["labels"] == {
        "ray.io/is-ray-node": "yes",
        "ray.io/cluster": NAME,
        "ray.io/node-type": "head",
        "ray.io/group": "headgroup",
        "ray.io/identifier": f"{NAME}-head",
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
    }
    assert worker_body["metadata"]["labels"]["ray.io/group"] == "small"
    assert worker_body["metadata"]["generateName"] == f"{NAME}-small-worker-"
    assert worker_body["metadata"]["ownerReferences"][0]["uid"] == "cluster-uid"
    init = worker_body["spec"]["initContainers"][0]
    assert (init["name"], init["resources"]["requests"]) == ("wait-gcs-ready", {"cpu": "200m", "memory": "256Mi"})
    assert "initContainers" not in head_body["spec"]


@pytest.mark.parametrize(
    ("fields", "pods"),
    [
        ({"replicas": 3}, 3),
        ({}, 0),
        ({"replicas": 0, "minReplicas": 2, "maxReplicas": 5}, 2),
        ({"replicas": 9, "maxReplicas": 5}, 5),
        ({"replicas": 3, "suspend": True}, 0),
        ({"replicas": 2, "numOfHosts": 3}, 6),
        ({"minReplicas": 1, "numOfHosts": 2}, 2),
    ],
)
def test_a_group_has_the_clamped_number_of_replicas_times_hosts(fields: Object, pods: int) -> None:
    found = Look(raycluster(**cluster_spec(group(**fields))), head())
    assert len(found.acts) == pods
    assert found.status["desiredWorkerReplicas"] == pods


def test_an_unset_number_of_replicas_is_the_least() -> None:
    cluster = raycluster(**cluster_spec(group(minReplicas=2)))
    cluster["spec"]["workerGroupSpecs"][0].pop("replicas")
    assert len(Look(cluster, head()).acts) == 2


def test_pods_that_are_going_still_count() -> None:
    found = Look(raycluster(), head(), pod("w0"), pod("w1", going=True))
    assert found.acts == []


def test_broken_pods_go_and_nothing_is_made_in_that_pass() -> None:
    cluster = raycluster(**cluster_spec(group(replicas=3)))
    assert Look(cluster, head(), pod("w0", phase="Failed")).acts == ["delete pods w0"]
    assert Look(cluster, head(phase="Failed")).acts == ["delete pods head"]
    assert Look(cluster, head(phase="Failed", going=True)).acts == []


def test_a_lost_head_is_made_again_unless_the_job_ran_in_it() -> None:
    provisioned = {"conditions": [{"type": words.PROVISIONED, "status": "True", "reason": "x", "message": ""}]}
    assert Look(with_status(raycluster(), provisioned), *workers(2)).acts == [f"create pods {NAME}-head-"]
    sidecar = raycluster(meta={"annotations": {words.NO_HEAD_RESTART: "true"}})
    assert Look(with_status(sidecar, provisioned), *workers(2)).acts == []
    assert Look(sidecar, *workers(2)).acts == [f"create pods {NAME}-head-"]


# Scaling down


def test_a_surplus_goes_without_an_autoscaler() -> None:
    assert Look(raycluster(), head(), *workers(4)).acts == ["delete pods w0", "delete pods w1"]


def test_a_surplus_stays_with_an_autoscaler() -> None:
    assert Look(raycluster(enableInTreeAutoscaling=True), head(), *workers(4)).acts == []


@pytest.mark.parametrize("autoscaling", [True, False])
def test_workers_to_delete_go_whatever_the_replicas_say(autoscaling: bool) -> None:
    named = group(replicas=2, scaleStrategy={"workersToDelete": ["w1"]})
    cluster = raycluster(**cluster_spec(named, enableInTreeAutoscaling=autoscaling))
    found = Look(cluster, head(), *workers(2))
    assert found.acts == ["delete pods w1", f"create pods {NAME}-small-worker-"]
    lowered = group(replicas=1, scaleStrategy={"workersToDelete": ["w1"]})
    cluster = raycluster(**cluster_spec(lowered, enableInTreeAutoscaling=autoscaling))
    assert Look(cluster, head(), *workers(2)).acts == ["delete pods w1"]
    assert Look(cluster, head(), pod("w0"), pod("w1", going=True)).acts == []


def test_workers_to_delete_are_not_checked_to_be_workers_of_the_cluster() -> None:
    named = group(replicas=0, scaleStrategy={"workersToDelete": ["somebody-elses-pod"]})
    assert Look(raycluster(**cluster_spec(named)), head()).acts == ["delete pods somebody-elses-pod"]


def replica(name: str, *hosts: str, index: str = "0") -> list[Object]:
    labels: Object = {words.REPLICA_NAME: name, words.REPLICA_INDEX: index}
    return [pod(host, **labels) for host in hosts]


def test_the_hosts_of_a_replica_come_with_marks() -> None:
    cluster = raycluster(**cluster_spec(group(replicas=1, numOfHosts=2)))
    labels = [body["metadata"]["labels"] for body in Look(cluster, head()).bodies]
    assert len({entry[words.REPLICA_NAME] for entry in labels}) == 1
    assert [(entry[words.REPLICA_INDEX], entry[words.HOST_INDEX]) for entry in labels] == [("0", "0"), ("0", "1")]


def test_the_hosts_of_a_replica_go_together() -> None:
    named = group(replicas=1, numOfHosts=2, scaleStrategy={"workersToDelete": ["a1"]})
    cluster = raycluster(**cluster_spec(named, enableInTreeAutoscaling=True))
    pods = [*replica("a", "a0", "a1"), *replica("b", "b0", "b1", index="1")]
    assert Look(cluster, head(), *pods).acts == ["delete pods a0", "delete pods a1"]


def test_a_replica_that_lacks_a_host_goes() -> None:
    cluster = raycluster(**cluster_spec(group(replicas=2, numOfHosts=2)))
    pods = [*replica("a", "a0"), *replica("b", "b0", "b1", index="1")]
    assert Look(cluster, head(), *pods).acts == ["delete pods a0"]


def test_a_surplus_replica_goes_whole() -> None:
    cluster = raycluster(**cluster_spec(group(replicas=1, numOfHosts=2)))
    pods = [*replica("a", "a0", "a1"), *replica("b", "b0", "b1", index="1")]
    assert Look(cluster, head(), *pods).acts == ["delete pods a0", "delete pods a1"]


# What is invalid


@pytest.mark.parametrize(
    "spec",
    [
        cluster_spec(group(minReplicas=3, maxReplicas=2)),
        cluster_spec(group(minReplicas=-1)),
        cluster_spec(group(template={})),
        cluster_spec(group("a"), group("a")),
        cluster_spec(group(suspend=True), enableInTreeAutoscaling=True),
    ],
)
def test_an_invalid_cluster_is_reported_and_not_looked_at(spec: Object) -> None:
    found = Look(raycluster(**spec), head(), *workers(5))
    assert [act.split()[:2] for act in found.acts] == [["create", "events"]]
    assert found.bodies[0]["reason"] == "InvalidRayClusterSpec"


def test_foreign_and_deleted_clusters_are_left_alone() -> None:
    assert Look(raycluster(managedBy="kueue.x-k8s.io/multikueue")).plan.operations == ()
    assert Look(raycluster(meta={"deletionTimestamp": stamp(BEGAN)}), head()).plan.operations == ()


# The autoscaler and what stands beside the pods


def test_the_autoscaler_runs_beside_the_head() -> None:
    body = Look(raycluster(enableInTreeAutoscaling=True)).bodies[0]
    ray, autoscaler = body["spec"]["containers"]
    assert (ray["name"], autoscaler["name"], autoscaler["image"]) == ("ray", "autoscaler", "ray")
    amounts = {"cpu": "500m", "memory": "512Mi"}
    assert autoscaler["resources"] == {"requests": amounts, "limits": amounts}
    assert body["spec"]["restartPolicy"] == "Never"
    options = {"resources": {"limits": {"cpu": "2"}}, "image": "mine", "version": "v1"}
    body = Look(raycluster(enableInTreeAutoscaling=True, autoscalerOptions=options)).bodies[0]
    assert body["spec"]["containers"][1]["resources"] == {"limits": {"cpu": "2"}}
    assert body["spec"]["containers"][1]["image"] == "mine"
    assert "restartPolicy" not in body["spec"]


def test_sidecars_are_as_their_options_say() -> None:
    amounts = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    env, source = [{"name": "A", "value": "b"}], [{"secretRef": {"name": "token"}}]
    scaler = {"image": "other:1", "imagePullPolicy": "Always", "resources": amounts, "env": env, "envFrom": source}
    spec = cluster_spec(group("a", replicas=1), enableInTreeAutoscaling=True, autoscalerOptions=scaler)
    spec["historyServerOptions"] = {"collectorOptions": {"image": "collector", "resources": amounts}}
    of_head, of_worker = (body["spec"]["containers"] for body in Look(raycluster(**spec)).bodies)
    assert {**of_head[1], "env": of_head[1]["env"][-1:]} == {"name": "autoscaler", "args": of_head[1]["args"], **scaler}
    assert [each["name"] for each in of_head] == [of_head[0]["name"], "autoscaler", "hs-collector"]
    assert [each["name"] for each in of_worker] == [of_worker[0]["name"], "hs-collector"]
    assert (of_head[2]["resources"], of_worker[1]["resources"]) == (amounts, amounts)


def test_services_and_accounts_are_made_once() -> None:
    found = Look(raycluster(), settings=OperatorSettings())
    assert found.acts[0] == f"create services {NAME}-head-svc"
    again = Look(with_status(raycluster(), found.status), head(), *workers(2), settings=OperatorSettings())
    assert again.acts == []
    scaled = Look(raycluster(enableInTreeAutoscaling=True), settings=OperatorSettings())
    assert scaled.acts[1:4] == [
        f"create serviceaccounts {NAME}",
        f"create roles {NAME}",
        f"create rolebindings {NAME}",
    ]


# Status


def test_the_status_counts_pods() -> None:
    spec = cluster_spec(group("a", replicas=2, minReplicas=1, maxReplicas=4, numOfHosts=2), group("b", replicas=1))
    found = Look(raycluster(**spec), head(), pod("w0", "a"), pod("w1", "a", phase="Pending"))
    counts = {key: value for key, value in found.status.items() if key.endswith("Replicas")}
    assert counts == {
        "desiredWorkerReplicas": 5,
        "minWorkerReplicas": 2,
        "maxWorkerReplicas": 2147483647,
        "availableWorkerReplicas": 1,
        "readyWorkerReplicas": 1,
    }
    assert (found.status["desiredCPU"], found.status["desiredMemory"]) == ("6", "6Gi")
    assert found.status["observedGeneration"] == 1
    assert found.status["head"]["serviceName"] == f"{NAME}-head-svc"


def test_ready_is_when_all_pods_run_together_and_stays_so() -> None:
    cluster = raycluster()
    pending = Look(cluster, head(), pod("w0"), pod("w1", phase="Pending"))
    assert "state" not in pending.status, "one pending worker keeps a RayJob from starting"
    assert pending.condition(words.HEAD_POD_READY) == ("True", "HeadPodRunningAndReady")
    assert pending.condition(words.PROVISIONED) == ("False", "RayClusterPodsProvisioning")
    ready = Look(cluster, head(), *workers(2), after_ms=5_000)
    assert ready.status["state"] == "ready"
    assert ready.status["stateTransitionTimes"] == {"ready": stamp(BEGAN + 5_000)}
    assert ready.condition(words.PROVISIONED) == ("True", "AllPodRunningAndReadyFirstTime")
    lost = Look(with_status(cluster, ready.status), *workers(2), after_ms=9_000)
    assert lost.status["state"] == "ready"
    assert lost.condition(words.PROVISIONED) == ("True", "AllPodRunningAndReadyFirstTime")
    assert lost.condition(words.HEAD_POD_READY) == ("False", "HeadPodNotFound")


def test_a_status_that_says_what_is_so_is_not_written_again() -> None:
    first = Look(raycluster(), head(), *workers(2))
    again = Look(with_status(raycluster(), first.status), head(), *workers(2), after_ms=60_000)
    assert again.plan.operations == ()


# Suspension


def test_suspension_is_one_look_late_and_cannot_be_called_off() -> None:
    suspended, wanted = raycluster(suspend=True), raycluster()
    asked = Look(suspended, head(), *workers(2))
    assert asked.acts == []
    assert asked.condition(words.CLUSTER_SUSPENDING) == ("True", "UserRequestSuspend")
    for cluster in (suspended, wanted):
        deleting = Look(with_status(cluster, asked.status), head(), *workers(2))
        assert deleting.acts == ["delete pods head", "delete pods w0", "delete pods w1"]
    last = Look(with_status(wanted, asked.status), pod("w0", going=True))
    assert (last.acts, last.condition(words.CLUSTER_SUSPENDING)) == ([], ("True", "UserRequestSuspend"))
    done = Look(with_status(wanted, asked.status))
    assert done.acts == []
    assert done.status.get("state") == asked.status.get("state"), "the spec wants it no longer"
    assert done.condition(words.CLUSTER_SUSPENDED) == ("True", "RayClusterSuspended")
    assert done.condition(words.CLUSTER_SUSPENDING) == ("False", "RayClusterSuspended")
    provisioned = done.condition(words.PROVISIONED)
    assert provisioned is not None
    assert provisioned[0] == "False"


def test_a_suspended_cluster_rests_and_is_made_anew_when_asked() -> None:
    suspended = raycluster(suspend=True)
    asked = Look(suspended, head())
    done = Look(with_status(suspended, asked.status))
    assert Look(with_status(suspended, done.status)).plan.operations == ()
    resumed = Look(with_status(raycluster(), done.status))
    assert (resumed.acts, resumed.condition(words.CLUSTER_SUSPENDED)) == ([], ("False", "UserRequestResume"))
    assert resumed.status["state"] == "suspended", "until all of it is ready"
    assert len(Look(with_status(raycluster(), resumed.status)).acts) == 3


def test_its_autoscaler_suspends_it_as_its_owner_does() -> None:
    idle = raycluster(idleSuspend=True)
    asked = Look(idle, head(), *workers(1))
    assert asked.condition(words.CLUSTER_SUSPENDING) == ("True", "UserRequestSuspend")
    assert Look(with_status(idle, asked.status), head()).acts == ["delete pods head"]
    done = Look(with_status(idle, asked.status))
    assert done.status["state"] == "suspended"
    assert Look(with_status(idle, done.status)).plan.operations == ()
    assert Look(with_status(raycluster(), done.status)).condition(words.CLUSTER_SUSPENDED) == (
        "False",
        "UserRequestResume",
    )


def test_what_its_autoscaler_deletes_goes_once_the_operator_has_said_so() -> None:
    going = raycluster()
    going["metadata"] |= {"deletionTimestamp": stamp(BEGAN), "finalizers": ["mine", words.IDLE_FINALIZER]}
    said, written = reconcile_raycluster(RayClusterSeen(going, (head(),)), BEGAN, BARE).operations
    assert isinstance(said, Create)
    assert said.body["reason"] == "DeletedIdleRayCluster"
    assert isinstance(written, Replace)
    assert written.body["metadata"]["finalizers"] == ["mine"]
    assert reconcile_raycluster(RayClusterSeen(written.body, (head(),)), BEGAN, BARE).operations == ()


def test_without_pods_a_cluster_is_ready_after_a_while() -> None:
    coarse = OperatorSettings(services=False, pods=False, ready_ms=2_000)
    early = Look(raycluster(), settings=coarse)
    assert (early.acts, early.status.get("state"), early.plan.again_ms) == ([], None, 2_000)
    late = Look(with_status(raycluster(), early.status), after_ms=2_000, settings=coarse)
    assert (late.status["state"], late.status["readyWorkerReplicas"]) == ("ready", 2)
