"""The edits of `kit.rayfields`, played on the simulated operator and all stages; what came of each, and the page.

All objects of one kind and state live in one cell, each with room of its own, so that a state is played once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any

import yaml
from msgspec import Struct, to_builtins

from kit import jobs
from kit import rayfields as data
from kit.compose import REPOSITORY
from kit.disorder import DisorderedCell
from kit.elastic import tree
from kit.rayfields import Field, Object
from kit.story import rayjob
from muster.core.stage import Folder
from muster.core.workloads.edits import BY_HAND, Each, SpecOf
from muster.events.base import Decision
from muster.events.envelope import Stored
from muster.fakecluster.world import SimCluster
from muster.model import api
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import job_status
from muster.told.wording import jobs as words

PAGE = REPOSITORY / "docs" / "reference" / "ray-fields.md"
NODES = {f"node-{index}": {"cpu": "256", "memory": "1Ti", "pods": "500"} for index in range(4)}
RESOURCES = {"RayJob": api.RAYJOBS, "RayCluster": api.RAYCLUSTERS, "RayService": api.RAYSERVICES}
CLUSTER_OF = {"RayJob": "rayClusterSpec", "RayCluster": "", "RayService": "rayClusterConfig"}
STATES = {"RayJob": data.JOB_STATES, "RayCluster": data.CLUSTER_STATES, "RayService": data.SERVICE_STATES}
STARTED_MS, LOOKED_MS, ENDS_MS = 30_000, 150_000, 10_000


class Row(Struct, frozen=True):
    """An edit of a field of an object in a state."""

    kind: str
    state: str
    field: Field
    does: str

    @property
    def name(self) -> str:
        return f"{self.kind} {self.state} {self.field.path} {json.dumps(self.field.value)[:60]}"


class Came(Struct, frozen=True):
    """What came of an edit: KubeRay's part, Muster's decisions, the charge, the pods, and the sentence of the job."""

    does: str
    decided: tuple[str, ...]
    before: int
    charged: int
    runs: int
    """cpu of the pods that live, in thousandths, without what submits"""
    reads: str


def rows() -> list[Row]:
    """All edits, by kind and state."""
    made: list[Row] = []
    for kind, own in (("RayJob", data.OF_JOBS), ("RayCluster", ()), ("RayService", data.OF_SERVICES)):
        for index, state in enumerate(STATES[kind]):
            made += [Row(kind, state, field, field.does[index]) for field in own]
            for field, service in data.OF_CLUSTERS:
                inner = field if kind == "RayCluster" else _within(field, CLUSTER_OF[kind])
                made.append(Row(kind, state, inner, _does(kind, state, field, service)))
    return made


def _within(field: Field, part: str) -> Field:
    return Field(f"{part}.{field.path}", field.value, field.does, field.record, field.invalid)


def _does(kind: str, state: str, field: Field, service: str) -> str:
    """A RayJob's cluster is made once, from the spec of that moment; a RayService follows its spec."""
    if kind == "RayCluster":
        return field.does[data.CLUSTER_STATES.index(state)]
    if field.invalid:
        return data.DIES if kind == "RayJob" else data.NEVER if state == "waits" else data.NOTHING
    if state == "waits":
        return data.NEVER if field.path in ("suspend", "managedBy", "upgradeStrategy") else field.does[0]
    return data.NOTHING if kind == "RayJob" else service


# --- played ---------------------------------------------------------------------------------------------------------


