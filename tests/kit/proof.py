"""What every end-to-end test ends with: the log keeps every invariant, and decides the same again elsewhere.

`prove` exports the log and judges the file in two processes of their own with different hash seeds, from an empty
store and with no way to reach anything: opening a connection there is an error. `python -m kit.proof` is what such
processes are forked from, one for each file. `proven` judges at once, where the test is: for logs of simulations.
"""

import asyncio
import atexit
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kit.audits import AuditReport, audit
from kit.published import judge_all
from muster.core.docket import Docket, Judge
from muster.events.envelope import Stored
from muster.ports import Log, LogLostError
from muster.runtime.replaying.replay import replay

TESTS = Path(__file__).parents[1]
HASH_SEEDS = ("1", "2")
TIME_LIMIT_S = 60.0
COMMITS_A_SECOND = 50
"""Judged at least, on a machine that does much else."""


class ProofError(AssertionError):
    """The log is not as it must be."""


class _Read:
    """A log as far as it was read."""

    def __init__(self) -> None:
        self.log_id = ""
        self.commits: list[Stored] = []
        self._judge = Judge(Docket())

    async def on(self, log: Log) -> None:
        """Read to the present end."""
        self.log_id = log.identity.log_id
        async for batch in log.follow(self.commits[-1].seq if self.commits else 0):
            if not batch:
                return
            self.commits += map(self._judge.hear, batch)
            judge_all(batch)
        raise AssertionError("a log is followed for ever")


_read: dict[tuple[str, str], _Read] = {}
"""The log that was asked for last, by URL and cell."""


async def commits_of(nats_url: str, cell: str, *, whole: bool = False) -> list[Stored]:
    """The log of a cell as it counts, up to its present end.

    Tests that wait ask many times a second. So commits that an earlier call has read and judged are not read again,
    unless ``whole`` or the cell has another log by now.
    """
    from muster.bus.cell import open_log
    from muster.bus.connection import connect
    from muster.bus.jetstream import JetStream

    read = _read.pop((nats_url, cell), _Read())
    _read.clear()
    connection = await connect(nats_url, name="proof")
    try:
        log = await open_log(JetStream(connection), cell)
        chain = {log.identity.log_id, *(generation.log_id for generation in log.identity.earlier)}
        if whole or read.log_id not in chain:
            read = _Read()
        try:
            await read.on(log)
        except LogLostError:  # Set back: the log is shorter than it was.
            read = _Read()
            await read.on(log)
    finally:
        await connection.close()
    _read[nats_url, cell] = read
    return [*read.commits]


def ending(commits: Sequence[Stored]) -> str:
    """The last commits of a log, a line each: for whoever reads of a failure."""
    lines = []
    for stored in commits[-20:]:
        events = " ".join(f"{type(event).__name__}({getattr(event, 'ref', '')})" for event in stored.commit.events)
        lines.append(f"{stored.seq} {stored.commit.stage} {stored.commit.shard}: {events}")
    return "\n".join(lines)


async def prove(commits: Sequence[Stored], folder: Path, *, name: str = "log", silences: bool = True) -> dict[str, Any]:
    """Judge a log; returns what the judges counted. Raises ProofError.

    `silences`: also that nothing was due where a stage kept quiet; not where a stage was paused or cut off.
    """
    from muster.runtime.logkeeping.logfile import write_log

    path = folder / f"{name}.jsonl.gz"
    write_log(path, commits)
    within = TIME_LIMIT_S + len(commits) / COMMITS_A_SECOND
    judged = await asyncio.gather(*(_judge(path, seed, silences, within) for seed in HASH_SEEDS))
    assert judged[0] == judged[1], f"hash seeds {HASH_SEEDS} judge differently: {judged}"
    found = judged[0]
    if found["violations"] or found["divergences"]:
        first = (found["violations"] or found["divergences"])[0]
        raise ProofError(
            f"{path}: {first} ({len(found['violations'])} violations, {len(found['divergences'])} divergences)"
        )
    return found


def proven(commits: list[Stored], *, but: str = "") -> AuditReport:
    """The log keeps every invariant, ``but`` for one, and replays without divergence. Returns what was audited."""
    report = audit(commits)
    broken = [each for each in report.violations if each.invariant != but]
    assert not broken, broken[0]
    replayed = replay(commits, silences=False)
    assert not replayed.divergences, replayed.divergences[0]
    return report


def environment(hash_seed: str) -> dict[str, str]:
    """Of a process that judges: nothing that leads to a server, and a hash seed of its own."""
    return {"PATH": os.defpath, "PYTHONPATH": str(TESTS), "PYTHONHASHSEED": hash_seed}


class _Court:
    """A process under a hash seed, in which all is imported that a judge needs."""

    def __init__(self, hash_seed: str) -> None:
        command = [sys.executable, "-m", "kit.proof"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, env=environment(hash_seed), stdin=pipe, stdout=pipe, text=True)
        atexit.register(self.close)

    def judge(self, path: Path, silences: bool) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([str(path), silences]) + "\n")
        self.process.stdin.flush()
        found: dict[str, Any] = json.loads(self.process.stdout.readline() or '{"failed": "it was ended"}')
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        atexit.unregister(self.close)


_courts: dict[str, _Court] = {}


async def _judge(path: Path, hash_seed: str, silences: bool, within: float) -> dict[str, Any]:
    court = _courts.get(hash_seed) or _courts.setdefault(hash_seed, _Court(hash_seed))
    found: dict[str, Any] = {"failed": f"it took more than {within:.0f} s"}
    try:
        async with asyncio.timeout(within):
            found = await asyncio.to_thread(court.judge, path, silences)
    except TimeoutError:
        _courts.pop(hash_seed).close()
    if "failed" in found:
        raise ProofError(f"judging {path} under hash seed {hash_seed} failed: {found['failed'][-2000:]}")
    return found


def main() -> None:
    """Judge each file that is named on standard input, in a process that has judged no other."""
    import muster.runtime.logkeeping.logfile  # noqa: F401 - once, for all of them

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                found = _judged(*json.loads(line))
            except BaseException:
                found = {"failed": traceback.format_exc()}
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            sys.stdout.write(json.dumps({"failed": f"it ended with {status}"}) + "\n")
            sys.stdout.flush()


def _judged(path: str, silences: bool) -> dict[str, Any]:
    from muster.runtime.logkeeping.logfile import read_log

    commits = list(read_log(Path(path)))
    audited = audit(commits)
    replayed = replay(commits, silences=silences)
    return {
        "commits": replayed.commits,
        "decisions": replayed.decisions,
        "silences": replayed.silences,
        "violations": [str(each) for each in (*audited.violations, *replayed.violations)],
        "divergences": [f"{each.stage} at {each.seq}: {each.first_difference()}" for each in replayed.divergences],
    }


def _no_network(event: str, _arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect":
        raise RuntimeError("a replay reaches for the network")


if __name__ == "__main__":
    sys.addaudithook(_no_network)
    main()
