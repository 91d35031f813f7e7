"""The rights of one viewer. Every answer of the gateway passes here: rows are chosen, and names are concealed.

No answer has a name of a namespace that the viewer may not see. Rows about such namespaces are left out. Sentences are
about several objects, so each word is checked. A ``NAMESPACE/NAME`` of another namespace is replaced, and so is the
path of a quota that is not the viewer's. A name that is not known to be visible is concealed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from muster.model.keys import path_chain
from muster.told.readmodel.readstate import ReadState

JOB_HIDDEN = "a job of another namespace"
QUOTA_HIDDEN = "another quota"
NAME_HIDDEN = "(not shown)"

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._|=,-]*(?:/[A-Za-z0-9._|=,-]+)*")
_NUMBER = re.compile(r"[0-9.,]+(/[0-9.,]+)+")
_KUBERNETES = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+/")
"""``nvidia.com/gpu``: a resource, a label or an API, and no job: a namespace has no dot."""


class Scope(Struct, frozen=True):
    """``namespaces``: the namespaces whose jobs the viewer may see, None for all; ``cluster``: whether nodes may be
    seen.
    """

    namespaces: frozenset[str] | None = None
    cluster: bool = True

    @property
    def whole(self) -> bool:
        """Whether nothing is concealed."""
        return self.namespaces is None

    def sees(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces


EVERYTHING = Scope()


class Lens:
    """A scope, applied to one state."""

    def __init__(self, scope: Scope, state: ReadState) -> None:
        self.scope = scope
        self._paths = _visible_paths(scope, state)
        self._foreign = _foreign_names(scope, state)

    def sees(self, namespace: str) -> bool:
        return self.scope.sees(namespace)

    def sees_queue(self, path: str) -> bool:
        """Whether a quota belongs to a namespace of the viewer, or is above such a quota."""
        return self.scope.whole or path in self._paths

    def words(self, text: str) -> str:
        """A sentence without names that the viewer may not see."""
        return text if self.scope.whole else _WORD.sub(self._word, text)

    def _word(self, match: re.Match[str]) -> str:
        word = match.group()
        name = word.rstrip(".,")
        if "/" not in name:
            return NAME_HIDDEN + word[len(name) :] if name in self._foreign else word
        if name in self._paths or _NUMBER.fullmatch(name):
            return word
        first, _, rest = name.partition("/")
        if self.scope.sees(first) and "/" not in rest:
            return word
        if _KUBERNETES.match(name) and not any(part in self._foreign for part in name.split("/")):
            return word
        return (JOB_HIDDEN if "/" not in rest else QUOTA_HIDDEN) + word[len(name) :]

    def through(self, value: Any) -> Any:
        """Plain data with all texts checked."""
        if self.scope.whole:
            return value
        if isinstance(value, str):
            return self.words(value)
        if isinstance(value, Mapping):
            return {self.words(key) if "/" in key else key: self.through(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return [self.through(part) for part in value]
        return value


def _visible_paths(scope: Scope, state: ReadState) -> frozenset[str]:
    """The quotas of the viewer's namespaces, of the jobs there, and all quotas above."""
    if scope.namespaces is None:
        return frozenset(state.queues.ledger.nodes)
    leaves = {
        state.queues.ledger.leaf_of[namespace]
        for namespace in scope.namespaces
        if namespace in state.queues.ledger.leaf_of
    }
    leaves |= {record.queue for record in state.records.values() if record.queue and scope.sees(record.ref.namespace)}
    return frozenset(path for leaf in leaves for path in path_chain(leaf))


def _foreign_names(scope: Scope, state: ReadState) -> frozenset[str]:
    """Foreign names that are no words of English: names with a digit, a dash or a dot."""
    if scope.namespaces is None:
        return frozenset()
    own: set[str] = set()
    foreign: set[str] = set()

    def note(namespace: str, names: Iterable[str]) -> None:
        (own if scope.sees(namespace) else foreign).update(names)

    for record in state.records.values():
        note(record.ref.namespace, (record.ref.namespace, record.ref.name, record.ref.uid))
    for pod in state.nodes.pods.values():
        note(pod.ref.namespace, (pod.ref.namespace, pod.ref.name, pod.ref.uid))
    for key, gang in state.gangs.gangs.items():
        namespace, _, name = key.rpartition("/")
        note(namespace or next((pod.ref.namespace for pod in gang.pods.values()), ""), (namespace, name))
    for namespace in state.queues.ledger.leaf_of:
        note(namespace, (namespace,))
    return frozenset(name for name in foreign - own if any(not letter.isalpha() for letter in name))
