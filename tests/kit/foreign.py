"""A log whose names are in no sentence by chance, and which of them a tenant may not be told: what a leak is."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from muster.events.envelope import Commit, Stored, decode_commit, encode_commit
from muster.serving.answering import Questions


def forged(commits: Sequence[Stored], namespaces: Sequence[str]) -> list[Stored]:
    """The same log with names that are in no sentence by chance: ``video`` becomes ``zq-video-0``."""
    pattern = re.compile(rb"(?<![\w-])(" + b"|".join(name.encode() for name in namespaces) + rb")(?![\w-])")
    made = []
    for stored in commits:
        body = pattern.sub(lambda found: b"zq-" + found.group() + b"-0", encode_commit(stored.commit))
        commit: Commit = decode_commit(body)
        made.append(msgspec.structs.replace(stored, commit=commit))
    return made


def foreign_words(asked: Questions, own: str) -> list[str]:
    """Every name of the log that belongs to another namespace alone: forged namespaces, jobs, pods, quotas."""
    state = asked.live.state
    refs = [record.ref for record in state.records.values()] + [pod.ref for pod in state.nodes.pods.values()]
    mine = {word for ref in refs if ref.namespace == own for word in (ref.namespace, ref.name, ref.uid)} | {own}
    others = {word for ref in refs if ref.namespace != own for word in (ref.namespace, ref.name, ref.uid)}
    leaf = state.queues.ledger.leaf_of.get(own, "")
    others |= {path for path in state.queues.ledger.nodes if "zq-" in path and path != leaf}
    return sorted(word for word in others - mine if "zq-" in word or "-" in word)


def leak(words: Sequence[str]) -> re.Pattern[str]:
    """Finds any of these names as a whole."""
    return re.compile("|".join(rf"(?<![\w-]){re.escape(word)}(?![\w-])" for word in words) or "(?!)")
