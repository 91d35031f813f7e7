"""The reader of any kind: from the definition of the kind, and a function where data cannot tell the pods.

A definition is compiled to the type of the object, with the fields that the paths of the definition name. So an
unusable field is named by its path, and everything else of an object is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import fields, replace

from muster.core.objects.kaiqueue import pod_group_name
from muster.core.objects.meta import (
    KAI_QUEUE,
    MAX_NAME,
    SCHEDULING_GROUP,
    SUSPEND,
    ExplainedCondition,
    Meta,
    UnreadableError,
    decode,
    is_true,
)
from muster.core.objects.podspec import PodTemplate, Resources, container_request
from muster.core.workloads.common import (
    Life,
    Needs,
    check_version,
    child,
    count,
    foreign_manager,
    has_no_spec,
    marked_suspended,
    workload,
)
from muster.core.workloads.definition import Child, Definition, Pods, Sign
from muster.core.workloads.steering import added_to
from muster.model.elastic import RAY_KINDS, Elastic
from muster.model.problem import FieldProblem, problem
from muster.model.workload import ChildState, Outcome, Phase, Switch, SwitchField, Workload, gpu_amounts

CONDITIONS = "status.conditions"
MAX_ENTRY = 64
"""A longer name of an entry is not repeated in messages."""


class Parts(NamedTuple):
    """What a function tells of an object, besides the pods."""

    refusal: FieldProblem | None = None
    elastic: Elastic | None = None
    owns: bool = True
    """Whether the object that the status names is made for the workload, and not for others."""


class Special(Struct, frozen=True):
    """What data cannot say of a kind. ``parts`` takes (object, metadata, needs to fill, whether it is suspended)."""

    parts: Callable[[ObjectView, Meta, Needs, bool], Parts]
    shapes: Mapping[str, Any] = {}
    """{path: type}: what the function reads, besides the paths of the definition."""
    at: str = "spec"


class Made(NamedTuple):
    """Objects of a kind as parts of another: the API group and the kind of the owner, and how the owner makes them."""

    group: str
    owner: str
    rule: Child


class Field:
    """A field of the objects of a kind: the fields within, or the type of the value."""

    def __init__(self) -> None:
        self.within: dict[str, Field] = {}
        self.type: Any = None
        self.whole = False
        """Entries of pods: none of them is null."""
        self.attributes: dict[str, str] = {}

    @property
    def none(self) -> Any:
        """A list or a mapping without entries."""
        return {} if "*" in self.within else ()

    def at(self, steps: tuple[str, ...], shape: Any) -> None:
        """Note the type of the field at a path. Raises ValueError for a second type."""
        node = self
        for step in steps:
            node = node.within.setdefault(step, Field())
        if shape is not object and node.type not in (None, object, shape):
            raise ValueError(f"{'.'.join(steps)} is {node.type.__name__} and {shape.__name__}")
        node.type = shape if node.type in (None, object) else node.type

    def compiled(self) -> Any:
        """The type of the values of this field."""
        for entry in ("*", "[]"):
            if entry in self.within:
                inner: Any = self.within[entry].compiled()
                inner = inner if self.whole else inner | None
                return dict.__class_getitem__((str, inner)) if entry == "*" else tuple.__class_getitem__((inner, ...))
        if not self.within:
            return self.type
        base = self.type if self.type not in (None, object) else Struct
        own = {inner.encode_name: inner.name for inner in fields(base)} if base is not Struct else {}
        more: list[Any] = []
        for index, (name, node) in enumerate(self.within.items()):
            self.attributes[name] = own.get(name, f"field{index}")
            if name not in own:
                shape, missing = (node.compiled(), node.none) if node.whole else (node.compiled() | None, None)
                more.append((f"field{index}", shape, msgspec.field(name=name, default=missing)))
        return msgspec.defstruct("Object", more, bases=(base,), frozen=True, kw_only=True)

    def walk(self, value: Any, steps: tuple[str, ...]) -> Iterator[Any]:
        """The values at a path below a value of this field, None where a field is missing."""
        if not steps or value is None:
            yield None if steps else value
            return
        step, node = steps[0], self.within[steps[0]]
        if step in ("*", "[]"):
            for entry in value.values() if step == "*" else value:
                yield from node.walk(entry, steps[1:])
        else:
            yield from node.walk(getattr(value, self.attributes.get(step, step)), steps[1:])


class ObjectView(NamedTuple):
    """An object of a kind, or an entry of the object, read by paths."""

    field: Field
    value: Any

    def get(self, path: str) -> Any:
        """The first value that is there, of a path or of alternatives; None for none."""
        return next((value for value in self.all(path) if value is not None and value != ""), None)

    def all(self, path: str) -> Iterator[Any]:
        for one in _alternatives(path):
            yield from self.field.walk(self.value, _steps(one))

    def holds(self, sign: Sign | None, suspended: bool) -> bool:
        """Whether a sign holds; a missing sign never does."""
        if sign is None:
            return False
        value = self.get(sign.path) if sign.path else None
        return (
            (not sign.condition or is_true(self.get(CONDITIONS), sign.condition))
            and (not sign.path or ((value or "") in sign.words if sign.words else bool(value)))
            and (not sign.positive or any(self._positive(path) for path in sign.positive))
            and (sign.suspended is None or sign.suspended == suspended)
            and not self.holds(sign.unless, suspended)
            and (not sign.any or any(self.holds(other, suspended) for other in sign.any))
        )

    def _positive(self, path: str) -> bool:
        """Whether a number is above zero: of many the largest, of alternatives the first that is there."""
        many = "*" in path or "[]" in path
        return max((number or 0 for number in self.all(path)), default=0) > 0 if many else (self.get(path) or 0) > 0

    def entries(self, path: str, order: tuple[str, ...]) -> Iterator[tuple[str, str, ObjectView]]:
        """(name, path, entry) of a list or a mapping; the name of a list's entry is empty."""
        *above, many = _steps(path)
        home = ".".join(above)
        home_field, inner = self.field_at(above), self.field_at(_steps(path))
        values = next(self.field.walk(self.value, tuple(above)), None) or home_field.none
        if many == "[]":
            for index, entry in enumerate(values):
                yield "", f"{home}[{index}]", ObjectView(inner, entry)
            return
        known = [name for name in order if name in values]
        for name in [*known, *sorted(values.keys() - {*known})]:
            at = f"{home}.{name}" if name.isalnum() and len(name) <= MAX_ENTRY else f"{home}[...]"
            yield name, at, ObjectView(inner, values[name])

    def field_at(self, steps: Iterable[str]) -> Field:
        node = self.field
        for step in steps:
            node = node.within[step]
        return node


