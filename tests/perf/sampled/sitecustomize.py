"""Imported by every Python that has this folder on PYTHONPATH: samples its CPU time by what it is spent on.

A sample whenever the kernel counts CPU of it, a few hundred for each second. At the end of the process the counts are
in a file of the folder SAMPLES_TO.
"""

import atexit
import json
import os
import signal
import sys
from collections import Counter
from types import FrameType

EVERY_S = 0.001
PARTS = (
    ("decode", "muster/events/envelope.py", ("decode_commit", "decode_envelope")),
    ("decode", "muster/audit/judge.py", ()),
    ("fold", "muster/core/docket.py", ("judged", "hear")),
    ("fold", "muster/core/stage.py", ("hear", "fold", "move_on")),
    ("fold", "muster/runtime/runners/folding.py", ()),
    ("decide", "muster/core/cell/seats.py", ("decisions", "commit_due", "deadline")),
    ("decide", "muster/core/actuation/", ()),
    ("encode", "muster/events/registry.py", ("encode",)),
    ("encode", "muster/core/abridging.py", ("abridged",)),
    ("encode", "muster/runtime/logkeeping/snapshotting.py", ()),
    ("HTTP", "/aiohttp/", ()),
    ("HTTP", "muster/kube/", ()),
    ("other", "muster/core/reading/watcher.py", ("observe", "report", "doubtful", "vanished")),
    ("other", "muster/runtime/", ()),
    ("other", "muster/telemetry/", ()),
    ("other", "muster/serving/", ()),
    ("transport", "/nats/", ()),
    ("transport", "muster/bus/", ()),
    ("transport", "/asyncio/", ()),
    ("transport", "selectors.py", ()),
)
"""(part, in the path of the file, functions or all of them): the innermost call that is in one of them counts."""

counts: Counter[str] = Counter()
known: dict[object, str] = {}


def part_of(frame: FrameType) -> str:
    code = frame.f_code
    found = known.get(code)
    if found is None:
        path, name = code.co_filename, code.co_name
        found = known[code] = next(
            (part for part, where, names in PARTS if where in path and (not names or name in names)), ""
        )
    return found


def sample(_number: int, frame: FrameType | None) -> None:
    found = ""
    while frame is not None:
        found = found or part_of(frame)
        if "importlib" in frame.f_code.co_filename:
            found = "import"
            break
        frame = frame.f_back
    counts[found or "other"] += 1


def write() -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    with open(os.path.join(os.environ["SAMPLES_TO"], f"{os.getpid()}.json"), "w") as file:  # noqa: PTH118, PTH123
        json.dump({"argv": sys.orig_argv, "counts": counts}, file)


if "SAMPLES_TO" in os.environ:
    atexit.register(write)
    signal.signal(signal.SIGPROF, sample)
    signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
