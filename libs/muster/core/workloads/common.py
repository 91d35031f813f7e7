"""The common parts of the adapters of all kinds.

The owner of a job and the program of a job are read from the object for readers only; no decision uses them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.core.objects.gpushares import charged, with_share
from muster.core.objects.meta import (
    CHECKPOINTED_AT,
    DEQUEUE_STAMPS,
    DEQUEUED_AT,
    ENQUEUE_STAMPS,
    FLAVOR_WAIT,
    FLAVORS,
    INTENT,
    KAI_OF_PODS,
    KEPT,
    MAX_NAME,
    OWNER,
    QUEUED_AT,
    SUSPEND,
    TIMES,
    Meta,
    UnreadableError,
    digest,
    first_stamp,
    not_understood,
    unreadable,
    wishes,
)
from muster.core.objects.podspec import (
    PodSpec,
    PodTemplate,
    check_total,
    container_names,
    names_resource,
    pod_request,
    pod_rules,
    topology_of,
)
from muster.core.placement.devices import shares_gpu
from muster.core.workloads.steering import Steering, gang_asked
from muster.model.elastic import Counts, Elastic
from muster.model.placing import GPU, GpuAmounts, PodRules, Topology
from muster.model.problem import FieldProblem, problem
from muster.model.quota import FlavorNodes
from muster.model.resources import Vector, add_into, scaled
from muster.model.text import clean
from muster.model.workload import DIRECT, UNKNOWN_ORIGIN, ChildState, Origin, Outcome, Phase, PodSet, Switch, Workload

# --- origin -----------------------------------------------------------------------------------------------------------


MAX_OWNER = 128
MAX_IMAGE = 256


class Program(Struct, frozen=True):
    """An image, and the words of the command in the image, as written; empty where nothing was written."""

    image: object = None
    words: tuple[Any, ...] = ()

    def of_pod(self, pod: PodSpec) -> Program:
        """The program of a pod's first container, where no program is known yet."""
        if self != NO_PROGRAM or not pod.containers:
            return self
        first = pod.containers[0]
        words = (first.command, first.args)
        return Program(first.image, words if any(words) else ())

    def running(self, *words: object) -> Program:
        """The same image with a command from a field of the kind."""
        return replace(self, words=words) if any(words) else self


NO_PROGRAM = Program()


def origin_of(meta: Meta, program: Program) -> Origin:
    """The origin of an object. A label counts before an annotation; a name in an annotation may have any character."""
    owner = meta.labels.get(OWNER) or meta.annotations.get(OWNER, "")
    image = program.image if isinstance(program.image, str) else ""
    entrypoint = digest(program.words) if program.words else ""
    if not owner and not image and not entrypoint:
        return UNKNOWN_ORIGIN
    return Origin(_short(owner, MAX_OWNER), _short(image, MAX_IMAGE), entrypoint)


def _short(text: str, most: int) -> str:
    """One harmless line."""
    return clean(" ".join(text.split()))[:most]


# --- common -----------------------------------------------------------------------------------------------------------


MAX_PODS = 1_000_000
"""More pods than this no set has: a larger number is a mistake."""
_VERSION = re.compile(r"v[0-9][a-z0-9]{0,30}")


class Life(Struct, frozen=True, kw_only=True):
    """The phase of an object, in the words common to all kinds; see the fields of the same names of Workload."""

    phase: Phase
    suspended: bool
    outcome: Outcome = ""
    detail: str = ""
    settled: bool = False
    busy: bool = False
    child: str = ""
    outgoing: str = ""


def sharing(
    template: PodTemplate, one: Vector, rules: PodRules, names: Collection[str] = ()
) -> tuple[PodRules, Vector]:
    """The rules and the request of one pod of a template, with the share of GPUs in the template's annotations.

    ``names``: of the pod's containers; empty where unknown.
    """
    names_gpus = bool(one.get(GPU)) or names_resource(template.spec, GPU)
    rules = with_share(rules, template.annotations, names_gpus, names)
    return rules, dict(sorted({**one, GPU: charged(rules)}.items())) if shares_gpu(rules) else one