@cache
def _alternatives(path: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in path.split("|"))


@cache
def _steps(path: str) -> tuple[str, ...]:
    return tuple(step for step in path.replace("[]", ".[]").split(".") if step)


class Reader:
    """Reads the objects of one kind. Raises UnreadableError naming the unusable field."""

    def __init__(
        self,
        definition: Definition,
        special: Special | None = None,
        makers: tuple[Made, ...] = (),
        switch: SwitchField | None = None,
    ) -> None:
        """``makers``: the kinds whose controllers make objects of this kind."""
        self._kind = definition
        self._special = special
        self._switch = switch
        self._makers = makers
        self._field = Field()
        for path, shape in _paths(definition, special):
            for one in _alternatives(path):
                self._field.at(_steps(one), shape)
        for pods in definition.pods:
            if pods.each:
                ObjectView(self._field, None).field_at(_steps(pods.each)[:-1]).whole = True
        self._shape: Any = self._field.compiled()

    def read(self, raw: bytes) -> Workload | ChildState | None:
        """An object by itself, or as the child of its owner; None for a part that is not counted."""
        try:
            view, meta = self._decoded(raw)
        except UnreadableError:
            if self._makers and self._role(None, meta := decode(raw, _Identity).metadata) is not None:
                return child(self._kind.kind, meta)
            raise
        rule = self._role(view, meta)
        if rule is None:
            return self._workload(view, meta)
        return None if rule.aside else self._child(view, meta)

    def alone(self, raw: bytes) -> Workload:
        """An object by itself, whatever controller it names."""
        return self._workload(*self._decoded(raw))

    def _decoded(self, raw: bytes) -> tuple[ObjectView, Meta]:
        view = ObjectView(self._field, decode(raw, self._shape))
        return view, view.get("metadata") or Meta()

    def _role(self, view: ObjectView | None, meta: Meta) -> Child | None:
        """The rule by which the object's owner made the object; None for an object by itself."""
        owner = meta.controller
        for made in self._makers:
            if (owner.kind, owner.api_version.rpartition("/")[0]) != (made.owner, made.group):
                continue
            named = made.rule.named.replace("{owner}", owner.name)
            few = not made.rule.pods or view is None or self._of_one(view) <= made.rule.pods
            if few and (not named or (meta.name.endswith(named[1:]) if named[0] == "*" else meta.name == named)):
                return made.rule
        return None

    def _of_one(self, view: ObjectView) -> int:
        return sum(_product(view, pods.count, "") for pods in self._kind.pods)

    def _child(self, view: ObjectView, meta: Meta) -> ChildState:
        """The request of a child's pods, as its kind says; an unreadable child still is one."""
        kind, suspended = self._kind.kind, self._suspended(view, meta)
        try:
            life, needs = self._life(view, suspended), Needs()
            rests = suspended or life.phase == "finished" or bool(meta.deletion_timestamp)
            if rests or view.get("spec") is None:
                held = view.get(self._kind.suspend.at) == self._kind.suspend.value
                return child(kind, meta, rests=rests, held=held)
            parts = self._fill(view, meta, needs, False)
            full = needs.totals()["full"]
        except UnreadableError:
            return child(kind, meta)
        scales = parts.elastic is not None or kind not in RAY_KINDS
        fixed = {} if scales else {pods.name: pods.count for pods in needs.sets}
        asks, amounts = needs.runs or full, gpu_amounts(needs.sets)
        return child(kind, meta, asks=asks, gpu_memory=amounts, elastic=parts.elastic, fixed=fixed)

    def _workload(self, view: ObjectView, meta: Meta) -> Workload:
        row = self._kind
        if view.get("spec") is None:
            raise has_no_spec()
        group = row.api_version.rpartition("/")[0]
        version = view.get("apiVersion") or row.api_version
        check_version(version, group)
        suspended, needs = (
            self._suspended(view, meta),
            Needs(self._special.at if self._special else "spec", added_to(meta)),
        )
        life = self._life(view, suspended)
        parts = self._fill(view, meta, needs, suspended)
        life = life if parts.owns else replace(life, child="")
        if row.minimum and KAI_QUEUE in needs.labels(meta):
            needs.start_with(next((least for path in row.minimum if (least := view.get(path)) is not None), None))
        manager, refusal = row.managed_by, None
        if manager is not None:
            named = view.get(manager.at)
            refusal = foreign_manager(manager.at, "" if named in manager.own else named, manager.own[0])
        if row.size_from and view.get(row.size_from) is None:
            refusal = refusal or problem(row.size_from, "size_unknown")
        home = row.suspend.at.rpartition(".")[0]
        switch = Switch(
            suspend_parent_missing=home != "spec" and view.get(home) is None,
            annotation=row.suspend.annotation and SUSPEND in meta.annotations,
            field=self._switch,
        )
        refusal = refusal or parts.refusal or needs.refusal
        return workload(
            row.kind, version, meta, life, needs,
            refusal=refusal, switch=switch, elastic=parts.elastic, suspended_at=row.suspend.at,
            finalizer=row.finalizer,
        )  # fmt: skip

    def fill(self, raw: bytes, needs: Needs) -> None:
        """Add the pods of an object that is part of another."""
        self._fill(*self._decoded(raw), needs, False)

    def _fill(self, view: ObjectView, meta: Meta, needs: Needs, suspended: bool) -> Parts:
        for path in self._kind.priority:
            needs.prioritize(view.get(path))
        for pods in self._kind.pods:
            self._add(view, meta, needs, pods, suspended)
        return self._special.parts(view, meta, needs, suspended) if self._special is not None else Parts()

    def _suspended(self, view: ObjectView, meta: Meta) -> bool:
        how = self._kind.suspend
        marked = how.annotation and marked_suspended(meta)
        return view.get(how.at) == how.value or marked or bool(how.also and view.get(how.also))

    def _life(self, view: ObjectView, suspended: bool) -> Life:
        row = self._kind
        settled = view.holds(row.settled, suspended)
        end = next((end for end in row.ends if view.holds(end.when, suspended)), None)
        phase: Phase
        outcome: Outcome = ""
        sign: Sign | None = None
        if end is not None:
            phase, outcome, sign = "finished", end.outcome, end.when
        elif suspended:
            phase = "suspending" if not settled and view.holds(row.stops, suspended) else "waiting"
            sign = row.settled if settled else None
        else:
            runs = not settled and view.holds(row.running, suspended)
            phase, sign = ("running", row.running) if runs else ("starting", None)
        word = (sign.word or sign.condition) if sign is not None else ""
        if row.detail:
            word = view.get(row.detail) or ""
        elif end is None:
            word = next((condition for condition in row.told if is_true(view.get(CONDITIONS), condition)), word)
        if outcome == "failed":
            word = _cause(view, sign) or word
        names = [name for name in view.all(row.child) if name] if row.child else []
        return Life(
            phase=phase,
            suspended=suspended,
            outcome=outcome,
            detail=word,
            settled=settled,
            busy=phase in ("starting", "running") and view.holds(row.busy, suspended),
            child=names[0] if names else "",
            outgoing=names[1] if len(names) > 1 else "",
        )

    def _add(self, view: ObjectView, meta: Meta, needs: Needs, pods: Pods, suspended: bool) -> None:
        """Add the pods of a set, or the sets of a list or a mapping."""
        later = pods.later if pods.when is None or view.holds(pods.when, suspended) else ()
        entries = view.entries(pods.each, pods.order) if pods.each else [(pods.name, "", view)]
        for key, at, entry in entries:
            name = key or str(entry.get(pods.name) or at.rpartition("[")[2].rstrip("]"))
            path = ".".join(filter(None, (at, _alternatives(pods.resources or pods.template)[0])))
            template = PodTemplate() if pods.resources else entry.get(pods.template) or PodTemplate()
            request = container_request(entry.get(pods.resources), path) if pods.resources else None
            begun = bool(pods.begun) and view.get(pods.begun) is not None
            needs.add(
                name,
                self._number(view, entry, pods, name, at, suspended=suspended),
                template,
                path.removesuffix(".template"),
                template_at=path,
                request=request,
                steer=not (pods.fixed or pods.resources),
                later=name in later,
                sealed=pods.fixed and begun,
            )
            if pods.fixed and (
                not begun or template.annotations.get(SCHEDULING_GROUP) == pod_group_name(meta.ref(self._kind.kind))
            ):
                needs.steering.add(template, path, pods=name.lower()[:MAX_NAME], fixed=True, sealed=begun)
            needs.prioritize(template.spec.priority_class_name, template.spec.priority)

    def _number(self, view: ObjectView, entry: ObjectView, pods: Pods, name: str, at: str, *, suspended: bool) -> int:
        """How many pods of a set there may be now."""
        number = _product(entry, pods.count, at)
        most = entry.get(pods.most) if pods.most else None
        if most is not None:
            done = max(0, view.get(pods.done) or 0) if pods.done else 0
            done += _indexes(view.get(pods.failed) or "") if pods.failed else 0
            number = min(number, max(0, count(most, 1, _at(at, pods.most)) - done))
        if not pods.times:
            over = self._over(view, pods, name) if not suspended and view.holds(self._kind.running, suspended) else 0
            return number - min(number, over)
        times = count(entry.get(pods.times), 1, _at(at, pods.times))
        return number * (times - min(times, self._over(view, pods, name)))

    def _over(self, view: ObjectView, pods: Pods, name: str) -> int:
        """How many objects of a set are over. Of pods while they run alone: a new run makes all of them again."""
        over = pods.over
        if over is None:
            return 0
        roles = [role for key, _, role in view.entries(over.at, ()) if (key or role.get(over.key)) == name]
        return sum(max(0, role.get(over.count) or 0) for role in roles)


