"""The simulated operator's table of RayJob states, row by row, on the pure function."""

from typing import Any

import pytest

from kit.ray import BEGAN, Object, cluster_spec, group, look, pod_template, raycluster, rayjob, run, submitter
from muster.fakecluster.apiserver.names import stamp
from muster.fakecluster.kuberay import OUTCOME, RUNTIME, OperatorSettings, words
from muster.fakecluster.operations import Merge

READY = {"state": "ready"}
CLUSTER = "j-raycluster-1"


# New


def test_new_gets_the_finalizer_first() -> None:
    found = look(rayjob(finalizer=False))
    assert (found.acts, found.status) == (["replace rayjobs j"], None)


@pytest.mark.parametrize("suspend", [True, False])
def test_new_is_named_and_initializes_whether_suspended_or_not(suspend: bool) -> None:
    found = look(rayjob(suspend=suspend))
    assert found.acts == []
    assert found.state == words.INITIALIZING
    assert found.status is not None
    assert found.status["startTime"] == stamp(BEGAN)
    assert found.status["rayClusterName"].startswith("j-")
    assert found.status["jobId"].startswith("j-")


def test_new_takes_the_job_id_and_the_cluster_that_are_given() -> None:
    selected = look(rayjob(jobId="mine", clusterSelector={"ray.io/cluster": "theirs"}, rayClusterSpec=None))
    assert selected.status is not None
    assert (selected.status["jobId"], selected.status["rayClusterName"]) == ("mine", "theirs")
    interactive = look(rayjob(submissionMode=words.INTERACTIVE))
    assert interactive.status is not None
    assert "jobId" not in interactive.status


# Initializing


def test_initializing_makes_the_cluster() -> None:
    meta = {"labels": {"team": "x"}, "annotations": {"kube-queue/queue-name": "q"}}
    found = look(rayjob(words.INITIALIZING, meta=meta))
    assert (found.acts, found.state) == ([f"create rayclusters {CLUSTER}"], None)
    made = found.plan.operations[0].body["metadata"]  # type: ignore[union-attr]
    assert made["annotations"] == {"kube-queue/queue-name": "q"}
    assert made["labels"] == {
        "team": "x",
        "ray.io/originated-from-cr-name": "j",
        "ray.io/originated-from-crd": "RayJob",
        "ray.io/job-submission-mode": "K8sJobMode",
    }
    assert made["ownerReferences"][0]["uid"] == "job-uid"


def test_in_sidecar_mode_the_submitter_comes_with_the_head() -> None:
    found = look(rayjob(words.INITIALIZING, submissionMode=words.SIDECAR))
    made = found.plan.operations[0].body  # type: ignore[union-attr]
    head = made["spec"]["headGroupSpec"]["template"]["spec"]
    assert [container["name"] for container in head["containers"]] == ["ray", "ray-job-submitter"]
    assert head["containers"][1]["resources"]["requests"] == {"cpu": "500m", "memory": "200Mi"}
    assert head["restartPolicy"] == "Never"
    assert made["metadata"]["annotations"] == {"ray.io/disable-provisioned-head-restart": "true"}


def test_initializing_waits_for_the_cluster_and_shows_its_status() -> None:
    status = {"desiredWorkerReplicas": 2}
    found = look(rayjob(words.INITIALIZING), cluster=raycluster(status=status))
    assert (found.acts, found.state) == ([], words.INITIALIZING)
    assert found.status is not None
    assert found.status["rayClusterStatus"] == status


