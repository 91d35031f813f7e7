"""The steps of a recorded scenario, played on the simulated operator: what it publishes is compared with the record.

Compared is what Muster's own readers make of each object: all that Muster reads or shows comes from there. Names that
end in chance, uids, versions, times and the choice of a node differ from run to run, and have one form each.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from kit.kuberayrecords import SHARDS, Change, Object, changes
from muster.core.reading.watched import WATCHED
from muster.fakecluster.apiserver.status import StatusError
from muster.fakecluster.apiserver.store import StoredChange
from muster.fakecluster.kubelet import KubeletSettings
from muster.fakecluster.kuberay import OUTCOME, RUNTIME, OperatorSettings
from muster.fakecluster.scheduler import DefaultScheduler
from muster.fakecluster.world import SimCluster
from muster.model.api import JOBS, JSON_PATCH, MERGE_PATCH, PODS, RAYCLUSTERS, RAYJOBS, RAYSERVICES

RESOURCES = {each.kind: each for each in (RAYCLUSTERS, RAYJOBS, RAYSERVICES, PODS, JOBS)}
NODES = {f"node-{number}": {"cpu": "256", "memory": "1Ti", "pods": "250", "nvidia.com/gpu": "8"} for number in range(4)}
CHANCE = 5
"""The characters by which names of one kind differ."""
STEERING = "sim.muster.dev/"
DEFAULT_TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
TAIL_MS = 3_000
REACTS_MS = 20
"""What is written so soon after the last step comes before the operator has looked."""


class Told(Struct, frozen=True):
    """What one write told: of which object, and what Muster reads of it."""

    of: str
    says: str


class Story(Struct):
    """What was told, in order; what an object said already is left out."""

    lines: list[Told] = field(default_factory=list)

    def of(self) -> dict[str, list[str]]:
        """{object: all it said}"""
        found: dict[str, list[str]] = {}
        for line in self.lines:
            found.setdefault(line.of, []).append(line.says)
        return found


def scenario(path: Path) -> Object:
    """The first line of a record: its steps and what was created."""
    with gzip.open(path, "rt") as lines:
        found: Object = json.loads(next(lines))
    return found


# --- playing --------------------------------------------------------------------------------------------------------


class _Player:
    """One scenario on a cluster of its own."""

    def __init__(self, path: Path) -> None:
        self.first = scenario(path)
        self.recorded = [*changes(path)]
        self.names = _Names(self.recorded)
        self.old = path.parent.name == "1.6.2"
        settings = OperatorSettings(
            version="1.6" if self.old else "1.7",
            batch_scheduler="kai-scheduler" if "kai" in self.first.get("operatorFlags", "") else "",
        )
        kubelet = KubeletSettings(start_ms=20, stop_ms=30)
        schedulers = [DefaultScheduler("kai-scheduler")]
        self.cluster = SimCluster(NODES, kuberay=settings, kubelet=kubelet, scheduler=False, others=schedulers)
        self.began = self.cluster.clock.now()
        self.changes: list[Change] = []
        self.cluster.server.subscribe(self._heard)

    def play(self) -> list[Change]:
        for step in self.first["steps"]:
            wait = self.began + step["t_ms"] - self.cluster.clock.now()
            if wait >= REACTS_MS:
                self.cluster.advance(wait)
            if "do" in step:
                self._do(step)
        end = max(each.t_ms for each in self.recorded)
        self.cluster.advance(max(self.began + end + TAIL_MS - self.cluster.clock.now(), TAIL_MS))
        return self.changes

    def _heard(self, change: StoredChange) -> None:
        if change.resource.kind in SHARDS:
            at = self.cluster.clock.now() - self.began
            self.changes.append(Change(at, change.resource.kind, change.type == "DELETED", change.object))

    def _do(self, step: Object) -> None:
        verb, *rest = step["do"].split()
        if rest[:2] == ["the", "operator"]:
            down = self.cluster.driver.down
            down.append(self.cluster.operator) if verb == "stop" else down.remove(self.cluster.operator)
            return
        kind, name = rest
        if kind not in RESOURCES:
            return
        namespace, objects, resource = self.first["namespace"], self.cluster.server.objects, RESOURCES[kind]
        now = _Names(self.changes)
        name = self._here(now, name)
        try:
            match verb:
                case "create":
                    objects.create(resource, namespace, _steered(self._manifest(kind, name)))
                case "patch":
                    patch = self._pruned(kind, json.loads(self._here(now, json.dumps(step["patch"]))))
                    form = JSON_PATCH if step["patchType"] == "json" else MERGE_PATCH
                    objects.patch(resource, namespace, name, patch, form)
                case "delete":
                    objects.delete(resource, namespace, name)
        except StatusError as err:
            assert "refused" in step, f"{step['do']} was refused: {err}"

    def _manifest(self, kind: str, name: str) -> Object:
        given = [self.first["manifest"], *self.first["manifests"]]
        found = next(each for each in given if each["kind"] == kind and each["metadata"]["name"] == name)
        made: Object = self._pruned(kind, found)
        return made

    def _pruned(self, kind: str, body: Any) -> Any:
        """The definition of a RayService has no ``spec.suspend`` in 1.6."""
        if not self.old or kind != "RayService" or not isinstance(body, dict):
            return body
        return {**body, "spec": {key: value for key, value in body["spec"].items() if key != "suspend"}}

    def _here(self, now: _Names, text: str) -> str:
        """A text of the record with the names of this run."""
        here = {form: name for name, form in now.forms.items()}
        for name in sorted(self.names.forms, key=len, reverse=True):
            text = text.replace(name, here.get(self.names.forms[name], name))
        return text


def _steered(manifest: Object) -> Object:
    """With how long its Ray job runs, and how it ends: the record's stand-in for Ray takes it from the name."""
    made: Object = json.loads(json.dumps(manifest).replace("kit.muster.dev/", STEERING))
    name = made["metadata"]["name"]
    if made["kind"] == "RayJob":
        ends = {OUTCOME: "failed", RUNTIME: "2s"} if "fail" in name else {RUNTIME: "600s" if "long" in name else "3s"}
        made["metadata"]["annotations"] = {**(made["metadata"].get("annotations") or {}), **ends}
    return made