def _reason(shown: ExplainedCondition) -> str:
    """The training operator has one reason for each failure (``PyTorchJobFailed``): its words tell more."""
    if "active longer than specified deadline" in shown.message:
        return "DeadlineExceeded"
    return "BackoffLimitExceeded" if "reached the specified backoff limit" in shown.message else shown.reason


def _cause(view: ObjectView, sign: Sign | None) -> str:
    """The controller's reason for a failure: of the condition that shows it, or of the status."""
    named = sign.condition if sign is not None else ""
    shown = [
        _reason(condition)
        for condition in view.get(CONDITIONS) or ()
        if condition.type == named and condition.status == "True"
    ]
    reason = view.get("status.reason")
    return next(filter(None, (*shown, reason if isinstance(reason, str) else "")), "")


class _Identity(Struct, frozen=True):
    metadata: Meta


def _at(home: str, path: str) -> str:
    return f"{home}.{path}" if home else path


def _indexes(text: str) -> int:
    """How many indexes a text of the job controller names: ``1,3-5`` names four."""
    total = 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            total += max(0, int(last or first) - int(first) + 1)
    return total


def _product(entry: ObjectView, paths: tuple[str, ...], at: str) -> int:
    number = 1
    for path in paths:
        number *= count(entry.get(path), 1, _at(at, path))
    return number