def test_initializing_submits_when_the_cluster_is_ready() -> None:
    found = look(rayjob(words.INITIALIZING), cluster=raycluster(status=READY))
    assert (found.acts, found.state) == (["create jobs j"], words.RUNNING)
    assert found.status is not None
    assert found.status["dashboardURL"] == f"{CLUSTER}-head-svc.ns.svc.cluster.local:8265"
    template = found.plan.operations[0].body["spec"]["template"]  # type: ignore[union-attr]
    assert template["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "500m", "memory": "200Mi"}
    assert template["metadata"]["annotations"] == {"sim.muster.dev/run-for": "20000ms"}


@pytest.mark.parametrize(
    ("mode", "state"),
    [(words.HTTP, words.RUNNING), (words.SIDECAR, words.RUNNING), (words.INTERACTIVE, words.WAITING)],
)
def test_initializing_makes_no_submitter_in_other_modes(mode: str, state: str) -> None:
    found = look(rayjob(words.INITIALIZING, submissionMode=mode), cluster=raycluster(status=READY))
    assert (found.acts, found.state) == ([], state)


def test_initializing_is_suspended_before_a_cluster_is_made() -> None:
    found = look(rayjob(words.INITIALIZING, suspend=True))
    assert (found.acts, found.state) == ([], words.SUSPENDING)


def test_initializing_waits_for_a_selected_cluster() -> None:
    job = rayjob(words.INITIALIZING, clusterSelector={"ray.io/cluster": "theirs"}, rayClusterSpec=None)
    found = look(job)
    assert (found.acts, found.state, found.plan.again_ms) == ([], None, 3_000)


# Deadlines


@pytest.mark.parametrize("state", [words.INITIALIZING, words.WAITING])
def test_the_pre_running_deadline_ends_what_has_not_begun(state: str) -> None:
    mode = words.INTERACTIVE if state == words.WAITING else words.K8S_JOB
    job = rayjob(state, preRunningDeadlineSeconds=60, submissionMode=mode)
    early = look(job, after_ms=59_000, cluster=raycluster())
    assert (early.state, early.plan.again_ms) == (None, 1_000)
    late = look(job, after_ms=60_000, cluster=raycluster())
    assert (late.state, late.status and late.status["reason"]) == (words.FAILED, "PreRunningDeadlineExceeded")


def test_the_pre_running_deadline_is_over_once_it_runs() -> None:
    job = rayjob(words.RUNNING, preRunningDeadlineSeconds=60)
    found = look(job, after_ms=61_000, cluster=raycluster(), submitter=submitter())
    assert found.state is None


@pytest.mark.parametrize("state", [words.INITIALIZING, words.RUNNING])
def test_the_active_deadline_counts_from_the_start_time(state: str) -> None:
    job = rayjob(state, activeDeadlineSeconds=100, backoffLimit=5)
    early = look(job, after_ms=99_000, cluster=raycluster(), submitter=submitter())
    assert early.state is None
    late = look(job, after_ms=100_000, cluster=raycluster(), submitter=submitter())
    assert late.status is not None
    assert (late.state, late.status["reason"]) == (words.FAILED, "DeadlineExceeded"), "and it is not retried"
    assert late.status["endTime"] == stamp(BEGAN + 100_000)


# Waiting


def test_waiting_cannot_be_suspended() -> None:
    job = rayjob(words.WAITING, submissionMode=words.INTERACTIVE, suspend=True)
    assert look(job, cluster=raycluster()).plan.operations == ()


def test_waiting_runs_when_the_user_names_the_ray_job() -> None:
    job = rayjob(words.WAITING, submissionMode=words.INTERACTIVE, jobId="mine")
    found = look(job, cluster=raycluster())
    assert found.status is not None
    assert (found.state, found.status["jobId"]) == (words.RUNNING, "mine")


# Running


def test_running_follows_the_ray_job() -> None:
    found = look(rayjob(words.RUNNING), cluster=raycluster(), submitter=submitter(), run=run())
    assert found.status is not None
    assert (found.state, found.status["jobStatus"]) == (words.RUNNING, "RUNNING")
    assert found.status["rayJobInfo"] == {"startTime": stamp(BEGAN)}
    assert found.plan.again_ms == 20_000, "nobody tells when a Ray job ends"


@pytest.mark.parametrize(
    ("ends", "state", "reason"),
    [
        ("SUCCEEDED", words.COMPLETE, None),
        ("STOPPED", words.COMPLETE, None),
        ("FAILED", words.FAILED, "AppFailed"),
    ],
)
def test_running_ends_with_the_ray_job_and_its_submitter(ends: str, state: str, reason: str | None) -> None:
    job = rayjob(words.RUNNING)
    seen: Object = {"cluster": raycluster(), "run": run(ends)}
    waiting = look(job, after_ms=21_000, submitter=submitter(), **seen)
    assert waiting.status is not None
    assert (waiting.state, waiting.status["jobStatus"]) == (words.RUNNING, ends), "the submitter is not over yet"
    ended = look(job, after_ms=21_000, submitter=submitter(ended="Complete", at=BEGAN + 21_000), **seen)
    assert ended.status is not None
    assert (ended.state, ended.status.get("reason")) == (state, reason)
    assert ended.status["endTime"] == stamp(BEGAN + 21_000)
    assert ended.status["succeeded"] == (1 if ends == "SUCCEEDED" else 0)
    assert ended.status["failed"] == (1 if ends == "FAILED" else 0)


def test_running_fails_with_its_submitter() -> None:
    found = look(rayjob(words.RUNNING), cluster=raycluster(), submitter=submitter(ended="Failed"))
    assert found.status is not None
    assert (found.state, found.status["reason"]) == (words.FAILED, "SubmissionFailed")
    job = rayjob(words.RUNNING)
    job["status"]["jobStatus"] = "FAILED"
    found = look(job, cluster=raycluster(), submitter=submitter(ended="Failed"))
    assert found.status is not None
    assert (found.state, found.status["reason"]) == (words.FAILED, "AppFailed")


def test_running_gives_the_ray_job_half_a_minute_after_its_submitter() -> None:
    job, ended = rayjob(words.RUNNING), submitter(ended="Complete")
    going_on: Object = {"cluster": raycluster(), "submitter": ended, "run": run(end=BEGAN + 900_000)}
    early = look(job, after_ms=29_000, **going_on)
    assert (early.state, early.plan.again_ms) == (words.RUNNING, 1_000)
    late = look(job, after_ms=30_000, **going_on)
    assert late.status is not None
    assert (late.state, late.status["reason"]) == (
        words.FAILED,
        "JobDeploymentStatusTransitionGracePeriodExceeded",
    )


def test_running_ends_when_its_submitter_hangs_after_the_ray_job() -> None:
    job = rayjob(words.RUNNING)
    job["status"] |= {"jobStatus": "SUCCEEDED", "rayJobInfo": {"endTime": stamp(BEGAN)}}
    early = look(job, after_ms=299_000, cluster=raycluster(), submitter=submitter(), run=run(end=BEGAN))
    assert (early.state, early.plan.again_ms) == (words.RUNNING, 1_000)
    late = look(job, after_ms=300_000, cluster=raycluster(), submitter=submitter(), run=run(end=BEGAN))
    assert late.status is not None
    assert late.state == words.COMPLETE
    assert late.status["reason"] == "JobDeploymentStatusTransitionGracePeriodExceeded"


def test_running_without_a_trace_of_the_ray_job() -> None:
    job, cluster = rayjob(words.RUNNING), raycluster()
    waiting = look(job, cluster=cluster, submitter=submitter())
    assert waiting.plan.operations == (), "the submitter has not submitted yet"
    lost = look(job, cluster=cluster, submitter=submitter(ended="Complete"))
    assert lost.status is not None
    assert (lost.state, lost.status["reason"]) == (words.FAILED, "AppFailed")


def test_http_mode_submits_and_needs_no_submitter() -> None:
    job, cluster = rayjob(words.RUNNING, submissionMode=words.HTTP), raycluster()
    assert look(job, cluster=cluster).plan.submit, "submitted again whenever Ray does not know the job"
    assert look(job, after_ms=20_000, cluster=cluster, run=run()).state == words.COMPLETE


def test_sidecar_mode_ends_with_the_ray_job_and_fails_with_the_head() -> None:
    job, cluster = rayjob(words.RUNNING, submissionMode=words.SIDECAR), raycluster()
    assert look(job, after_ms=20_000, cluster=cluster, run=run()).state == words.COMPLETE
    lost = look(job, cluster=cluster, run=run(), head_exists=False)
    assert (lost.state, lost.status and lost.status["reason"]) == (words.FAILED, "AppFailed")


def test_running_makes_a_lost_cluster_anew() -> None:
    found = look(rayjob(words.RUNNING), submitter=submitter(), run=run())
    assert (found.acts, found.state) == ([f"create rayclusters {CLUSTER}"], None)


def test_running_is_suspended() -> None:
    found = look(rayjob(words.RUNNING, suspend=True), cluster=raycluster(), submitter=submitter(), run=run())
    assert (found.acts, found.state) == ([], words.SUSPENDING)


def test_the_operator_reports_the_submitter_where_nobody_runs_its_pod() -> None:
    alone = OperatorSettings(submitter_pods=False)
    found = look(
        rayjob(words.RUNNING), after_ms=20_000, settings=alone, cluster=raycluster(), submitter=submitter(), run=run()
    )
    assert found.acts == ["merge jobs/status j"]


def test_when_a_job_controller_began_the_submitter_and_its_pod_is_left_to_the_rules_of_jobs() -> None:
    begun = submitter()
    begun["status"] |= {"startTime": "2020-01-01T00:00:00Z", "active": 1, "ready": 0}
    alone = OperatorSettings(submitter_pods=False)
    found = look(
        rayjob(words.RUNNING), after_ms=20_000, settings=alone, cluster=raycluster(), submitter=begun, run=run()
    )
    merge = next(entry for entry in found.plan.operations if isinstance(entry, Merge))
    status = merge.patch["status"]
    assert (status["startTime"], status["active"], status["ready"]) == ("2020-01-01T00:00:00Z", None, None)


# Suspending, Suspended, Retrying


@pytest.mark.parametrize("suspend", [True, False])
def test_suspending_deletes_everything_whatever_is_asked_meanwhile(suspend: bool) -> None:
    job = rayjob(words.SUSPENDING, suspend=suspend)
    found = look(job, cluster=raycluster(), submitter=submitter())
    assert (found.acts, found.state) == ([f"delete rayclusters {CLUSTER}", "delete jobs j"], None)
    going = raycluster(meta={"deletionTimestamp": stamp(BEGAN)})
    waiting = look(job, cluster=going, submitter=submitter(deleting=True))
    assert (waiting.acts, waiting.state) == ([], None)
    assert look(job, submitter=submitter(deleting=True)).state is None
    done = look(job)
    assert done.state == words.SUSPENDED
    assert done.status is not None
    assert not {"jobId", "rayClusterName", "dashboardURL", "jobStatus", "rayClusterStatus"} & done.status.keys()


def test_suspended_stays_until_asked_to_go_on() -> None:
    assert look(rayjob(words.SUSPENDED, suspend=True)).plan.operations == ()
    assert look(rayjob(words.SUSPENDED)).state == words.NEW


def test_a_resumed_job_gets_a_new_start_time_and_new_names() -> None:
    job = rayjob(words.SUSPENDED)
    job["status"] |= {"startTime": stamp(BEGAN)}
    job["status"].pop("jobDeploymentStatus")
    first, second = look(job, after_ms=5_000).status, look(job, after_ms=9_000).status
    assert first is not None
    assert second is not None
    assert first["startTime"] == stamp(BEGAN + 5_000)
    assert first["rayClusterName"] != second["rayClusterName"]
    assert first["jobId"] != second["jobId"]


def test_a_failure_is_retried_with_a_new_cluster_while_the_limit_allows() -> None:
    ended: Object = {"cluster": raycluster(), "submitter": submitter(ended="Complete"), "run": run("FAILED", end=BEGAN)}
    job = rayjob(words.RUNNING, backoffLimit=1)
    first = look(job, **ended)
    assert first.status is not None
    assert (first.state, first.status["failed"]) == (words.RETRYING, 1)
    job["status"]["failed"] = 1
    second = look(job, **ended)
    assert second.status is not None
    assert (second.state, second.status["failed"]) == (words.FAILED, 2)


@pytest.mark.parametrize("suspend", [True, False])
def test_retrying_deletes_and_begins_anew_and_cannot_be_suspended(suspend: bool) -> None:
    job = rayjob(words.RETRYING, suspend=suspend, backoffLimit=1)
    assert look(job, cluster=raycluster(), submitter=submitter()).acts == [
        f"delete rayclusters {CLUSTER}",
        "delete jobs j",
    ]
    assert look(job).state == words.NEW


# Over


def over(state: str = words.COMPLETE, **spec: Any) -> Object:
    job = rayjob(state, **spec)
    job["status"] |= {"endTime": stamp(BEGAN), "jobStatus": "SUCCEEDED" if state == words.COMPLETE else "FAILED"}
    return job


@pytest.mark.parametrize("state", [words.COMPLETE, words.FAILED])
def test_the_cluster_goes_when_its_time_is_over(state: str) -> None:
    job = over(state, ttlSecondsAfterFinished=10)
    early = look(job, after_ms=9_000, cluster=raycluster(), submitter=submitter())
    assert (early.acts, early.plan.again_ms) == ([], 1_000)
    late = look(job, after_ms=10_000, cluster=raycluster(), submitter=submitter())
    assert late.acts == [f"delete rayclusters {CLUSTER}"], "the submitter stays, for its logs"
    assert look(job, after_ms=11_000).plan.operations == ()


def test_the_cluster_stays_unless_asked_for() -> None:
    assert look(over(shutdownAfterJobFinishes=False), after_ms=10**9, cluster=raycluster()).acts == []
    selected = over(clusterSelector={"ray.io/cluster": "theirs"}, rayClusterSpec=None)
    assert look(selected, after_ms=10**9, cluster=raycluster()).acts == [], "a selected cluster is never deleted"


@pytest.mark.parametrize("state", [words.COMPLETE, words.FAILED])
def test_what_is_over_cannot_be_suspended(state: str) -> None:
    found = look(over(state, suspend=True, ttlSecondsAfterFinished=10), cluster=raycluster())
    assert found.plan.operations == ()


def rule(policy: str, ttl: int, **condition: str) -> Object:
    return {"policy": policy, "condition": {"ttlSeconds": ttl, **(condition or {"jobStatus": "SUCCEEDED"})}}


def test_deletion_rules_go_by_time_and_the_most_destructive_first() -> None:
    rules = [rule("DeleteWorkers", 10), rule("DeleteCluster", 20), rule("DeleteSelf", 30)]
    job = over(shutdownAfterJobFinishes=False, deletionStrategy={"deletionRules": rules})
    cluster = raycluster()
    assert look(job, after_ms=9_000, cluster=cluster).plan.again_ms == 1_000
    workers = look(job, after_ms=10_000, cluster=cluster)
    assert (workers.acts, workers.plan.again_ms) == ([f"replace rayclusters {CLUSTER}"], 10_000)
    groups = workers.plan.operations[0].body["spec"]["workerGroupSpecs"]  # type: ignore[union-attr]
    assert [entry["suspend"] for entry in groups] == [True]
    assert look(job, after_ms=20_000, cluster=cluster).acts == [f"delete rayclusters {CLUSTER}"]
    assert look(job, after_ms=30_000, cluster=cluster).acts == ["delete rayjobs j"]


def test_deletion_rules_apply_to_the_outcome_they_name() -> None:
    rules = [rule("DeleteCluster", 0, jobStatus="FAILED"), rule("DeleteSelf", 5, jobDeploymentStatus="Failed")]
    strategy: Object = {"shutdownAfterJobFinishes": False, "deletionStrategy": {"deletionRules": rules}}
    assert look(over(**strategy), after_ms=60_000, cluster=raycluster()).acts == []
    failed = over(words.FAILED, **strategy)
    assert look(failed, cluster=raycluster()).acts == [f"delete rayclusters {CLUSTER}"]
    assert look(failed, after_ms=5_000).acts == ["delete rayjobs j"]


def test_older_deletion_policies() -> None:
    strategy = {"onSuccess": {"policy": "DeleteNone"}, "onFailure": {"policy": "DeleteCluster"}}
    wanted: Object = {"deletionStrategy": strategy, "ttlSecondsAfterFinished": 10}
    assert look(over(**wanted), after_ms=60_000, cluster=raycluster()).acts == []
    failed = over(words.FAILED, **wanted)
    assert look(failed, after_ms=9_000, cluster=raycluster()).plan.again_ms == 1_000
    assert look(failed, after_ms=10_000, cluster=raycluster()).acts == [f"delete rayclusters {CLUSTER}"]


# Deleting, validation, foreign jobs


def test_a_deleted_job_is_let_go() -> None:
    job = rayjob(words.RUNNING, meta={"deletionTimestamp": stamp(BEGAN)})
    found = look(job, cluster=raycluster(), submitter=submitter())
    assert found.acts == ["replace rayjobs j"]
    assert found.plan.operations[0].body["metadata"]["finalizers"] == []  # type: ignore[union-attr]
    assert look(rayjob(finalizer=False, meta={"deletionTimestamp": stamp(BEGAN)})).plan.operations == ()


def test_jobs_of_others_are_left_alone() -> None:
    assert look(rayjob(managedBy="kueue.x-k8s.io/multikueue")).plan.operations == ()
    assert look(rayjob(managedBy="ray.io/kuberay-operator")).state == words.INITIALIZING


INVALID = [
    pytest.param({"suspend": True, "shutdownAfterJobFinishes": False}, id="suspend without shutdown"),
    pytest.param(
        {"suspend": True, "clusterSelector": {"ray.io/cluster": "c"}, "rayClusterSpec": None}, id="suspend selected"
    ),
    pytest.param({"rayClusterSpec": None}, id="no cluster at all"),
    pytest.param({"rayClusterSpec": cluster_spec(headGroupSpec={"template": {}})}, id="head without containers"),
    pytest.param({"submissionMode": "SidecarMode", "clusterSelector": {"ray.io/cluster": "c"}}, id="sidecar selected"),
    pytest.param({"submissionMode": "SidecarMode", "submitterPodTemplate": {"spec": {}}}, id="sidecar with template"),
    pytest.param({"submissionMode": "SidecarMode", "submitterConfig": {}}, id="sidecar with config"),
    pytest.param(
        {
            "submissionMode": "SidecarMode",
            "rayClusterSpec": cluster_spec(
                headGroupSpec={"template": {"spec": {"restartPolicy": "Always", "containers": [{"name": "c"}]}}}
            ),
        },
        id="sidecar that restarts",
    ),
    pytest.param(
        {"backoffLimit": 1, "clusterSelector": {"ray.io/cluster": "c"}, "rayClusterSpec": None}, id="retry selected"
    ),
    pytest.param({"backoffLimit": 1, "submissionMode": "InteractiveMode"}, id="retry interactive"),
    pytest.param({"backoffLimit": -1}, id="negative retries"),
    pytest.param({"activeDeadlineSeconds": 0}, id="no time"),
    pytest.param({"submissionMode": "Other"}, id="unknown mode"),
    pytest.param({"rayClusterSpec": cluster_spec(group(template=pod_template("much")))}, id="no quantity"),
    pytest.param({"meta": {"annotations": {RUNTIME: "soon"}}}, id="no runtime"),
    pytest.param({"meta": {"annotations": {OUTCOME: "glory"}}}, id="no outcome"),
    pytest.param({"deletionStrategy": {"deletionRules": [rule("DeleteCluster", 1)]}}, id="rules and shutdown together"),
]


@pytest.mark.parametrize("spec", INVALID)
def test_an_invalid_job_is_marked_and_nothing_is_made(spec: Object) -> None:
    found = look(rayjob(**spec))
    assert found.status is not None
    assert (found.state, found.status["reason"]) == (words.VALIDATION_FAILED, "ValidationFailed")
    assert found.status["message"]
    assert [act.split()[:2] for act in found.acts] == [["create", "events"]]


def test_an_invalid_job_rests_also_when_its_spec_is_put_right() -> None:
    bad: Object = {"suspend": True, "shutdownAfterJobFinishes": False}
    job = rayjob(words.VALIDATION_FAILED, **bad)
    written = look(job).status
    assert written is not None
    assert look(job | {"status": written}).status is None
    mended = rayjob(words.VALIDATION_FAILED, suspend=True)
    assert look(mended).status is None


def test_names_that_are_too_long_or_no_labels_are_invalid() -> None:
    for name in ("x" * 48, "a.b", "1a"):
        assert look(rayjob(meta={"name": name})).state == words.VALIDATION_FAILED
    assert look(rayjob(meta={"name": "x" * 47})).state == words.INITIALIZING
