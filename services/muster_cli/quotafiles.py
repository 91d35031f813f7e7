"""A quota tree, or KAI queues, in a file: as the cluster would read the file, with every broken rule and warning."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct, field

from muster.core.objects.kaiqueue import read_kai_queue
from muster.core.objects.meta import CHANGE_REASON, CHANGED_BY, FLAVORS, PREFIX, UnreadableError
from muster.core.quota.trees.kaisource import compile_queues, tree_of
from muster.core.quota.trees.rules import KNOWN
from muster.core.quota.trees.treesource import PREEMPTS, REAPPLIED, WEIGHTS, read_tree
from muster.core.reading.quotatree import NAMESPACE, PROFILE, read_quota_tree
from muster.events.facts import TreeNodeSpec
from muster.model import api
from muster.model.kaiqueue import KaiQueue
from muster.model.language import say
from muster.model.quota import ROOT, QuotaTree
from muster.model.resources import format_quantity
from muster.told.wording import problems
from muster_cli.brokenrules import BrokenRule, in_words
from muster_cli.exits import USAGE, CliError
from muster_cli.manifests import Manifest, read_manifests
from muster_cli.textfiles import file_text

KIND = "ElasticQuotaTree"


class Linted(Struct, frozen=True):
    """One tree of a file. The tree would be put in force only when ``broken`` is empty."""

    name: str
    tree: QuotaTree | None
    rules: dict[str, str] = field(default_factory=dict)
    """The rules in the annotations."""
    broken: list[BrokenRule] = field(default_factory=list)
    warnings: list[BrokenRule] = field(default_factory=list)
    queues: tuple[KaiQueue, ...] = ()
    """The queues of KAI Scheduler, for KAI queues: a broken queue disables only the queues below."""


def read_trees(path: Path) -> list[Linted]:
    """Every ElasticQuotaTree of a YAML file, and the KAI queues as one tree.

    Raises CliError when the file cannot be read or holds neither.
    """
    text = file_text(path)
    manifests = read_manifests(text, str(path))
    lints = [lint(manifest) for manifest in manifests if manifest.kind == KIND]
    queues = [
        manifest
        for manifest in manifests
        if manifest.api_version == api.KAI_QUEUES.api_version and manifest.kind == "Queue"
    ]
    if queues:
        lints.append(lint_queues(queues, say("the KAI queues of {path}", path=path)))
    if not lints:
        raise CliError(
            say(
                "{path} holds no {kind}, and no Queue of {api_version}",
                path=path,
                kind=KIND,
                api_version=api.KAI_QUEUES.api_version,
            ),
            USAGE,
        )
    return lints


def lint_queues(manifests: Sequence[Manifest], name: str) -> Linted:
    """KAI queues judged as the accountant judges them, as if there were no others."""
    queues: list[KaiQueue] = []
    broken: list[BrokenRule] = []
    for number, manifest in enumerate(manifests):
        meta = {"uid": f"file-{number}", "resourceVersion": "1", **manifest.body["metadata"]}
        try:
            queues.append(read_kai_queue(json.dumps({**manifest.body, "metadata": meta}, default=str).encode()))
        except UnreadableError as err:
            broken.append(BrokenRule(manifest.name, "unreadable", problems.line(err.problem)))
    compiled = compile_queues(queues)
    broken += [BrokenRule(queue, "disabled", problems.line(why)) for queue, why in sorted(compiled.disabled.items())]
    tree = tree_of(compiled, {}) if compiled.nodes else None
    return Linted(name, tree, broken=broken, warnings=[*map(in_words, compiled.warnings)], queues=tuple(queues))


def lint(manifest: Manifest) -> Linted:
    """One manifest judged by the rules the accountant judges by."""
    meta = {"uid": "file", "resourceVersion": "1", **manifest.body["metadata"], "name": manifest.name or "generated"}
    meta["namespace"] = NAMESPACE  # `_around` reports another namespace.
    try:
        observed = read_quota_tree(json.dumps({**manifest.body, "metadata": meta}, default=str).encode())
    except UnreadableError as err:
        return Linted(
            str(manifest), None, broken=[BrokenRule(err.problem.path, "unreadable", problems.say(err.problem))]
        )
    tree, broken = read_tree(observed)
    warnings = [*_around(manifest), *_unknown_attributes(observed.root, ROOT), *_within(tree)]
    return Linted(str(manifest), tree, observed.rules, [*map(in_words, broken)], warnings)


def _around(manifest: Manifest) -> Iterator[BrokenRule]:
    """What is odd about the object."""
    if manifest.namespace != NAMESPACE:
        where = f"namespace {manifest.namespace}" if manifest.namespace else say("no namespace")
        yield BrokenRule(
            "metadata.namespace",
            "namespace",
            say("it names {where}; a tree outside {namespace} is ignored", where=where, namespace=NAMESPACE),
        )
    known = {PROFILE, CHANGED_BY, CHANGE_REASON, *(f"{PREFIX}/{name}" for name in KNOWN)}
    for key in sorted(manifest.body["metadata"].get("annotations") or {}):
        if key.startswith(f"{PREFIX}/") and key not in known:
            yield BrokenRule(
                "metadata.annotations", "annotation", say("{key} means nothing here; is it misspelt?", key=key)
            )


def _unknown_attributes(node: TreeNodeSpec, path: str) -> Iterator[BrokenRule]:
    """Attributes of nodes that look like ours and are not."""
    for key in sorted(node.attributes):
        if key.startswith(f"{PREFIX}/") and key not in (PREEMPTS, REAPPLIED, FLAVORS, *WEIGHTS):
            yield BrokenRule(path, "attribute", say("attribute {key} means nothing here; is it misspelt?", key=key))
    for child in node.children:
        yield from _unknown_attributes(child, f"{path}/{child.name}")


def _within(tree: QuotaTree) -> Iterator[BrokenRule]:
    """What keeps every rule, and probably is not meant."""
    limits = {node.path: node.limit for node in tree.nodes}
    for name in tree.flavored:
        if name not in tree.nodes[0].limit:
            yield BrokenRule(tree.root, "flavor", say("max names no {name}: any amount of it is admitted", name=name))
    for node in tree.nodes:
        parent = limits.get(node.path.rpartition("/")[0], {})
        for name, limit in sorted(node.limit.items()):
            if name in parent and limit > parent[name]:
                detail = say(
                    "max {name} {limit} is over the parent's {parent}, so it is never reached",
                    name=name,
                    limit=format_quantity(limit, name),
                    parent=format_quantity(parent[name], name),
                )
                yield BrokenRule(node.path, "max_over_parent", detail)
        if not node.children and not node.namespaces and node.path != tree.rules.unbound_queue:
            yield BrokenRule(
                node.path, "no_namespace", say("no namespace is on this leaf: only labels lead jobs to it")
            )
