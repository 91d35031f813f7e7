"""Which leaf a charge counts at in the trees in force, by the auditor's own reading of their rules."""

from __future__ import annotations

from collections.abc import Mapping

from muster.model.quota import KAI_ROOT, QuotaNode, QuotaTree


def leaf_in_force(
    trees: Mapping[str, QuotaTree],
    nodes: Mapping[str, QuotaNode],
    leaves: Mapping[str, str],
    namespace: str,
    named: str,
) -> str:
    """Where a tree that comes into force puts a charge; empty where it leaves it.

    ``trees``: by root. ``nodes``: theirs, by path. ``leaves``: {namespace: leaf}.
    """
    own = leaves.get(namespace, "")
    if named.startswith("kai:") and KAI_ROOT in trees:
        queue, _, quota = named[4:].partition("/")
        found = [path for path, node in nodes.items() if path.startswith(f"{KAI_ROOT}/") and node.name == queue]
        return found[0] if found and not own and not quota and not nodes[found[0]].children else ""
    named = named.partition("/")[2] if named.startswith("kai:") else named
    if not named:
        unbound = sorted((root != "root", tree.rules.unbound_queue) for root, tree in trees.items())
        return own or next((path for _, path in unbound if path), "")
    found = [path for path, node in nodes.items() if node.name == named and not node.children]
    found = [path for path in found if not path.startswith(f"{KAI_ROOT}/")]
    return own if own in found else found[0] if len(found) == 1 else ""
