"""Job lists of other schedulers as tables of our columns: the output of Slurm's ``sacct --parsable2``, and SWF.

A job that never started is left out: its run time is not known. Times count from the first submission.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from muster.model.language import say
from muster.tracesim.model import TraceError
from muster.tracesim.tables import CsvTable, Table, TableRow

COLUMNS = ("job_id", "queue", "gpus", "submit_s", "duration_s", "cpu_milli", "memory_mib", "run_time_s")
SWF_FIELDS = 18
SLURM = ("JobID", "Submit")
NO_TIME = ("", "Unknown", "None", "N/A")
_ELAPSED = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?")
_AMOUNT = re.compile(r"([0-9.]+)([KMGTP]?)[cn]?")
_MIB = {"K": 1 / 1024, "M": 1, "": 1, "G": 1024, "T": 1024**2, "P": 1024**3}

Row = tuple[int, list[str]]
"""Its line in the file, and a cell for each of ``COLUMNS``."""


def foreign_jobs(path: Path) -> Table | None:
    """The table of a job list that is not ours; None where it is. Raises TraceError."""
    first = _first_line(path)
    if path.suffix == ".swf" or first.startswith(";"):
        return Table(path, COLUMNS, list(_from_first(_swf(path), path)))
    if "|" in first and set(SLURM) <= {cell.strip() for cell in first.split("|")}:
        return Table(path, COLUMNS, list(_from_first(_slurm(path), path)))
    return None


def _first_line(path: Path) -> str:
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        return file.readline()


def _from_first(rows: Iterator[Row], path: Path) -> Iterator[Row]:
    """The same, with times from the first submission on."""
    at = COLUMNS.index("submit_s")
    listed = list(rows)
    if not listed:
        raise TraceError(say("{path} holds no job that started", path=path))
    first = min(float(cells[at]) for _, cells in listed)
    for line, cells in listed:
        yield line, [f"{float(cell) - first:g}" if index == at else cell for index, cell in enumerate(cells)]


# --- the Standard Workload Format ---------------------------------------------------------------------------------


def _swf(path: Path) -> Iterator[Row]:
    """A processor counts as one GPU: the simulation shares what a job has most of."""
    for line, text in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        fields = text.split()
        if not fields or fields[0].startswith(";"):
            continue
        if len(fields) != SWF_FIELDS:
            raise TraceError(
                say(
                    "{path} line {line}: has {fields} fields, and a job of SWF has {wanted}",
                    path=path,
                    line=line,
                    fields=len(fields),
                    wanted=SWF_FIELDS,
                )
            )
        numbers = [_number(path, line, column, field) for column, field in enumerate(fields, 1)]
        job, submit, _, runs, allocated, _, _, asked, limit, memory = numbers[:10]
        processors = asked if asked > 0 else allocated
        if runs <= 0 or processors <= 0:
            continue
        queue = f"{numbers[14]:g}" if numbers[14] >= 0 else "default"
        mib = math.ceil(memory * processors / 1024) if memory > 0 else 0
        yield line, [f"{job:g}", queue, f"{processors:g}", f"{submit:g}", f"{runs:g}", "0", str(mib), _limit(limit)]


def _number(path: Path, line: int, column: int, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise TraceError(
            say(
                "{path} line {line}, field {column}: {words!r} is not a number",
                path=path,
                line=line,
                column=column,
                words=text[:40],
            )
        )
    return number


def _limit(seconds: float) -> str:
    return f"{seconds:g}" if seconds > 0 else "0"


# --- Slurm --------------------------------------------------------------------------------------------------------


def _slurm(path: Path) -> Iterator[Row]:
    table = CsvTable(path, SLURM, delimiter="|")
    known = table.columns
    if "ElapsedRaw" not in known and "Elapsed" not in known and not {"Start", "End"} <= known.keys():
        raise TraceError(
            say("{path} line 1: no column says how long a job ran; add ElapsedRaw to sacct --format", path=path)
        )
    if "AllocTRES" not in known and "ReqTRES" not in known:
        raise TraceError(
            say("{path} line 1: no column says what a job asks for; add AllocTRES,ReqTRES to sacct --format", path=path)
        )
    for row in table.rows():
        job = _SlurmJob(row)
        if "." in row.text("JobID"):
            continue  # A step of a job that has its own line.
        lasts, asked = job.lasts(), _tres(job.said("AllocTRES")) or _tres(job.said("ReqTRES"))
        if lasts <= 0 or not asked:
            continue
        queue = job.said("Account") or job.said("Partition") or "default"
        limit = job.read("TimelimitRaw", float) * 60 if job.said("TimelimitRaw").isdigit() else 0
        runs_on = "End" in known and job.said("End") in NO_TIME
        submit, cpu, mib = job.read("Submit", _instant), asked.get("cpu", 0) * 1000, math.ceil(asked.get("mem", 0))
        cells = [row.text("JobID"), queue, f"{_gpus(asked):g}", f"{submit:.0f}", "" if runs_on else f"{lasts:g}"]
        yield row.line, [*cells, f"{cpu:.0f}", str(mib), _limit(limit)]


class _SlurmJob:
    """One line of the output of sacct."""

    def __init__(self, row: TableRow) -> None:
        self._row = row

    def said(self, name: str) -> str:
        """A cell; empty where there is no such column."""
        return self._row.text(name, "") if name in self._row.table.columns else ""

    def read(self, name: str, by: Callable[[str], float]) -> float:
        """A cell as a number. Raises TraceError."""
        text = self.said(name)
        try:
            return by(text)
        except ValueError:
            raise self._row.error(name, f"{text[:40]!r} cannot be read") from None

    def lasts(self) -> float:
        """Seconds it has run."""
        for name, by in (("ElapsedRaw", float), ("Elapsed", _elapsed)):
            if self.said(name):
                return self.read(name, by)
        if self.said("Start") in NO_TIME or self.said("End") in NO_TIME:
            return 0
        return self.read("End", _instant) - self.read("Start", _instant)


def _elapsed(text: str) -> float:
    """``[DAYS-]HH:MM:SS`` in seconds."""
    match = _ELAPSED.fullmatch(text)
    if match is None:
        raise ValueError(text)
    days, hours, minutes, seconds = (int(group or 0) for group in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _instant(text: str) -> float:
    """Seconds since the epoch; a time without a zone is taken as UTC."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _tres(text: str) -> dict[str, float]:
    """``cpu=32,gres/gpu=4,mem=256G`` as amounts; memory in MiB."""
    amounts: dict[str, float] = {}
    for part in text.split(",") if text else ():
        name, _, amount = part.partition("=")
        match = _AMOUNT.fullmatch(amount.strip())
        if match is not None:
            amounts[name.strip()] = float(match[1]) * (_MIB[match[2]] if name.strip() == "mem" else 1)
    return amounts


def _gpus(asked: Mapping[str, float]) -> float:
    """All GPUs, else the sum of those of each type."""
    return asked.get("gres/gpu", sum(amount for name, amount in asked.items() if name.startswith("gres/gpu:")))