class Needs:
    """The pod sets of an object, and their total requests.

    ``ack``: as kube-queue counts. ``full``: every container that will run.
    """

    def __init__(self, at: str = "spec", added: Mapping[str, FlavorNodes] | None = None) -> None:
        """``at``: the path of the pods' description, for errors about all pods. ``added``: {pod set: what Muster added
        to its template}.
        """
        self._at = at
        self.sets: list[PodSet] = []
        self.refusal: FieldProblem | None = None
        """Why the pods of a set cannot be counted."""
        self.auxiliary: list[PodSet] = []
        self.ack: Vector = {}
        self.full: Vector = {}
        self.ahead: Vector = {}
        """The part of ``full`` reserved for pods not wanted by the spec yet, or no longer beside the others."""
        self.priority_class = ""
        self.priority: int | None = None
        self.steering = Steering(added)
        self.program = NO_PROGRAM
        self._on_pods: dict[str, str] = {}

    def add(
        self,
        name: str,
        pods: int,
        template: PodTemplate,
        path: str,
        *,
        request: Vector | None = None,
        whole: Vector | None = None,
        rules: PodRules | None = None,
        steer: bool = True,
        minimum: int | None = None,
        later: bool = False,
        template_at: str = "",
        sealed: bool = False,
    ) -> Vector:
        """Add a set of pods with the template at ``path``; returns the request of one pod.

        - ``request``: the request of one pod, where the template has none.
        - ``whole``: the request of one pod with the containers added by the controller.
        - ``rules``: the places of the pods, where the template has no rules.
        - ``steer``: the template names the scheduler; otherwise the kind informs ``steering`` itself.
        - ``minimum``: pods needed for the start of the gang; None: all.
        - ``later``: the pods are made after the gang has started, so the start needs none of them.
        - ``template_at``: the path of the template, where it is not ``template`` of ``path``.
        - ``sealed``: the template cannot be changed any more: what Muster added to it stays.
        """
        template_at = template_at or f"{path}.template"
        if not 0 <= pods <= MAX_PODS:
            raise unreadable(path, "many_pods", count=pods, most=MAX_PODS)
        if template.spec.resource_claims and self.refusal is None:
            self.refusal = problem(f"{template_at}.spec.resourceClaims", "claims_uncounted")
        one = pod_request(template.spec, f"{template_at}.spec") if request is None else request
        takes = dict(sorted(whole.items())) if whole is not None and whole != one else None
        name = name.lower()[:MAX_NAME]
        own = template if sealed else self.steering.as_authored(name, template)
        where = pod_rules(own.spec, own.labels) if rules is None else rules
        levels = topology_of(template.annotations)
        where = where if levels == Topology() else replace(where, topology=levels)
        # A controller with its own request for a pod names the containers of the pod too.
        where, shared = sharing(template, one, where, container_names(template.spec) if request is None else ())
        if shared != one:
            one, takes = shared, one if takes is None else takes
        self.program = self.program.of_pod(template.spec)
        self.sets.append(PodSet(name, pods, one, where, minimum, takes=takes, later=later))
        for key in KAI_OF_PODS:
            if key in template.labels:
                self._on_pods.setdefault(key, template.labels[key])
        if steer:
            self.steering.add(template, template_at, pods=name)
        add_into(self.ack, scaled(one, pods))
        add_into(self.full, scaled({**(takes or one), GPU: one[GPU]} if shares_gpu(where) else takes or one, pods))
        return one

    def reserve(self, amounts: Vector, times: int = 1) -> None:
        """Count in ``full`` pods that may run later, or instead of others, and do not run by the present spec."""
        add_into(self.full, amounts, times)
        add_into(self.ahead, amounts, times)

    def start_with(self, least: int | None) -> None:
        """The gang starts with so many pods, those of the first sets before the others; None: with all."""
        left = least if least is not None and least > 0 else sum(pods.count for pods in self.sets)
        for index, pods in enumerate(self.sets):
            if left < pods.count:
                self.sets[index] = replace(pods, minimum=max(0, left))
            left -= pods.count

    @property
    def runs(self) -> Vector | None:
        """The request once all pods of the spec run; None when equal to ``full``."""
        if not self.ahead:
            return None
        running = dict(self.full)
        add_into(running, self.ahead, -1)
        return dict(sorted(running.items()))

    def labels(self, meta: Meta) -> dict[str, str]:
        """The labels known to queueing: the object's labels, and KAI's labels of the pods where the object has none.

        Values that KAI also reads from annotations are included, and values that no reader understands, for the users.
        """
        labels = {key: meta.labels[key] for key in KEPT if key in meta.labels}
        for key in (*TIMES, FLAVORS):
            text = meta.labels.get(key) or meta.annotations.get(key)
            if text:
                labels[key] = text[:40] if key != FLAVORS else text[:300]
        labels |= not_understood(meta.annotations) | gang_asked(meta)
        return {**self._on_pods, **labels} if self._on_pods else labels

    def prioritize(self, name: str | None, value: int | None = None) -> None:
        """Take a priority, unless a priority is set: the first counts."""
        if not self.priority_class and self.priority is None:
            self.priority_class, self.priority = (name or "")[:MAX_NAME], value

    def totals(self) -> dict[str, Vector]:
        """The whole request by profile; raises UnreadableError for an uncountable amount."""
        return {
            "ack": check_total(dict(sorted(self.ack.items())), self._at),
            "full": check_total(dict(sorted(self.full.items())), self._at),
        }