class Play:
    """One kind in one state: an object for each row."""

    def __init__(self, kind: str, state: str) -> None:
        self.kind, self.state = kind, state
        self.cluster = SimCluster(NODES, suspend_new=True)
        kinds = ("RayJob", "RayService", "RayCluster", "Job")
        self.cell = DisorderedCell(self.cluster, kinds=kinds, isolate=False)
        room = "0" if state == "waits" else "1000"
        self.call("POST", api.QUOTA_TREES, "kube-system", body=tree(("ns", room, room), profile="ack", total="1000"))
        self.cell.advance(1_000)
        self.rows = {f"f-{number}": row for number, row in enumerate(rows()) if (row.kind, row.state) == (kind, state)}
        for name in self.rows:
            self.call("POST", RESOURCES[kind], "ns", body=made(kind, name, over=state == "over"))
        self.cell.advance(STARTED_MS)

    def call(self, method: str, resource: api.ApiResource, namespace: str = "", name: str = "", body: Any = None,
             form: str = "application/json") -> Any:  # fmt: skip
        encoded = None if body is None else json.dumps(body).encode()
        path = resource.path(namespace, name)
        answer = self.cluster.server.handle(method, path, body=encoded, content_type=form)
        return json.loads(answer.body) if answer.ok else None

    def played(self) -> dict[str, Came]:
        """{name of the row: what came of it}"""
        before = {name: self.pods(name) for name in self.rows}
        clusters = {name: self.clusters(name) for name in self.rows}
        charges = {name: self.charged(name) for name in self.rows}
        start = len(self.cell.log)
        for name, row in self.rows.items():
            assert self.edit(name, row.field), row.name
        self.cell.advance(3_000)
        if self.state == "waits":
            body = self.call("GET", api.QUOTA_TREES, "kube-system", "tree")
            body["spec"] = tree(("ns", "1000", "1000"), total="1000")["spec"]
            self.call("PUT", api.QUOTA_TREES, "kube-system", "tree", body)
        self.cell.advance(LOOKED_MS)
        told = decided(self.cell.log[start:])
        state, folder = ReadState(), Folder(ReadModel())
        for stored in self.cell.log:
            folder.fold(state, stored)
        came: dict[str, Came] = {}
        for name, row in self.rows.items():
            body = self.body(name)
            after, uid = self.pods(name), body["metadata"]["uid"]
            seen = (before[name], after, clusters[name], self.clusters(name))
            came[row.name] = Came(
                does=done(self.state, body, told.get(uid, ()), *seen),
                decided=tuple(dict.fromkeys(told.get(uid, ()))),
                before=charges[name],
                charged=self.charged(name),
                runs=sum(map(cpu, after)),
                reads=re.sub(rf"\b{name}(-\w+)*\b", "NAME", words.text(job_status(state, uid), state.now)),
            )
        return came

    def body(self, name: str) -> Object:
        body: Object = self.call("GET", RESOURCES[self.kind], "ns", name)
        return body

    def edit(self, name: str, field: Field) -> bool:
        """Whether the API server took it."""
        form = "application/json-patch+json"
        return self.call("PATCH", RESOURCES[self.kind], "ns", name, [edit_of(field)], form) is not None

    def clusters(self, name: str) -> set[str]:
        return clusters_of(self.call("GET", api.RAYCLUSTERS)["items"], name)

    def pods(self, name: str) -> list[Object]:
        return pods_of(self.call("GET", api.PODS)["items"], self.clusters(name))

    def charged(self, name: str) -> int:
        charge = self.cell.seats["quota_accountant"].state.ledger.charges.get(self.body(name)["metadata"]["uid"])
        return int(charge.request.get("cpu", 0)) if charge is not None else 0


def made(kind: str, name: str, *, over: bool, namespace: str = "ns") -> Object:
    """A head and two workers of one core each."""
    cluster: Object = {
        "headGroupSpec": {"rayStartParams": {}, "template": data.template("1")}, "workerGroupSpecs": [data.SMALL],
    }  # fmt: skip
    if kind == "RayCluster":
        body = jobs.raycluster(name, namespace)
        body["spec"] = cluster | {"suspend": True}
    elif kind == "RayService":
        body = jobs.rayservice(name, namespace)
        body["spec"] = {"serveConfigV2": "applications: []", "rayClusterConfig": cluster}
    else:
        body = rayjob(name, namespace, runtime="2s" if over else "99h")
        body["spec"] |= {"rayClusterSpec": cluster, "ttlSecondsAfterFinished": 100_000}
    return body


def edit_of(field: Field) -> Object:
    """A step of a JSON patch."""
    steps = [step for step in re.split(r"[.\[\]]+", field.path) if step]
    path = "/spec/" + "/".join(steps)
    return {"op": "remove", "path": path} if field.value is None else {"op": "add", "path": path, "value": field.value}


def clusters_of(listed: Sequence[Object], name: str) -> set[str]:
    """Names of the RayClusters of an object."""
    owned = [(each["metadata"], each["metadata"].get("ownerReferences", ())) for each in listed]
    return {meta["name"] for meta, owners in owned if name in (meta["name"], *(owner["name"] for owner in owners))}


