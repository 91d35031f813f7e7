"""A tenant that is generated: every field that the server's own OpenAPI knows of a kind and of a pod, edited in turn.

And a judge of what came of it, which shares no code with the policies or with Muster's own counting.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

from kit import jobs
from kit.kubeclient import KubeClient, Object
from muster.core.workloads.registry import KINDS

Edit = dict[str, Any]
"""One operation of a JSON patch."""
DEEP = 7
UNITS = {
    "n": Decimal(10) ** -9, "u": Decimal(10) ** -6, "m": Decimal(10) ** -3, "": Decimal(1), "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6, "G": Decimal(10) ** 9, "T": Decimal(10) ** 12, "P": Decimal(10) ** 15,
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30, "Ti": Decimal(2) ** 40,
}  # fmt: skip


# --- what may be edited -----------------------------------------------------------------------------------------------


class Schemas:
    """The OpenAPI of one server: of pods, and of every kind."""

    def __init__(self, documents: dict[str, Object]) -> None:
        self.known: dict[str, Object] = {}
        for document in documents.values():
            self.known |= document["components"]["schemas"]

    def of_kind(self, group: str, version: str, kind: str) -> Object:
        for schema in self.known.values():
            marks = schema.get("x-kubernetes-group-version-kind", [])
            if {"group": group, "version": version, "kind": kind} in marks:
                return schema
        raise LookupError(f"the server has no schema of {kind}")

    def named(self, name: str) -> Object:
        return self.known[name]

    def whole(self, schema: Object) -> Object:
        """A schema with its references followed."""
        for part in (schema, *schema.get("allOf", ())):
            if "$ref" in part:
                return self.known[part["$ref"].rpartition("/")[2]]
        return schema

    def example(self, schema: Object, depth: int = 0) -> Any:
        """A value that asks for as much as it can."""
        schema = self.whole(schema)
        if "enum" in schema:
            return schema["enum"][-1]
        kind = schema.get("type", "string" if "oneOf" in schema else "object")
        if kind == "integer":
            return 40
        if kind in ("string", "number"):
            return "64" if "oneOf" in schema or "Quantity" in str(schema.get("description", "")) else "other"
        if kind == "boolean":
            return True
        if kind == "array":
            return [self.example(schema["items"], depth + 1)] if depth < DEEP else []
        if "additionalProperties" in schema:
            return {"cpu": "64", "nvidia.com/gpu": "8"}
        if depth >= DEEP:
            return {}
        wanted = {*schema.get("required", ()), "requests", "limits", "resources"}
        found = schema.get("properties", {})
        return {key: self.example(each, depth + 1) for key, each in found.items() if key in wanted}

    def edits(self, schema: Object, value: Any, at: str) -> Iterator[Edit]:
        """Every field below a value, one by one: made, changed, taken away."""
        schema = self.whole(schema)
        if isinstance(value, dict):
            for key in {**schema.get("properties", {}), **value}:
                inner = schema.get("properties", {}).get(key, schema.get("additionalProperties", {}))
                path = f"{at}/{key.replace('~', '~0').replace('/', '~1')}"
                if key in value:
                    yield {"op": "remove", "path": path}
                    yield from self.edits(inner if isinstance(inner, dict) else {}, value[key], path)
                else:
                    yield {"op": "add", "path": path, "value": self.example(inner)}
        elif isinstance(value, list):
            for index, each in enumerate(value):
                yield {"op": "remove", "path": f"{at}/{index}"}
                yield from self.edits(schema.get("items", {}), each, f"{at}/{index}")
            more = copy.deepcopy(value[0]) if value else self.example(schema.get("items", {}))
            if isinstance(more, dict):
                more |= {key: "twin" for key in ("name", "groupName") if key in more}
            yield {"op": "add", "path": f"{at}/-", "value": more}
        elif isinstance(value, bool):
            yield {"op": "replace", "path": at, "value": not value}
        elif isinstance(value, int):
            yield from ({"op": "replace", "path": at, "value": each} for each in (0, value + 1, 5_000))
        else:
            yield from ({"op": "replace", "path": at, "value": each} for each in ("other", "64"))


async def schemas_of(kube: KubeClient) -> Schemas:
    paths = ["api/v1", "apis/apps/v1", *(f"apis/{row.resource.api_version}" for row in KINDS.values())]
    return Schemas({path: await kube.request("GET", f"/openapi/v3/{path}") for path in dict.fromkeys(paths)})


def templates_in(value: Any, at: str = "") -> Iterator[str]:
    """JSON pointers of the pod templates below a value: of what has a spec with containers."""
    if isinstance(value, dict):
        if "containers" in (value.get("spec") or {} if isinstance(value.get("spec"), dict) else {}) and at:
            yield at
        for key, each in value.items():
            yield from templates_in(each, f"{at}/{key}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from templates_in(each, f"{at}/{index}")


def all_edits(schemas: Schemas, found: Object) -> list[Edit]:
    """Every edit of an object: of its spec, of its pods, of whose it is, and of what it is labelled with."""
    group, _, version = found["apiVersion"].rpartition("/")
    schema = schemas.whole(schemas.of_kind(group, version, found["kind"]))
    spec = schemas.whole(schema["properties"]["spec"])
    made = [*schemas.edits(spec, found["spec"], "/spec")]
    template = schemas.named("io.k8s.api.core.v1.PodTemplateSpec")
    for pointer in templates_in(found["spec"], "/spec"):
        made += schemas.edits(template, jobs.at(found, pointer), pointer)
    for key in ("kai.scheduler/queue", "quota.scheduling.alibabacloud.com/name", "ray.io/cluster"):
        made.append({"op": "add", "path": "/metadata/labels", "value": {key: "devops"}})
    for key in ("muster.dev/granted", "muster.dev/intent", "scheduling.x-k8s.io/suspend", "muster.dev/hold"):
        made.append({"op": "add", "path": f"/metadata/annotations/{key.replace('/', '~1')}", "value": "small=5000"})
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "x", "uid": "x", "controller": True}
    made.append({"op": "add", "path": "/metadata/ownerReferences", "value": [owner]})
    made.append({"op": "remove", "path": "/metadata/ownerReferences"})
    return [*{str(each): each for each in made}.values()]


def edited(found: Object, edits: Iterable[Edit]) -> Object:
    """An object with the edits made here, as the API server would make them; one that finds no place is left out."""
    made = copy.deepcopy(found)
    for each in edits:
        above, _, key = each["path"].rpartition("/")
        key = key.replace("~1", "/").replace("~0", "~")
        try:
            place = jobs.at(made, above)
            if isinstance(place, list):
                if each["op"] == "remove":
                    del place[int(key)]
                elif key == "-":
                    place.append(copy.deepcopy(each["value"]))
                else:
                    place[int(key)] = copy.deepcopy(each["value"])
            elif each["op"] == "remove":
                place.pop(key, None)
            else:
                place[key] = copy.deepcopy(each["value"])
        except (KeyError, IndexError, TypeError, ValueError):
            continue
    return made


def patches(edits: list[Edit], seed: int) -> Iterator[list[Edit]]:
    """All of them in some order, and then pairs for ever."""
    chance = random.Random(seed)
    yield from ([each] for each in chance.sample(edits, len(edits)))
    while True:
        yield chance.sample(edits, 2)


# --- the judge --------------------------------------------------------------------------------------------------------

Amounts = dict[str, Decimal]


def quantity(text: object) -> Decimal:
    said = str(text)
    digits = said.rstrip("numkMGTPKi")
    return Decimal(digits) * UNITS[said[len(digits) :]]


def plus(*parts: Amounts) -> Amounts:
    found: Amounts = {}
    for part in parts:
        for key, amount in part.items():
            found[key] = found.get(key, Decimal(0)) + amount
    return found


def times(part: Amounts, count: int) -> Amounts:
    return {key: amount * count for key, amount in part.items()}


def most(*parts: Amounts) -> Amounts:
    return {key: max(part.get(key, Decimal(0)) for part in parts) for key in {key for part in parts for key in part}}


def of_container(container: Object) -> Amounts:
    asked = container.get("resources") or {}
    return {
        key: quantity(each) for key, each in {**(asked.get("limits") or {}), **(asked.get("requests") or {})}.items()
    }


def of_pod(spec: Object) -> Amounts:
    """What Kubernetes counts of a pod; claims of devices, and what nobody counts, by their number."""
    inits = spec.get("initContainers") or []
    beside = plus(*(of_container(each) for each in inits if each.get("restartPolicy") == "Always"))
    first = most({}, *(of_container(each) for each in inits if each.get("restartPolicy") != "Always"))
    asked = most(plus(beside, *(of_container(each) for each in spec.get("containers") or [])), plus(first, beside))
    asked |= of_container({"resources": spec.get("resources")})
    asked = plus(asked, {key: quantity(each) for key, each in (spec.get("overhead") or {}).items()})
    asked["claims"] = Decimal(len(spec.get("resourceClaims") or []))
    asked["runtime"] = Decimal(bool(spec.get("runtimeClassName")))
    return asked


def of_cluster(spec: Object) -> Amounts:
    total = of_pod(spec["headGroupSpec"]["template"]["spec"])
    for group in spec.get("workerGroupSpecs") or []:
        low, high = group.get("minReplicas") or 0, group.get("maxReplicas")
        count = max(low, min(group.get("replicas", low), high if high is not None else 2**31))
        count = 0 if group.get("suspend") else count * max(1, group.get("numOfHosts") or 1)
        total = plus(total, times(of_pod(group["template"]["spec"]), count))
    if spec.get("enableInTreeAutoscaling"):
        own = (spec.get("autoscalerOptions") or {}).get("resources")
        total = plus(total, of_container({"resources": own or {"requests": {"cpu": "500m", "memory": "512Mi"}}}))
    return total


def total(found: Object) -> Amounts:
    """What the pods of an object ask for in all."""
    spec, kind = found["spec"], found["kind"]
    if kind == "RayCluster":
        return of_cluster(spec)
    if kind == "RayService":
        return of_cluster(spec["rayClusterConfig"])
    if kind == "RayJob":
        submitter = (spec.get("submitterPodTemplate") or {}).get("spec")
        return plus(of_cluster(spec["rayClusterSpec"]), of_pod(submitter) if submitter else {})
    if kind == "Job":
        count = min(spec.get("parallelism", 1), spec.get("completions") or 2**31)
        return times(of_pod(spec["template"]["spec"]), count)
    replicas = next((each for key, each in spec.items() if key.endswith("ReplicaSpecs")), None)
    if replicas is None:  # Of kinds that say what they need in words of their own every change counts.
        return {f"{key}: {said!r}": Decimal(1) for key, said in spec.items() if key != "suspend" and key not in HARMLESS}
    pods = [times(of_pod(each["template"]["spec"]), each.get("replicas", 1)) for each in replicas.values()]
    return plus(*pods, {"elastic": Decimal(bool(spec.get("elasticPolicy")))})


HARMLESS = (
    *("timeToLiveSeconds", "ttlSecondsAfterFinished", "activeDeadlineSeconds"),
    *("ttlStrategy", "podGC", "shutdown"),
)
"""Fields of such kinds that let nothing more run."""
STEERS = ("nodeName", "schedulerName", "schedulingGates", "priorityClassName", "priority")


def steering(found: Object) -> str:
    """Who places its pods, and whose quota they are charged to."""
    places = []
    for pointer in jobs.KINDS[found["kind"]].templates:
        try:
            template = jobs.at(found, pointer)
        except (KeyError, IndexError):
            continue
        places.append([(template.get("spec") or {}).get(key) for key in STEERS])
        places.append((template.get("metadata") or {}).get("labels"))
        places.append((template.get("metadata") or {}).get("annotations"))
    labels = found["metadata"].get("labels") or {}
    owners = [each["uid"] for each in found["metadata"].get("ownerReferences") or [] if each.get("controller")]
    return repr((places, {key: text for key, text in labels.items() if "queue" in key or "quota" in key}, owners))


def rests(found: Object) -> bool:
    _, *above, field = KINDS[found["kind"]].suspend_path.split("/")
    for key in above:
        found = found.get(key) or {}
    return bool(found.get(field))


def complaint(before: Object, after: Object) -> str:
    """What an edit that was let through has made worse; empty when nothing."""
    if rests(before) and not rests(after):
        return "it runs"
    if rests(after):
        return ""  # Whatever it says is judged again before it runs.
    try:
        was, now = total(before), total(after)
    except (KeyError, TypeError, StopIteration) as err:
        return f"it cannot be counted any more: {err!r}"
    grown = sorted(key for key in now if now[key] > was.get(key, Decimal(0)))
    if grown:
        return f"{grown[0]} from {was.get(grown[0], 0)} to {now[grown[0]]}"
    return "it is steered otherwise" if steering(before) != steering(after) else ""
