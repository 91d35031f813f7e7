"""The allowed edits of a running object as CEL: from the shapes of the registry of kinds to ``deploy/policies``.

One invariant: two specs are the same apart from the fields that the shape of the kind leaves free. For each kind the
CEL lists the fields that differ, so that a refusal can name the first.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence

from muster.core.workloads.definition import Pods
from muster.core.workloads.edits import CEILING, FALLS, FREE, GRANTED, Each, Edit, Shape, SpecOf, Values
from muster.core.workloads.registry import Kind

WIDTH = 120
_BLOCK = re.compile(
    r"^(?P<head>(?P<indent> *)# From here made by `make schemas`: (?P<what>what may be edited while it runs|"
    r"what Muster writes|pods of kinds|how kinds are suspended)\n).*?^(?P<end> *# To here\.\n)",
    re.MULTILINE | re.DOTALL,
)
NEW, OLD = "variables.spec", "variables.oldSpec"


def with_edits(text: str, kinds: Mapping[str, Kind]) -> str:
    """A manifest with the variables about edits as in the registry."""

    def made(match: re.Match[str]) -> str:
        if match["what"] == "how kinds are suspended":
            return match["head"] + _suspension(kinds, match["indent"]) + match["end"]
        if match["what"] == "pods of kinds":
            return match["head"] + _templates(kinds, match["indent"]) + match["end"]
        runs = match["what"] == "what may be edited while it runs"
        shapes = {name: row.edits if runs else row.ours for name, row in kinds.items()}
        return match["head"] + _variables(kinds, shapes, match["indent"]) + match["end"]

    return _BLOCK.sub(made, text)


def _suspension(kinds: Mapping[str, Kind], indent: str) -> str:
    """The variables about the fields for suspension: ``spec.suspend`` of all kinds but those that are named."""
    ways: dict[tuple[str, object, object], list[str]] = {}
    for row in kinds.values():
        way = row.suspend
        if (way.at, way.value) != ("spec.suspend", True):
            ways.setdefault((way.at, way.value, way.resumed), []).append(str(row.resource))
    made = ""
    for name, spec in (("byField", NEW), ("wasByField", OLD)):
        text = "".join(f"{_of(names)} ? {_set(spec, *way)} : " for way, names in ways.items())
        made += _variable(name, f"{text}{_set(spec, 'spec.suspend', True, False)}", indent)
    usual = "spec.suspend must be true (spec.runPolicy.suspend of Kubeflow kinds)"
    odd = {way: names for way, names in ways.items() if way[0] != "spec.runPolicy.suspend"}
    text = "".join(f"{_of(names)} ? '{way[0]} must be {way[1]}' : " for way, names in odd.items()).replace(
        "True", "true"
    )
    return made + _variable("asked", f"{text}'{usual}'", indent)


def _of(names: list[str]) -> str:
    return f"{names!r}.exists(name, name == request.resource.resource + '.' + request.resource.group)"


def _set(spec: str, at: str, value: object, resumed: object) -> str:
    """CEL: whether a field has the value that suspends; a missing field has the other value."""
    fields = "".join(f".?{step}" for step in at.split(".")[1:])
    return f"{spec}{fields}.orValue(dyn({_literal(resumed)})) == {_literal(value)}"


def _literal(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _templates(kinds: Mapping[str, Kind], indent: str) -> str:
    """The variables with the pod templates that definitions name: each path once, whatever kinds have it."""
    sets = dict.fromkeys(pods for row in kinds.values() for pods in row.pods if not pods.resources)
    made = ""
    for name, spec in (("templates", NEW), ("oldTemplates", OLD)):
        made += _variable(name, " + ".join(dict.fromkeys(_template(pods, spec) for pods in sets)), indent)
    return made


def _template(pods: Pods, spec: str) -> str:
    """CEL: the list of the templates of one pod set."""
    steps = pods.template.split(".")
    if not pods.each:
        return f"[{_optional(spec, steps[1:])}]"
    home, _, many = pods.each.replace("[]", ".[]").rpartition(".")
    above = home.split(".")[1:]
    if many == "[]":
        return f"{_optional(spec, above, '[]')}.map(each, {_optional('each', steps)})"
    plain = ".".join((spec, *above))
    return f"{_optional(spec, above)}.map(key, {_optional(f'{plain}[key]', steps)})"


def _optional(home: str, steps: Sequence[str], none: str = "{}") -> str:
    return f"{home}{''.join(f'.?{step}' for step in steps)}.orValue(dyn({none}))"


def _variables(kinds: Mapping[str, Kind], shapes: Mapping[str, Shape], indent: str) -> str:
    made: dict[str, str] = {}
    for name, shape in shapes.items():
        within = [
            (other, field)
            for other, fields in shapes.items()
            for field, edit in fields.items()
            if isinstance(edit, SpecOf) and edit.kind == name
        ]
        new, old = NEW, OLD
        if within:
            new, old = f"variables.specOf{name}", f"variables.oldSpecOf{name}"
            for variable, spec in ((new, NEW), (old, OLD)):
                made[variable.partition(".")[2]] = _specs(within, spec)
        made[f"edited{name}"] = edited(_with_suspension(shape, kinds[name]), new, old)
    which = "".join(f"request.kind.kind == '{name}' ? variables.edited{name} : " for name in kinds)
    made["edited"] = f"{which}['spec']"
    # A part comes before the whole.
    ordered = sorted(made.items(), key=lambda item: not any(f"edited{name}" == item[0] for name in _inner(shapes)))
    ordered.sort(key=lambda item: "pecOf" not in item[0])
    return "".join(_variable(name, text, indent) for name, text in ordered)


def _inner(shapes: Mapping[str, Shape]) -> set[str]:
    """The kinds whose spec is part of another kind's spec."""
    return {edit.kind for shape in shapes.values() for edit in shape.values() if isinstance(edit, SpecOf)}