def workload(
    kind: str,
    api_version: str,
    meta: Meta,
    life: Life,
    needs: Needs,
    *,
    refusal: FieldProblem | None = None,
    switch: Switch | None = None,
    elastic: Elastic | None = None,
    suspended_at: str = "",
    finalizer: str = "",
) -> Workload:
    """The workload of an object: the fields of its kind, and the metadata common to all kinds.

    ``suspended_at``: the path of the field for suspension; ``finalizer``: of the controller, empty where it has none.
    """
    need, pod_sets, auxiliary = needs.totals(), tuple(needs.sets), tuple(needs.auxiliary)
    labels = needs.labels(meta)
    return Workload(
        ref=meta.ref(kind),
        api_version=api_version,
        rv=meta.rv,
        generation=meta.generation,
        created=meta.created,
        phase=life.phase,
        suspended=life.suspended,
        need=need,
        topology=topology_of(meta.annotations),
        pod_sets=pod_sets,
        auxiliary=auxiliary,
        runs=needs.runs,
        priority_class=needs.priority_class,
        priority=needs.priority,
        outcome=life.outcome,
        detail=life.detail[:64],
        settled=life.settled,
        child=life.child[:MAX_NAME],
        outgoing=life.outgoing[:MAX_NAME],
        deleting=bool(meta.deletion_timestamp),
        guarded=finalizer in meta.finalizers,
        busy=life.busy,
        wishes=wishes(meta.annotations),
        refusal=refusal,
        labels=labels,
        annotated=bool(meta.annotations),
        switch=replace(switch or DIRECT, templates=needs.steering.templates(meta)),
        basis=basis_of(need, pod_sets, auxiliary, refusal, labels),
        intent=meta.annotations.get(INTENT, "")[:64],
        queued_at=first_stamp(meta.annotations, QUEUED_AT, *ENQUEUE_STAMPS),
        checkpointed_at=first_stamp(meta.annotations, CHECKPOINTED_AT),
        dequeued_at=first_stamp(meta.annotations, DEQUEUED_AT, *DEQUEUE_STAMPS),
        elastic=elastic,
        origin=origin_of(meta, needs.program),
        suspended_by=meta.writer_of(suspended_at)
        if suspended_at and life.suspended and INTENT in meta.annotations
        else "",
    )


NO_LABELS: Mapping[str, str] = {}


def basis_of(
    need: Mapping[str, Vector],
    pod_sets: tuple[PodSet, ...],
    auxiliary: tuple[PodSet, ...] = (),
    refusal: FieldProblem | None = None,
    labels: Mapping[str, str] = NO_LABELS,
) -> str:
    """Digest of the input of decisions about a workload; see the field of Workload. ``labels``: with its flavors."""
    chosen = [labels[key] for key in (FLAVORS, FLAVOR_WAIT) if labels.get(key)]
    return digest((need, pod_sets, auxiliary, "" if refusal is None else refusal.code, *chosen))


def child(
    kind: str, meta: Meta, *, asks: Vector | None = None, elastic: Elastic | None = None, rests: bool = False,
    fixed: Counts | None = None, held: bool = False, gpu_memory: GpuAmounts | None = None,
) -> ChildState:  # fmt: skip
    """An object as the child of its owner.

    ``asks``: the request of the child's pods, where the child states their number; ``gpu_memory``: as in ChildState.
    ``rests``: the controller of the child has to keep no pods. ``fixed``: pods by worker group of a Ray cluster with a
    fixed size. ``held``: the child's own field suspends the child.
    """
    owner = meta.controller
    return ChildState(
        ref=meta.ref(kind),
        rv=meta.rv,
        owner_uid=owner.uid,
        owner_kind=owner.kind,
        asks=asks or {},
        gpu_memory=gpu_memory or {},
        over=rests,
        elastic=elastic,
        fixed=fixed or {},
        held=held,
    )


def check_version(api_version: str, group: str) -> None:
    """Raises UnreadableError for an apiVersion outside of the group."""
    named, _, version = api_version.partition("/")
    if named != group or not _VERSION.fullmatch(version):
        raise unreadable("apiVersion", "not_a_version", value=api_version[:64], group=group)


def has_no_spec() -> UnreadableError:
    return unreadable("spec", "spec_missing")


def count(value: int | None, default: int, path: str) -> int:
    """A number of pods, as Kubernetes takes the field; raises UnreadableError for an invalid number."""
    if value is None:
        return default
    if not 0 <= value < 2**31:
        raise unreadable(path, "not_a_count", value=value)
    return value


def foreign_manager(path: str, manager: str | None, own: str) -> FieldProblem | None:
    """Why an object managed by another controller cannot be suspended; None for the kind's own controller."""
    return problem(path, "foreign_manager", manager=manager[:64], own=own) if manager and manager != own else None


def marked_suspended(meta: Meta) -> bool:
    """Whether the annotation of the older operators says that the object is suspended."""
    return meta.annotations.get(SUSPEND, "") == "true"