def _paths(row: Definition, special: Special | None) -> Iterator[tuple[str, Any]]:
    """Every path of a definition with the type of the field."""
    yield from (("metadata", Meta), ("apiVersion", str), ("spec", object), (CONDITIONS, tuple[ExplainedCondition, ...]))
    yield "status.reason", object
    yield from special.shapes.items() if special is not None else ()
    yield row.suspend.at, type(row.suspend.value)
    texts = (*row.priority, row.detail, row.child, row.managed_by.at if row.managed_by is not None else "")
    yield from ((path, str) for path in texts if path)
    yield from ((path, int) for path in row.minimum)
    if row.suspend.also:
        yield row.suspend.also, bool
    if row.size_from:
        yield row.size_from, object
    for sign in (*(end.when for end in row.ends), row.settled, row.stops, row.running, row.busy):
        yield from _sign_paths(sign)
    for pods in row.pods:
        yield from _pods_paths(pods)


def _sign_paths(sign: Sign | None) -> Iterator[tuple[str, Any]]:
    if sign is None:
        return
    if sign.path:
        yield sign.path, str if sign.words else object
    yield from ((path, int) for path in sign.positive)
    for inner in (sign.unless, *sign.any):
        yield from _sign_paths(inner)


def _pods_paths(pods: Pods) -> Iterator[tuple[str, Any]]:
    def within(path: str) -> str:
        return " | ".join(_at(pods.each, one) for one in _alternatives(path))

    yield (within(pods.resources), Resources) if pods.resources else (within(pods.template), PodTemplate)
    if pods.each.endswith("[]"):
        yield within(pods.name), str
    yield from ((within(path), int) for path in (*pods.count, pods.most, pods.times) if path)
    if pods.done:
        yield pods.done, int
    if pods.failed:
        yield pods.failed, str
    if pods.begun:
        yield pods.begun, str
    if pods.over is not None:
        yield f"{pods.over.at}.{pods.over.key}", str
        yield f"{pods.over.at}.{pods.over.count}", int
    yield from _sign_paths(pods.when)
