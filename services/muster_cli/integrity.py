"""Whether a log is whole: no holes, its genesis first, every commit under the epoch of its leader. Pure."""

from __future__ import annotations

from muster.events.envelope import Stored
from muster.events.system import Genesis, LeaderStarted
from muster.model.language import say

MAX_FOUND = 100


class Integrity:
    """Feed this every commit from the first on; ``problems`` lists the problems, in order."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.commits = 0
        self.events = 0
        self.first_at = 0
        self.last_at = 0
        self.last_seq = 0
        self.voids = 0
        self.log_id = ""
        self.generation = 0
        self._epochs: dict[tuple[str, str], int] = {}
        self._ids: dict[tuple[str, str], str] = {}

    def feed(self, stored: Stored) -> None:
        """Check one commit against the commits before."""
        commit, seq = stored.commit, stored.seq
        self.voids += bool(stored.void)
        genesis = commit.events[0] if commit.events and isinstance(commit.events[0], Genesis) else None
        if not self.last_seq and genesis is not None and genesis.state:
            self.last_seq, self.log_id = seq - 1, genesis.parent  # What came before was removed, by generations.
        if seq != self.last_seq + 1:
            self._wrong(seq, say("follows sequence {last_seq}: commits are missing", last_seq=self.last_seq))
        if seq == 1 and genesis is None:
            self._wrong(seq, say("is not a genesis"))
        if seq > 1 and genesis is not None and genesis.parent != self.log_id:
            self._wrong(
                seq, say("is a second genesis, and not of the generation after log {log_id}", log_id=self.log_id)
            )
        if genesis is not None:
            self._epochs.clear()
            self.log_id, self.generation, self.first_at = genesis.log_id, genesis.generation, self.first_at or commit.at
        self.last_seq = seq
        self.commits += 1
        self.events += len(commit.events)
        self.last_at = max(self.last_at, commit.at)
        if genesis is None and not stored.void:
            self._check_writer(stored)

    def _check_writer(self, stored: Stored) -> None:
        commit, seq = stored.commit, stored.seq
        writer = (commit.stage, commit.shard)
        if any(isinstance(event, LeaderStarted) for event in commit.events):
            self._epochs[writer] = seq
        elif commit.epoch != self._epochs.get(writer, 0):
            wanted = self._epochs.get(writer, 0)
            self._wrong(
                seq,
                say(
                    "was written by {writer} under epoch {epoch}; {wanted} is in force",
                    writer="/".join(writer),
                    epoch=commit.epoch,
                    wanted=wanted,
                ),
            )
        if commit.in_seq >= seq:
            self._wrong(seq, say("was decided after {in_seq}, which is not before it", in_seq=commit.in_seq))
        if self._ids.get(writer) == commit.commit_id:
            self._wrong(
                seq,
                say("is a second commit {commit_id} of {writer}", commit_id=commit.commit_id, writer="/".join(writer)),
            )
        self._ids[writer] = commit.commit_id

    def _wrong(self, seq: int, problem: str) -> None:
        if len(self.problems) < MAX_FOUND:
            self.problems.append(f"commit {seq} {problem}")
