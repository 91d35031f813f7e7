"""What a tenant tries with marks that pods carry, or that others carry out: they take the rights that jobs take."""

import pytest

from kit import jobs
from kit.cluster import RAY
from kit.controlplane import ControlPlane
from kit.guarded import ALICE, LEAF, MANAGED, NO_SUBMIT, OPERATOR, client, cron_job, refused
from kit.kubeclient import Object
from muster.core.objects.meta import KAI_PRIORITY, KAI_QUEUE, RAY_PRIORITY
from muster.core.workloads.registry import KINDS

CLASS = "system-node-critical"
NO_LEAF = f"you may not submit to quota {NO_SUBMIT}"
NO_CLASS = f"you may not use priority class {CLASS}"


def marked(kind: str, at: str, labels: dict[str, str]) -> Object:
    """A job of which one pod template has labels, and which has one of its own: else those would be its own too."""
    made: Object = jobs.KINDS[kind].make("marked", MANAGED)
    made["metadata"]["labels"] = {"team": "a"}
    template = jobs.at(made, at)
    (template if kind == "SparkApplication" else template.setdefault("metadata", {}))["labels"] = labels
    return made


@pytest.mark.parametrize("kind", KINDS)
async def test_marks_of_pods_take_the_rights_of_marks_of_jobs(plane: ControlPlane, kind: str) -> None:
    """Those of pods count where the job has none."""
    async with client(plane, ALICE) as alice:
        for at in jobs.KINDS[kind].templates:
            await refused(alice.create(marked(kind, at, {KAI_QUEUE: NO_SUBMIT})), NO_LEAF)
            await refused(alice.create(marked(kind, at, {KAI_PRIORITY: CLASS})), NO_CLASS)
            made = await alice.create(marked(kind, at, {KAI_QUEUE: LEAF, KAI_PRIORITY: "low"}))
            await alice.delete(made["apiVersion"], kind, "marked", MANAGED, grace_s=0)


async def test_a_cron_job_hides_no_mark_in_its_pods(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice:
        for key, value, words in ((KAI_QUEUE, NO_SUBMIT, NO_LEAF), (KAI_PRIORITY, CLASS, f"class {CLASS}")):
            made = cron_job("marked", labels={"team": "a"})
            made["spec"]["jobTemplate"]["spec"]["template"]["metadata"] = {"labels": {key: value}}
            await refused(alice.create(made), words)


@pytest.mark.parametrize("kind", ["RayJob", "RayCluster", "RayService"])
async def test_the_class_of_a_ray_cluster_takes_the_right_in_its_label_too(plane: ControlPlane, kind: str) -> None:
    async with client(plane, ALICE) as alice:
        made: Object = jobs.KINDS[kind].make("marked", MANAGED)
        made["metadata"]["labels"] = {RAY_PRIORITY: CLASS}
        await refused(alice.create(made), NO_CLASS)


async def test_a_job_knows_its_pods_by_labels_that_nobody_changes(plane: ControlPlane) -> None:
    """By labels of its own choice a tenant would have it let go of each pod, and make another."""
    async with client(plane, ALICE) as alice:
        made = jobs.job("chosen", MANAGED, manualSelector=True, selector={"matchLabels": {"mine": "yes"}})
        made["spec"]["template"]["metadata"] = {"labels": {"mine": "yes"}}
        await refused(alice.create(made), "its pods would be known by labels that can be changed")


async def test_what_an_operator_makes_of_a_schedule_is_judged_like_what_people_make(plane: ControlPlane) -> None:
    """A person wrote the template, and no policy knows every kind that has one."""
    resources: Object = {"limits": {"nvidia.com/gpu": "8"}}
    container: Object = {"name": "submits", "image": "none", "resources": resources}
    submitter: Object = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    owner = {"apiVersion": RAY, "kind": "RayCronJob", "name": "nightly", "uid": "nightly", "controller": True}
    async with client(plane, OPERATOR) as operator:

        def made() -> Object:
            found: Object = jobs.KINDS["RayJob"].make("nightly-1", MANAGED)
            found["metadata"]["ownerReferences"] = [owner]
            return found

        big, pinned, lingers, kept = made(), made(), made(), made()
        big["spec"]["submitterPodTemplate"] = submitter
        pods = [each["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"] for each in (pinned, lingers)]
        pods[0]["nodeName"], pods[1]["terminationGracePeriodSeconds"] = "none", 86_400
        kept["metadata"]["finalizers"] = ["team.example/keep"]
        await refused(operator.create(big), "what submits is not charged")
        await refused(operator.create(pinned), "which passes by every scheduler")
        await refused(operator.create(lingers), "terminationGracePeriodSeconds of a pod template is 86400")
        await refused(operator.create(kept), "would keep its pods after it is deleted")
