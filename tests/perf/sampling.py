"""Where the CPU of services goes, in a round of its own that is not timed: sampled inside each of them, by part."""

import json
import os
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from figures import Grid

PARTS = ("transport", "decode", "fold", "decide", "encode", "HTTP", "other")
ABOUT = (
    "A round of its own, sampled by CPU time inside each service (`tests/perf/sampled`), from its start to its end "
    "without imports; % of its samples. Transport: the event loop, and the client of NATS. Decode: with the checks of "
    "each commit alone. Fold: with the judge. Decide: what a stage makes due. Encode: commits, public events, "
    "snapshots. HTTP: with TLS. Other: runners, metrics, the reading of objects, what is published."
)


class Samples:
    """``settings``: the environment of the services to be sampled."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = [str(Path(__file__).parent / "sampled"), os.environ.get("PYTHONPATH", "")]
        self.settings = {"SAMPLES_TO": str(folder), "PYTHONPATH": os.pathsep.join(filter(None, path))}

    def grid(self, title: str) -> Grid:
        """Once the services have ended."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for file in sorted(self._folder.glob("*.json")):
            said = json.loads(file.read_text())
            name = _service(said["argv"])
            if name:
                found[name] += Counter(said["counts"])
        cells = {name: _shares(found[name]) for name in sorted(found)}
        cells["all services"] = _shares(sum(found.values(), Counter()))
        return Grid(title, ABOUT, ("Service", "samples", *(f"{part}, %" for part in PARTS)), cells)


@contextmanager
def sampled() -> Iterator[Samples]:
    """What services that begin and end in here spend their CPU on."""
    with tempfile.TemporaryDirectory() as folder:
        yield Samples(Path(folder))


def _service(argv: list[str]) -> str:
    """``watcher``; ``deciders`` of `muster run deciders`; nothing of other commands."""
    module = next((word for word in argv if word.startswith("muster_")), "")
    if module == "muster_cli":
        return argv[argv.index("run") + 1] if "run" in argv else ""
    return module.removeprefix("muster_")


def _shares(counts: Counter[str]) -> list[float]:
    count = counts.total() - counts["import"]
    return [float(count), *(round(100 * counts[part] / max(1, count), 1) for part in PARTS)]
