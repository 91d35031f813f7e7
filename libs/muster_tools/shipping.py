"""The files of ``deploy`` that are made from ``muster_tools.installing``: bases, install files, and the Helm chart.

``python -m muster_tools.shipping`` writes the files; a test keeps the files equal to this source.
``muster_tools.charting`` makes the chart. ``--to FOLDER NAME=VALUE ...`` writes the install files and the chart with
other values: `make pinned` names the images by digest this way.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from muster_cli import kindlists
from muster_tools.charting import CHART, CHOICES, PATTERN, chart, rendered, replaced
from muster_tools.installing import (
    BASES,
    FILES,
    KUSTOMIZATION,
    RIGHTS,
    WITHOUT_RIGHTS,
    accounts,
    objects,
    parts,
    rights,
)


def written() -> dict[str, str]:
    """{file below the repository: text} of every file made here."""
    files = {
        f"{RIGHTS}/{KUSTOMIZATION}": _kustomization(rights()),
        f"{RIGHTS}/{WITHOUT_RIGHTS}": rendered([*accounts()]),
    }
    for small, folder in BASES.items():
        base = parts(small=small)
        files |= {f"{folder}/{name}": rendered(made) for name, made in base.items()}
        files[f"{folder}/{KUSTOMIZATION}"] = _kustomization(["../rbac", *base])
    return files | shipped({})


def shipped(chosen: Mapping[str, str]) -> dict[str, str]:
    """The install files and the chart, with the default or the chosen value of each choice."""
    values = {name: chosen.get(name, default) for name, (default, _) in CHOICES.items()}
    files = {file: rendered(replaced(objects(small=small), values.__getitem__)) for small, file in FILES.items()}
    return files | {f"{CHART}/{name}": text for name, text in chart(values).items()}


def _kustomization(resources: list[str]) -> str:
    kind = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    return rendered([{**kind, "resources": resources}])


def main() -> None:
    """Write all files: the lists of kinds first, because the other files contain the lists."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, help="write install files and chart alone, below this folder")
    parser.add_argument("chosen", nargs="*", metavar="NAME=VALUE", help=", ".join(CHOICES))
    options = parser.parse_args()
    chosen = dict(option.split("=", 1) for option in options.chosen)
    for name, value in chosen.items():
        if name not in CHOICES or not re.fullmatch(PATTERN[name], value):
            wanted = f"text that matches {PATTERN[name]}" if name in CHOICES else f"one of {', '.join(CHOICES)}"
            sys.exit(f"cannot take {name}={value}: give {wanted}")
    if options.to is not None:
        _write(shipped(chosen), options.to)
        return
    for made in (kindlists.manifests, written):
        _write(made())


def _write(made: Mapping[str, str], below: Path = Path()) -> None:
    for file, text in made.items():
        (below / file).parent.mkdir(exist_ok=True, parents=True)
        (below / file).write_text(text)


if __name__ == "__main__":
    main()