# --- one form for what differs from run to run ----------------------------------------------------------------------


def ordered(told: Story) -> list[Told]:
    """What the operator writes, in its order over all objects: its own objects, and that a pod of Ray is made.

    Kubelets, the scheduler, the Job controller and the garbage collector each write in a time of their own; what they
    write is compared object by object.
    """
    found: list[Told] = []
    collected = False
    for line in told.lines:
        collected |= '"deleting": true' in line.says and line.of.startswith(("RayJob ", "RayService "))
        if line.of.startswith("Pod "):
            born = not any(each.of == line.of for each in found) and '"ray.io/node-type"' in line.says
            if born:
                found.append(Told(line.of, "made"))
        elif not (collected and line.says == "gone"):
            found.append(line)
    return found


class _Names:
    """The names and uids of a run, and what both are called."""

    def __init__(self, seen: list[Change]) -> None:
        self.forms: dict[str, str] = {}
        """{name that ends in chance, or uid: its form}"""
        self.of: dict[str, str] = {}
        """{uid: the object's form}"""
        self._born: dict[str, int] = {}
        for change in seen:
            self._name(change)

    def _name(self, change: Change) -> None:
        meta, status = change.object["metadata"], change.object.get("status") or {}
        labels = meta.get("labels") or {}
        group = labels.get("ray.io/worker-group-replica-name", "")
        if group:
            self._call(group, f"replica of {self.said(labels['ray.io/cluster'])} {group[:-CHANCE]}")
        named = [status, status.get("pendingServiceStatus") or {}, status.get("activeServiceStatus") or {}]
        for name in [each.get("rayClusterName", "") for each in named]:
            if name and name not in self.forms and change.kind != "RayCluster" and name.startswith(meta["name"] + "-"):
                self._call(name, f"cluster {name[:-CHANCE]}")
        if meta["uid"] in self.of:
            return
        owned = bool(meta.get("ownerReferences")) and change.kind in ("RayCluster", "Pod")
        if owned and change.kind == "Pod":
            self._call(meta["name"], f"pod {self._shape(change)}")
        called = self.forms.get(meta["name"], meta["name"])
        self.of[meta["uid"]] = self._numbered(f"{change.kind} {called}")
        self.forms[meta["uid"]] = f"<uid of {self.of[meta['uid']]}>"

    def _call(self, name: str, form: str) -> None:
        if name not in self.forms:
            self.forms[name] = f"<{self._numbered(form)}>"

    def _numbered(self, form: str) -> str:
        number = self._born[form] = self._born.get(form, 0) + 1
        return form if number == 1 else f"{form} {number}"

    def _shape(self, change: Change) -> str:
        """A pod's name without what is chance; a cluster's that ends in chance may be cut within that."""
        meta = change.object["metadata"]
        cluster, name = (meta.get("labels") or {}).get("ray.io/cluster", ""), meta["name"][:-CHANCE]
        if cluster in self.forms and not name.startswith(cluster):
            cut = cluster[:-CHANCE]
            return f"{self.forms[cluster]} cut at {name[len(cut) :].index('-')}{name[name.index('-', len(cut)) :]}"
        return self.said(name)

    def said(self, text: str) -> str:
        for name in sorted(self.forms, key=len, reverse=True):
            text = text.replace(name, self.forms[name])
        return text


_TIME = re.compile(r"\b1[67]\d{11}\b")


def story(seen: list[Change]) -> Story:
    """What a run told, in the form that both runs share."""
    names, told, last = _Names(seen), Story(), dict[str, str]()
    for change in seen:
        if change.kind not in SHARDS:
            continue
        of = names.of[change.object["metadata"]["uid"]]
        says = _says(change, names)
        if says is not None and last.get(of) != says:
            last[of] = says
            told.lines.append(Told(of, says))
    return told


def _says(change: Change, names: _Names) -> str | None:
    if change.gone:
        return "gone"
    fact = WATCHED[SHARDS[change.kind]].read(json.dumps(_unsteered(change.object)).encode())
    if fact is None:
        return None
    (part,) = [each for key, each in msgspec.to_builtins(fact).items() if key != "type"]
    part.pop("rv", None)
    part.pop("guarded", None)  # The records have no finalizers.
    part["ref"].pop("uid")
    if "node" in part:
        part["node"] = "a node"
    _without_defaults(part)
    return _TIME.sub('"a time"', names.said(json.dumps(part, sort_keys=True)))


def _unsteered(thing: Object) -> Object:
    """Without the annotations by which the simulation is steered."""
    notes = thing["metadata"].get("annotations") or {}
    kept = {name: text for name, text in notes.items() if not name.startswith(STEERING)}
    meta = {key: value for key, value in thing["metadata"].items() if key != "annotations"}
    return {**thing, "metadata": {**meta, "annotations": kept} if kept else meta}


def _without_defaults(part: Object) -> None:
    """The API server's own admission adds these to each pod; no operator writes them, and the simulation has none."""
    rules = part.get("rules")
    if rules is not None and "tolerations" in rules:
        rules["tolerations"] = [each for each in rules["tolerations"] if each.get("key") not in DEFAULT_TOLERATIONS]
        if not rules["tolerations"]:
            del rules["tolerations"]
        if not rules:
            del part["rules"]


def played(path: Path) -> list[Change]:
    return _Player(path).play()
