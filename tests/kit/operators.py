"""A small simulated operator: Spark's. Enough to suspend, resume, run and end.

It makes real pods, which the real scheduler binds and KWOK runs; annotations of the pod templates say for how long.
"""

from typing import Any, ClassVar

from muster.fakecluster.apiserver.store import ChangeType
from muster.fakecluster.controllers import WorkQueue
from muster.fakecluster.operations import ApiOperation, Create, DeleteObject, OperationPlan, Replace
from muster.model.api import PODS, SPARKAPPLICATIONS, ApiResource

Obj = dict[str, Any]


class _Operator:
    """Keeps objects and the pods that are theirs; keys are ``Kind namespace/name``."""

    kinds: ClassVar[tuple[ApiResource, ...]]
    label: ClassVar[str]
    """The label that says on a pod whose it is."""

    def __init__(self) -> None:
        self.queue = WorkQueue()
        self.watches = (*self.kinds, PODS)
        self._objects: dict[str, Obj] = {}
        self._pods: dict[str, dict[str, Obj]] = {}

    def heard(self, kind: ChangeType, resource: ApiResource, found: Obj) -> None:
        meta = found["metadata"]
        if resource == PODS:
            key = (meta.get("labels") or {}).get(self.label, "").replace(".", " ", 1)
            key = key.replace(" ", f" {meta['namespace']}/", 1)
            if not key:
                return
            kept, name = self._pods.setdefault(key, {}), meta["name"]
        else:
            kept, name = self._objects, f"{found['kind']} {meta['namespace']}/{meta['name']}"
            key = name
        if kind == "DELETED":
            kept.pop(name, None)
        else:
            kept[name] = found
        self.queue.mark(key)

    def plan(self, key: str, now: int) -> OperationPlan:
        found = self._objects.get(key)
        if found is None or found["metadata"].get("deletionTimestamp"):
            return OperationPlan()
        status, pods = self.look(found, self._pods.get(key, {}))
        operations: list[ApiOperation] = list(pods)
        if status is not None and status != (found.get("status") or {}):
            resource = next(each for each in self.kinds if each.kind == found["kind"])
            operations.append(Replace(resource, {**found, "status": status}, "status"))
        return OperationPlan(tuple(operations))

    def look(self, found: Obj, pods: dict[str, Obj]) -> tuple[Obj | None, list[ApiOperation]]:
        raise NotImplementedError

    def pod(self, found: Obj, owner: Obj, name: str, template: Obj, **labels: str) -> Create:
        """A pod of the object, controlled by ``owner``."""
        meta = owner["metadata"]
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
        }
        body = {
            "metadata": {
                "name": name,
                "labels": {self.label: f"{found['kind']}.{found['metadata']['name']}", **labels},
                "annotations": (template.get("metadata") or {}).get("annotations") or {},
                "ownerReferences": [reference],
            },
            "spec": {"restartPolicy": "Never", **template["spec"]},
        }
        return Create(PODS, meta["namespace"], body)


def phase_of(pod: Obj | None) -> str:
    return str(((pod or {}).get("status") or {}).get("phase", ""))


def deletions(pods: dict[str, Obj]) -> list[ApiOperation]:
    return [
        DeleteObject(PODS, pod["metadata"]["namespace"], name, pod["metadata"]["uid"])
        for name, pod in pods.items()
        if not pod["metadata"].get("deletionTimestamp")
    ]


class SparkOperator(_Operator):
    """The driver is the application's pod, the executors are the driver's; they outlive it by a moment."""

    kinds: ClassVar[tuple[ApiResource, ...]] = (SPARKAPPLICATIONS,)
    label: ClassVar[str] = "sparkoperator.k8s.io/app-name"

    def look(self, found: Obj, pods: dict[str, Obj]) -> tuple[Obj | None, list[ApiOperation]]:
        spec, name = found["spec"], found["metadata"]["name"]
        state = ((found.get("status") or {}).get("applicationState") or {}).get("state", "")
        driver = pods.get(f"{name}-driver")
        executors = {key: pod for key, pod in pods.items() if key != f"{name}-driver"}
        if state == "COMPLETED":
            return None, deletions(executors)
        if spec.get("suspend"):
            return _state("SUSPENDING" if pods else "SUSPENDED"), deletions(pods)
        if driver is None:
            template = self._template(spec["driver"], spec["driver"].get("annotations") or {})
            made = self.pod(found, found, f"{name}-driver", template, **{"spark-role": "driver"})
            return _state("SUBMITTED"), [made]
        if phase_of(driver) == "Succeeded":
            return _state("COMPLETED"), []
        if phase_of(driver) != "Running":
            return _state("SUBMITTED"), []
        template = self._template(spec["executor"], {})
        wanted = [f"{name}-exec-{index}" for index in range(spec["executor"].get("instances") or 1)]
        owner = {"apiVersion": "v1", "kind": "Pod", **driver}
        missing = [self.pod(found, owner, key, template, **{"spark-role": "executor"}) for key in wanted]
        return _state("RUNNING"), [each for each in missing if each.body["metadata"]["name"] not in pods]

    @staticmethod
    def _template(role: Obj, annotations: Obj) -> Obj:
        requests = {"cpu": str(role.get("cores") or 1), "memory": "1408Mi"}
        container = {"name": "spark", "image": "spark", "resources": {"requests": requests}}
        return {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}


def _state(state: str) -> Obj:
    return {"applicationState": {"state": state}}