def pods_of(listed: Sequence[Object], names: Collection[str]) -> list[Object]:
    """The pods of these RayClusters that have not ended."""
    return [pod for pod in listed if pod["metadata"].get("labels", {}).get("ray.io/cluster") in names
            and pod["metadata"]["labels"].get("ray.io/node-type")
            and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")]  # fmt: skip


def decided(log: Iterable[Stored]) -> dict[str, list[str]]:
    """{uid: names of the decisions about it, in order}"""
    about: dict[str, list[str]] = {}
    for stored in log:
        for event in stored.commit.events:
            if isinstance(event, Decision):
                for uid in set(re.findall(r'"uid": "([^"]+)"', json.dumps(to_builtins(event)))):
                    about.setdefault(uid, []).append(str(to_builtins(event)["type"]))
    return about


def done(
    state: str, body: Object, told: Collection[str], before: list[Object], after: list[Object], old: set[str],
    new: set[str],
) -> str:  # fmt: skip
    """What KubeRay did about an edit, by the object, its pods and the names of its clusters before and after.

    ``told``: what was decided about the object.
    """
    word = (body.get("status") or {}).get("jobDeploymentStatus")
    if word == "ValidationFailed":
        return data.DIES
    if state == "runs" and word == "Failed":
        return data.ENDS
    if state != "waits" and "gang_admitted" in told:
        return data.RESTARTS
    return _compared(state, before, after, old, new)


def _compared(state: str, before: list[Object], after: list[Object], old: set[str], new: set[str]) -> str:
    if state == "waits":
        return data.STARTS if after else data.NEVER
    earlier, later = ({pod["metadata"]["uid"] for pod in pods} for pods in (before, after))
    if before and not after:
        return data.GONE
    if earlier == later:
        return data.STUCK if new - old else data.NOTHING
    if old and not old & new:
        return data.SECOND
    if not earlier & later:
        return data.AGAIN
    return data.MORE if len(later) > len(earlier) else data.FEWER if len(later) < len(earlier) else data.AGAIN


def cpu(pod: Object) -> int:
    """Of the container of Ray: what KubeRay puts beside it is not charged in profile ack."""
    sizes = pod["spec"]["containers"][0].get("resources") or {}
    return int(sizes.get("requests", {}).get("cpu", "0")) * 1_000


@cache
def played(kind: str, state: str) -> dict[str, Came]:
    return Play(kind, state).played()


# --- the policies and the schemas -----------------------------------------------------------------------------------


GUARDED = {"free": "allowed", "falls": "may fall", "granted": "up to the grant", "ceiling": "up to the grant"}


def guarded(row: Row) -> str:
    """What the policies say of an edit while the object runs; they are made from the same shapes."""
    if row.state in ("waits", "over"):
        return "allowed"
    edit: Any = BY_HAND[row.kind][0]
    for step in row.field.path.replace("[0]", ".[0]").split("."):
        if isinstance(edit, SpecOf):
            edit = BY_HAND[edit.kind][0]
        edit = edit.shape if isinstance(edit, Each) and step == "[0]" else edit
        if step != "[0]":
            edit = edit.get(step) if isinstance(edit, dict) else None
        if edit is None:
            return "refused"
    if not isinstance(edit, str):
        return "its free parts"
    return GUARDED[edit]


def schema_fields() -> dict[str, list[str]]:
    """{kind: paths of its fields, down to templates and options}"""
    fields = {"RayService": list(data.SERVICE_FIELDS)}
    for kind in ("RayCluster", "RayJob"):
        path = REPOSITORY / "deploy" / "crds" / f"ray.io_{kind.lower()}s.yaml"
        schema = yaml.safe_load(path.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        fields[kind] = _walk(schema["properties"]["spec"], "")
    return fields


def _walk(schema: Object, at: str) -> list[str]:
    items = schema.get("items", {})
    inner, at = (items, f"{at}[0]") if items.get("properties") else (schema, at)
    if not inner.get("properties"):
        return [at]
    under = [_walk(part, f"{at}.{key}" if at else key) for key, part in inner["properties"].items()]
    return [path for paths in under for path in paths]


# --- the page -------------------------------------------------------------------------------------------------------


def table() -> str:
    """The rows of the page."""
    lines: list[str] = []
    for kind, states in STATES.items():
        for state in states:
            lines += [f"\n### A {kind} that {state if state != 'over' else 'is over'}\n",
                      "| Field, new value | KubeRay | Muster: decisions, charge in cpu | Policies | The user reads |",
                      "| --- | --- | --- | --- | --- |"]  # fmt: skip
            came = played(kind, state)
            for row in (row for row in rows() if (row.kind, row.state) == (kind, state)):
                one = came[row.name]
                decided = ", ".join(f"`{name}`" for name in one.decided) or "none"
                charge = f"{one.before // 1000} → {one.charged // 1000}" if one.before != one.charged else (
                    f"{one.charged // 1000}")  # fmt: skip
                value = json.dumps(row.field.value)
                value = "removed" if row.field.value is None else f"`{value}`" if len(value) < 40 else "changed"
                lines.append(f"| `{row.field.path}`: {value} | {one.does} | {decided}; {charge} | {guarded(row)} | "
                             f"`{one.reads}` |")  # fmt: skip
    return "\n".join(lines).lstrip("\n") + "\n"


def unchanged() -> str:
    """The fields of which no edit changes what runs."""
    lines = ["| Fields | Why |", "| --- | --- |"]
    everywhere = [(kind, path) for kind, paths in schema_fields().items() for path in paths]
    for pattern, why in data.SAME:
        names = sorted({path for _, path in everywhere if re.fullmatch(pattern, path)}, key=len)
        short = sorted({name.removeprefix("rayClusterSpec.") for name in names})
        lines.append(f"| {', '.join(f'`{name}`' for name in short)} | {why} |")
    return "\n".join(lines) + "\n"
