"""The form of a kind's definition: what an object of the kind looks like, as data.

A platform team writes the same form into a ConfigMap (docs/howto/kinds.md). A path names a field of the object:
``spec.template``; the first of ``a.b | c.d`` with a value counts; ``*`` means every entry of a mapping, ``[]`` every
entry of a list.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from msgspec import Struct, field
from msgspec.structs import fields

from muster.core.objects.meta import unreadable
from muster.model.api import VERSIONS
from muster.model.workload import Outcome


class Form(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Any part of a definition: an unknown field is an error, not a wish."""


class Sign(Form, frozen=True):
    """A sign in an object: the sign holds where every part that is given holds."""

    condition: str = ""
    """The type of a condition in ``status.conditions`` that is True."""
    path: str = field(name="field", default="")
    words: tuple[str, ...] = field(name="in", default=())
    """The field is one of these words; without words: the field is not empty."""
    positive: tuple[str, ...] = ()
    """One of these numbers is above zero."""
    suspended: bool | None = None
    """Whether the object asks to be suspended."""
    unless: Sign | None = None
    any: tuple[Sign, ...] = ()
    """One of these signs holds."""
    word: str = ""
    """The word that readers are shown for the sign; empty: the type of the condition."""


class KindEnd(Form, frozen=True):
    """A sign that the object is over for good."""

    outcome: Outcome
    when: Sign


class Suspension(Form, frozen=True):
    """The field by which an object waits, and is stopped."""

    at: str = "spec.suspend"
    value: bool | str = True
    resumed: bool | str = False
    annotation: bool = False
    """Operators without the field know the annotation ``scheduling.x-k8s.io/suspend``."""
    also: str = ""
    """A field by which others than Muster stop the object."""


class Roles(Form, frozen=True):
    """How many of the objects or pods of a set are over: entries of a list or a mapping, found by its name."""

    at: str
    key: str = "name"
    count: str = "succeeded"


class Pods(Form, frozen=True):
    """Pods of one template, or of each entry of a list or a mapping."""

    template: str = "template"
    """The path of the pod template, within the entry where ``each`` is given."""
    resources: str = ""
    """The requests and limits of one pod, where no template tells them."""
    name: str = "main"
    """The name of the set; of a list: the field with the name."""
    each: str = ""
    order: tuple[str, ...] = ()
    """Names of a mapping in the order of their priority; others follow by name."""
    count: tuple[str, ...] = ()
    """The product of these numbers; a missing number is 1."""
    most: str = ""
    done: str = ""
    failed: str = ""
    """No more pods than ``most`` without ``done``, and without the indexes that ``failed`` names (``1,3-5``)."""
    times: str = ""
    """So many objects are made, each with this number of pods."""
    over: Roles | None = None
    """The objects that are over."""
    later: tuple[str, ...] = ()
    """Names of the sets made once other pods run, where ``when`` holds."""
    when: Sign | None = None
    fixed: bool = False
    """The scheduler of the pods cannot be changed."""
    begun: str = ""
    """From when on the template cannot be changed at all."""


class Child(Form, frozen=True):
    """Objects that the controller makes: parts of the workload."""

    kind: str
    named: str = ""
    """The name given by the controller: ``{owner}-launcher``, ``*-cleanup``; empty: any name."""
    pods: int = 0
    """The most pods of such an object; 0: any number."""
    aside: bool = False
    """The pods of the object are not counted with the workload's."""
    last: bool = False
    """Made while the workload is being deleted: counted, and not what the workload runs through."""


class Manager(Form, frozen=True):
    """The field that names another controller, and the own controllers' values of the field."""

    at: str
    own: tuple[str, ...]


