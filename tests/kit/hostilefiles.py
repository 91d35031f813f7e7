"""Files that are made to break a reader, and each command that reads one.

``python -m kit.hostilefiles FOLDER [CONTENT ...]`` runs every command on these contents, or on all, in one process, and
prints what came of each as JSON.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from kit.traces import files
from muster_cli.main import run

LOG = Path(__file__).parents[1] / "histories" / "ray-grows-by-groups.jsonl.gz"
UNSEEN = "\u200b\u200d\u2060\u3164\uffa0\U000e0041\u00ad\x1b[31m\x07"
"""Zero-width and filler characters, tags, a soft hyphen, a colour, a bell."""
DEEP = 100_000

READERS: dict[str, tuple[str, ...]] = {
    "queue tree --log": ("queue", "tree", "--log", "FILE"),
    "queue ls --log": ("queue", "ls", "--log", "FILE"),
    "quota lint FILE": ("quota", "lint", "FILE"),
    "quota flavors FILE": ("quota", "flavors", "FILE"),
    "quota diff FILE": ("quota", "diff", "FILE"),
    "quota shares --queues": ("quota", "shares", "--queues", "FILE"),
    "log verify --log": ("log", "verify", "--log", "FILE"),
    "log voids --log": ("log", "voids", "--log", "FILE"),
    "nats keys --keys": ("nats", "keys", "--keys", "FILE", "--rotate", "watcher"),
    "ls --log": ("ls", "--log", "FILE"),
    "why --log": ("why", "one", "--log", "FILE"),
    "position --log": ("position", "one", "--log", "FILE"),
    "ask FILE": ("ask", "FILE", "--log", str(LOG)),
    "ask --log": ("ask", "JOB", "--log", "FILE"),
    "story --log": ("story", "video", "--log", "FILE"),
    "nodes --log": ("nodes", "--log", "FILE"),
    "import --segments": ("import", "--segments", "FOLDER"),
    "replay --log": ("replay", "--log", "FILE"),
    "debug --log": ("debug", "gang_admitter", "--at", "1", "--log", "FILE"),
    "check --log": ("check", "--log", "FILE"),
    "simulate --cluster": ("simulate", "--cluster", "FILE", "--jobs", "JOBS", "--out", "OUT"),
    "simulate --jobs": ("simulate", "--cluster", "CLUSTER", "--jobs", "FILE", "--out", "OUT"),
    "simulate --faults": ("simulate", "--cluster", "CLUSTER", "--jobs", "JOBS", "--out", "OUT", "--faults", "FILE"),
    "whatif --tree": ("whatif", "--log", str(LOG), "--tree", "FILE"),
    "whatif --log": ("whatif", "--log", "FILE", "--add-nodes", "2xcpu=8"),
    "diff ONE": ("diff", "FILE", str(LOG)),
    "diff OTHER": ("diff", str(LOG), "FILE"),
    "decide --state": ("decide", "--state", "FILE"),
    "submit FILE": ("submit", "FILE"),
}
"""{what reads: the command}: FILE and FOLDER are hostile, the others are as they should be."""

JOB = "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: a, namespace: video}\nspec: {}\n"


def _million_laughs() -> str:
    rows = ["l0: &l0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    rows += [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]
    return "\n".join(rows) + "\n"


CONTENTS: dict[str, Callable[[], bytes]] = {
    "deep JSON": lambda: b"[" * DEEP + b"]" * DEEP,
    "deep JSON in a commit": lambda: b'{"seq":1,"commit":' + b'{"a":' * DEEP + b"1" + b"}" * DEEP + b"}\n",
    "deep YAML": lambda: b"{a: " * DEEP + b"1" + b"}" * DEEP,
    "deep YAML of dashes": lambda: b"- " * DEEP + b"1\n",
    "a large exponent": lambda: (
        b"total: {gpu: 1e999999999}\nspec: {root: {min: {cpu: 1e999999999}}}\nseq: 1e999999999\n"
    ),
    "a large exponent in JSON": lambda: (
        b'{"seq": 1e999999999, "nodes": [{"cpu": 1e999999999}], "total": 1e999999999}\n'
    ),
    "many digits": lambda: b'{"seq": ' + b"9" * 400_000 + b"}\n",
    "aliases of aliases": lambda: _million_laughs().encode(),
    "no text": lambda: bytes(range(256)) * 64,
    "unseen characters": lambda: f'kind: "Elastic{UNSEEN}QuotaTree"\n"na{UNSEEN}me": "{UNSEEN}"\n'.encode(),
    "unseen characters in JSON": lambda: json.dumps({"kind": f"a{UNSEEN}b", f"k{UNSEEN}": UNSEEN}).encode() + b"\n",
    "nothing": lambda: b"",
    "gzip without end": lambda: gzip.compress(b"0" * (16 << 20), 1),
    "gzip of empty lines": lambda: gzip.compress(b"\n" * (16 << 20), 1),
    "gzip cut off": lambda: LOG.read_bytes()[:-20],
}


class Outcome(NamedTuple):
    """What came of one command."""

    content: str
    reader: str
    code: int
    said: str
    took_s: float


def laid_out(folder: Path, content: str) -> dict[str, str]:
    """The files of a content, by the names that commands have for them."""
    body = CONTENTS[content]()
    packed = content.startswith("gzip")
    file = folder / ("hostile.jsonl.gz" if packed else "hostile.yaml")
    file.write_bytes(body)
    segments = folder / "segments"
    segments.mkdir()
    (segments / "manifest.json").write_bytes(body)
    (folder / "job.yaml").write_text(JOB)
    cluster, jobs = files(folder, {"nodes": [{"count": 1, "gpus": 4}], "queues": {"a": {"min": 2}}}, "x,a,4,0,100")
    return {
        "FILE": str(file),
        "FOLDER": str(segments),
        "JOB": str(folder / "job.yaml"),
        "CLUSTER": str(cluster),
        "JOBS": str(jobs),
        "OUT": str(folder / "out"),
    }


def outcome(content: str, reader: str, names: dict[str, str]) -> Outcome:
    said = io.StringIO()
    began = time.monotonic()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            code = run([names.get(word, word) for word in READERS[reader]])
        except SystemExit as err:
            code = int(err.code or 0)
        except Exception as err:
            print(f"Traceback: {type(err).__name__} {err}"[:500])
            code = -1
    return Outcome(content, reader, code, said.getvalue(), time.monotonic() - began)


def main() -> None:
    for number, content in enumerate(sys.argv[2:] or CONTENTS):
        folder = Path(sys.argv[1]) / str(number)
        folder.mkdir()
        names = laid_out(folder, content)
        for reader in READERS:
            print(f"{reader} on {content}", file=sys.stderr, flush=True)  # The last one is where it ended.
            found: dict[str, Any] = outcome(content, reader, names)._asdict()
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