def _specs(within: list[tuple[str, str]], spec: str) -> str:
    inner = "".join(f"request.kind.kind == '{kind}' ? {spec}.?{field}.orValue(dyn({{}})) : " for kind, field in within)
    return inner + spec


def _variable(name: str, text: str, indent: str) -> str:
    inner = f"{indent}    "
    lines = textwrap.fill(
        text, WIDTH, initial_indent=inner, subsequent_indent=inner, break_long_words=False, break_on_hyphens=False
    )
    return f"{indent}- name: {name}\n{indent}  expression: >-\n{lines}\n"


def _with_suspension(edits: Shape, row: Kind) -> Shape:
    """The shape with a free suspend field: another rule judges the suspension."""
    _, _, *above, field = row.suspend_path.split("/")
    shape: Shape = {field: FREE}
    for name in reversed(above):
        shape = {name: shape}
    return _merged(edits, shape)


def _merged(one: Shape, other: Shape) -> Shape:
    fields = dict(one)
    for key, edit in other.items():
        was = fields.get(key)
        fields[key] = _merged(was, edit) if isinstance(was, Mapping) and isinstance(edit, Mapping) else edit
    return fields


def edited(shape: Shape, new: str = NEW, old: str = OLD) -> str:
    """CEL: the list of the changed fields of a spec that must not change."""
    named = _names(shape)
    fields = [
        f"{new}.filter(key, !(key in {named}) && !(key in {old} && {new}[key] == {old}[key])).map(key, string(key))",
        f"{old}.filter(key, !(key in {named}) && !(key in {new})).map(key, string(key))",
    ]
    for key, edit in shape.items():
        if isinstance(edit, SpecOf):
            fields.append(f"variables.edited{edit.kind}")
        elif edit != FREE:
            fields.append(f"({_stays(new, old, key, edit, 1)} ? [] : ['{key}'])")
    return " + ".join(fields)


def _within(new: str, old: str, shape: Shape, depth: int) -> str:
    """CEL: whether an object differs from its old state only within a shape."""
    named, key = _names(shape), f"key{depth}"
    conditions = [
        f"{new}.all({key}, {key} in {named} || {key} in {old} && {new}[{key}] == {old}[{key}])",
        f"{old}.all({key}, {key} in {named} || {key} in {new})",
        *(_stays(new, old, field, edit, depth) for field, edit in shape.items() if edit != FREE),
    ]
    return " && ".join(conditions)


def _stays(new: str, old: str, field: str, edit: Edit, depth: int) -> str:
    """CEL: whether one field is unchanged, or within its shape."""
    now, was = f"{new}.?{field}", f"{old}.?{field}"
    if isinstance(edit, Each):
        return _each(f"{now}.orValue(dyn([]))", f"{was}.orValue(dyn([]))", edit, depth)
    if isinstance(edit, Values):
        return _values(f"{now}.orValue(dyn({{}}))", f"{was}.orValue(dyn({{}}))", edit, depth)
    if isinstance(edit, Mapping):
        # CEL names parts of an expression only in a list: a list of one item.
        one, other = f"new{depth}", f"old{depth}"
        inner = _within(one, other, edit, depth + 1)
        empty = "orValue(dyn({}))"
        return f"({now} == {was} || [{now}.{empty}].all({one}, [{was}.{empty}].all({other}, {inner})))"
    falls = f"{now} == {was} || {now}.hasValue() && {was}.hasValue() && {new}.{field} <= {old}.{field}"
    within = f"variables.granted.exists(each, each.split('=')[0] == {new}.groupName && int(each.split('=')[1]) >= "
    if edit == GRANTED:
        falls += f" || {now}.hasValue() && {within}{new}.{field})"
    elif edit == CEILING:
        falls += f" || {within}{new}.?replicas.orValue({new}.?minReplicas.orValue(0)))"
    else:
        assert edit == FALLS, edit
    return f"({falls})"


def _each(new: str, old: str, shape: Each, depth: int) -> str:
    """CEL: items compared by name, with every name unique: a double could be taken for its smaller twin."""
    now, was, twin = f"new{depth}", f"old{depth}", f"twin{depth}"
    same = _within(now, was, shape.shape, depth + 1)
    return (
        f"({new} == {old} || size({new}) == size({old}) && {new}.all({now}, "
        f"{new}.exists_one({twin}, {twin}.{shape.key} == {now}.{shape.key}) && "
        f"{old}.exists({was}, {was}.{shape.key} == {now}.{shape.key} && {same})))"
    )


def _values(new: str, old: str, values: Values, depth: int) -> str:
    name, now, was = f"name{depth}", f"new{depth}", f"old{depth}"
    same = _within(now, was, values.shape, depth + 1)
    return (
        f"({new} == {old} || size({new}) == size({old}) && {new}.all({name}, {name} in {old} && "
        f"[{new}[{name}]].all({now}, [{old}[{name}]].all({was}, {same}))))"
    )


def _names(shape: Shape) -> str:
    return f"[{', '.join(repr(key) for key in shape)}]"