class Definition(Form, frozen=True, kw_only=True):
    """One kind of workload."""

    kind: str
    api_version: str
    plural: str = ""
    """Empty: the kind in lower case with an s."""
    suspend: Suspension = Suspension()
    pods: tuple[Pods, ...] = ()
    priority: tuple[str, ...] = ()
    """Fields with a PriorityClass, before the classes of the templates."""
    minimum: tuple[str, ...] = ()
    """Fields with the number of pods that the gang needs to start in a queue of KAI Scheduler."""
    ends: tuple[KindEnd, ...] = ()
    """How it ends; the first that holds counts."""
    settled: Sign | None = None
    """The status that its controller wrote last says that nothing of it runs."""
    stops: Sign | None = None
    """Of a suspended one: its pods may still run."""
    running: Sign | None = None
    busy: Sign | None = None
    """Its controller cannot suspend it in the state it is in."""
    detail: str = ""
    """The field with the controller's own word for the state."""
    told: tuple[str, ...] = ()
    """Conditions that readers are shown where they are True, the first of them."""
    child: str = ""
    """The field with the name of the object that it runs through; of two names the second is on its way out."""
    children: tuple[Child, ...] = ()
    pods_of: tuple[str, ...] = ()
    """Kinds that own the pods; empty: the kind itself."""
    managed_by: Manager | None = None
    finalizer: str = ""
    """The finalizer of the controller: a deleted object is there until its controller has seen the deletion."""
    size_from: str = ""
    """The field that tells the size; a workload without the field is refused."""
    unit_suffix: str | None = None
    """Suffix of the QueueUnit's name; None: ``-KIND-qu``."""
    edits: dict[str, Any] = {}
    """Edits allowed while the object runs: ``{parallelism: falls, ttl: free}``."""
    controllers: tuple[str, ...] = ()
    """User names of the accounts that run the kind."""


_KIND, _PLURAL = re.compile(r"[A-Z][A-Za-z0-9]{0,62}"), re.compile(r"[a-z][a-z0-9]{0,62}|")
_VERSION = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/v[0-9][a-z0-9]{0,30}")
_STEP = r"([A-Za-z_][A-Za-z0-9_-]*(\[\])?|\*)"
_PATH = re.compile(rf"{_STEP}(\.{_STEP})*")
_PATHS = re.compile(
    "also|at|begun|child|count|detail|done|each|failed|minimum|most|path|positive|priority|resources|size_from|"
    "template|times"
)
"""The fields of a definition and of its parts that are paths."""
_EDITS = ("free", "falls")


def check(row: Definition, own: Collection[str]) -> None:
    """Whether a definition of others can be used. Raises UnreadableError naming the field.

    ``own``: the kinds that Muster knows by itself.
    """
    _check_names(row, own)
    for path, text in _texts(row):
        if not all(map(_PATH.fullmatch, text.split(" | "))):
            raise unreadable(path, "not_a_path", value=text[:64])
    if not row.pods:
        raise unreadable("pods", "size_unknown")
    if not row.suspend.at.startswith("spec.") or type(row.suspend.value) is not type(row.suspend.resumed):
        raise unreadable("suspend", "not_a_switch", value=row.suspend.at[:64])
    for index, made in enumerate(row.children):
        if made.kind not in own:
            raise unreadable(f"children[{index}].kind", "none_of", value=made.kind[:64], choices=", ".join(sorted(own)))
    for path, word in _leaves(row.edits, "edits"):
        if word not in _EDITS:
            raise unreadable(path, "none_of", value=str(word)[:64], choices=", ".join(_EDITS))


def _check_names(row: Definition, own: Collection[str]) -> None:
    if not _KIND.fullmatch(row.kind):
        raise unreadable("kind", "not_a_kind", value=row.kind[:64])
    if not _VERSION.fullmatch(row.api_version):
        raise unreadable("apiVersion", "not_a_group_version", value=row.api_version[:64])
    if not _PLURAL.fullmatch(row.plural):
        raise unreadable("plural", "not_a_plural", value=row.plural[:64])
    if row.kind in own or row.kind in VERSIONS or row.kind == "PodGroup":
        raise unreadable("kind", "kind_taken", value=row.kind)


def _texts(part: Form, at: str = "") -> Iterator[tuple[str, str]]:
    """Every path of a definition, with the field that has it."""
    for own in fields(part):
        value, home = getattr(part, own.name), f"{at}.{own.encode_name}".lstrip(".")
        for index, inner in enumerate(value if isinstance(value, tuple) else (value,)):
            if isinstance(inner, Form):
                yield from _texts(inner, f"{home}[{index}]" if isinstance(value, tuple) else home)
            elif inner and _PATHS.fullmatch(own.name):
                yield home, inner


def _leaves(data: dict[str, Any], at: str) -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{at}.{key}")
        else:
            yield f"{at}.{key}", value
