"""Record, judge and compare histories: ``python -m kit.histories record|judge|compare --help`` says how."""

from __future__ import annotations

import argparse
import sys
from multiprocessing import get_context
from pathlib import Path

from kit.histories.comparing import compare
from kit.histories.files import FOLDER, Line, line_of, names_in, path_of, read_lines, write, write_lines
from kit.histories.judging import judge, judged
from kit.histories.table import HISTORIES, LARGE, REAL

PROCESSES = 2
RECIPES = HISTORIES | REAL | LARGE


def record(task: tuple[str, Path]) -> tuple[Line | None, str]:
    """Play a history and write its file: its line, or why it is not written; and what differs from the file before."""
    name, folder = task
    recipe, path = RECIPES[name], path_of(name, folder)
    try:
        log = recipe.play()
    except Exception as err:  # The others are recorded all the same.
        return None, f"it cannot be played: {type(err).__name__}: {err}"
    line = line_of(name, recipe.manner, log)
    if name not in LARGE and (wrong := judged(name, recipe.manner, line.digest, log, folder)):
        return None, wrong
    new = folder / f"{name}.new.gz"
    write(log, new)
    first = ""
    if path.exists():
        first = compare(path, new, decisions=True).first or compare(path, new).first
        if not first:  # Equal logs stay equal bytes, whatever packed them.
            new.unlink()
            return line, ""
    new.replace(path)
    return line, first


def record_all(names: list[str], folder: Path) -> int:
    """Each is played in a process of its own: nothing is left there of what was played before."""
    folder.mkdir(parents=True, exist_ok=True)
    lines, failed = read_lines(folder), 0
    with get_context("fork").Pool(PROCESSES, maxtasksperchild=1) as pool:
        tasks = [(name, folder) for name in names]
        for name, (line, said) in zip(names, pool.imap(record, tasks, chunksize=1), strict=True):
            if line is None:
                failed += 1
                print(f"NOT WRITTEN    {name}: {said}", flush=True)
                continue
            old = lines.get(name)
            lines[name] = line
            print(f"{_became(old, line, said):<14} {line}", *said.splitlines(), sep="\n  ", flush=True)
    for path in [path_of(name, folder) for name in names_in(folder) if name not in RECIPES]:
        print(f"removed        {path.name}: no recipe plays it any more")
        path.unlink()
    there = {*names_in(folder)}
    write_lines({name: line for name, line in lines.items() if name in there}, folder)
    return 1 if failed else 0


def _became(old: Line | None, line: Line, said: str) -> str:
    if old is None:
        return "new"
    if old == line and not said:
        return "same"
    return "same decisions" if (old.decisions, old.digest) == (line.decisions, line.digest) else "CHANGED"


def judge_all(names: list[str], folder: Path) -> int:
    found = [wrong for name in names if (wrong := judge(name, folder))]
    print(*found, f"{len(names)} histories, {len(found)} of them not as recorded", sep="\n")
    return 1 if found else 0


def compare_all(one: Path, other: Path, ignored: list[str], *, decisions: bool) -> int:
    """Two files, or all that two folders have."""
    names = sorted({*names_in(one), *names_in(other)}) if one.is_dir() else [""]
    differ = 0
    for name in names:
        pair = (path_of(name, one), path_of(name, other)) if name else (one, other)
        if missing := [str(path) for path in pair if not path.exists()]:
            differ += 1
            print(f"{name}: there is no {missing[0]}")
            continue
        found = compare(*pair, ignored, decisions=decisions)
        differ += bool(found.first)
        print(f"{name}: {found}" if name else found)
    return 1 if differ else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m kit.histories", description="The recorded histories of tests/histories."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    to = {
        "type": Path,
        "default": FOLDER,
        "metavar": "FOLDER",
        "help": "where the files are; tests/histories unless said",
    }
    one = verbs.add_parser("record", help="play histories and write their files; equal ones stay as they are")
    one.add_argument("names", nargs="*", metavar="NAME", help=f"all but these unless named: {', '.join(REAL | LARGE)}")
    one.add_argument("--to", **to)  # type: ignore[arg-type]
    one = verbs.add_parser("judge", help="decide them again, and audit them: what `make check` does")
    one.add_argument("names", nargs="*", metavar="NAME")
    one.add_argument("--to", **to)  # type: ignore[arg-type]
    one = verbs.add_parser("compare", help="two files or folders, event by event as they are on the wire")
    one.add_argument("one", type=Path)
    one.add_argument("other", type=Path)
    one.add_argument(
        "--ignore",
        default="",
        metavar="Type.field,...",
        help="what moved: left out of both sides. *.field for every type, Type.field.part for what is inside",
    )
    one.add_argument("--decisions", action="store_true", help="leave out what they were decided on")
    given = parser.parse_args()
    if given.verb == "compare":
        ignored = [each for each in given.ignore.split(",") if each]
        return compare_all(given.one, given.other, ignored, decisions=given.decisions)
    if unknown := [name for name in given.names if name not in RECIPES and name not in names_in(given.to)]:
        parser.error(f"there is no history {unknown[0]}; there are {', '.join(RECIPES)}")
    if given.verb == "judge":
        return judge_all(given.names or names_in(given.to), given.to)
    return record_all(given.names or list(HISTORIES), given.to)


if __name__ == "__main__":
    sys.exit(main())
