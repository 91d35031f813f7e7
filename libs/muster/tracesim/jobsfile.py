"""JOBS.csv: arrivals, run times and requests. Pod lists of the openb trace are read unchanged, and so are job lists of
Slurm and in SWF (``joblists``).
"""

from __future__ import annotations

from pathlib import Path

from muster.model.language import say
from muster.model.resources import Vector
from muster.tracesim.clusterfile import MIB, read_cluster
from muster.tracesim.joblists import foreign_jobs
from muster.tracesim.model import CPU, GPU, MEMORY, WHOLE, Trace, TraceCluster, TraceError, TraceJob, TraceQueue
from muster.tracesim.tables import CsvTable, TableRow

NEEDED = ("job_id", "gpus", "submit_s", "duration_s")
POD_COLUMNS = ("name", "num_gpu", "cpu_milli", "memory_mib")
DEFAULT_QUEUE = "default"
MAX_ID = 200
MAX_S = 10_000_000_000


def read_trace(cluster: Path, jobs: Path) -> Trace:
    """The cluster and the jobs of two files. Raises TraceError, and OSError for a file that cannot be read."""
    rows = _pods(jobs) if is_pod_list(jobs) else _jobs(jobs)
    names = dict.fromkeys(name for _, name, _ in rows)
    shape = read_cluster(cluster, tuple(names))
    paths = _paths(shape)
    placed: list[TraceJob] = []
    for row, name, job in rows:
        path = paths.get(name)
        if path is None:
            raise _no_such_queue(row, name, shape)
        placed.append(job(path))
    placed.sort(key=lambda job: job.submit)
    return Trace(shape, tuple(placed))


def is_pod_list(path: Path) -> bool:
    """Whether a file is a pod list of the openb trace, by its header."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        header = [cell.strip() for cell in file.readline().split(",")]
    return "num_gpu" in header and "job_id" not in header


def _paths(cluster: TraceCluster) -> dict[str, str]:
    """Every name of a leaf: the bare name, the full path, the path without the root."""
    names: dict[str, str] = {}
    for path, queue in cluster.leaves.items():
        names[queue.name] = names[path] = names[path.partition("/")[2]] = path
    return names


def _no_such_queue(row: TableRow, name: str, cluster: TraceCluster) -> TraceError:
    column = "queue" if "queue" in row.table.columns else "job_id"
    for queue in cluster.root.walk():
        if name in (queue.name, queue.path):
            return row.error(column, f"queue {name} has children, and jobs wait in leaves only")
    return row.error(column, f"there is no queue {name} in the cluster; there are {_some(cluster.root)}")


def _some(root: TraceQueue) -> str:
    names = [queue.name for queue in root.walk() if not queue.children]
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")


class _Draft:
    """A job that waits for the path of its queue."""

    def __init__(self, row: TableRow, submit: int, duration: int | None, request: Vector) -> None:
        self.id = row.text("job_id" if "job_id" in row.table.columns else "name")
        self.row, self.submit, self.duration, self.request = row, submit, duration, request

    def __call__(self, queue: str) -> TraceJob:
        row = self.row
        members = row.whole("min_member", "0")
        return TraceJob(
            id=self.id,
            queue=queue,
            request=dict(sorted(self.request.items())),
            submit=self.submit,
            duration=self.duration,
            priority=row.whole("priority", "0", signed=True),
            members=members or 1,
            preemptible=row.flag("preemptible", True),
            run_time=row.milli("run_time_s", "0"),
        )


Drafts = list[tuple[TableRow, str, _Draft]]


def _jobs(path: Path) -> Drafts:
    table = foreign_jobs(path) or CsvTable(path, NEEDED, {"vc": "queue"})
    ours = isinstance(table, CsvTable)
    drafts: Drafts = []
    lines: dict[str, int] = {}
    for row in table.rows():
        ends = ours or row.text("duration_s", "") != ""
        draft = _Draft(row, row.milli("submit_s"), row.milli("duration_s") if ends else None, _request(row, "gpus"))
        _check_id(row, "job_id", draft.id, lines)
        for name in ("submit_s", "duration_s"):
            if row.number(name, None if ends else "0") > MAX_S:
                raise row.error(name, f"is more than {MAX_S} seconds")
        drafts.append((row, row.text("queue", DEFAULT_QUEUE), draft))
    if not drafts:
        raise TraceError(say("{path} holds no job", path=path))
    return drafts


def _request(row: TableRow, column: str) -> Vector:
    """The request of the whole job; ``gpu_milli`` is the share of the GPU of a job with one GPU."""
    gpus = row.milli(column)
    if gpus > 10**12:
        raise row.error(column, "is more GPUs than this can count")
    if gpus == WHOLE and (share := row.whole("gpu_milli", "0")):
        if share > WHOLE:
            raise row.error("gpu_milli", f"is a share of one GPU in thousandths, and {share} is more than all of it")
        gpus = share
    cpu, memory = row.whole("cpu_milli", "0"), row.whole("memory_mib", "0")
    amounts = {GPU: gpus, CPU: cpu, MEMORY: memory * MIB}
    return {name: amount for name, amount in amounts.items() if amount}


def _check_id(row: TableRow, column: str, job: str, lines: dict[str, int]) -> None:
    if len(job) > MAX_ID or not job.isprintable():
        raise row.error(column, f"{job[:40]!r} is not an id: at most {MAX_ID} readable characters")
    if job in lines:
        raise row.error(column, f"{job[:40]!r} is the id of the job in line {lines[job]} already")
    lines[job] = row.line


def _pods(path: Path) -> Drafts:
    """Pods as jobs of one queue. Without times a pod comes every second in the order of the file, and stays."""
    table = CsvTable(path, POD_COLUMNS)
    drafts: Drafts = []
    lines: dict[str, int] = {}
    for index, row in enumerate(table.rows()):
        submit = row.milli("creation_time", str(index))
        began, ended = row.milli("scheduled_time", str(submit / 1000)), row.text("deletion_time", "")
        duration = max(row.milli("deletion_time") - began, 0) if ended else None
        draft = _Draft(row, submit, duration, _request(row, "num_gpu"))
        _check_id(row, "name", draft.id, lines)
        drafts.append((row, DEFAULT_QUEUE, draft))
    if not drafts:
        raise TraceError(say("{path} holds no pod", path=path))
    return drafts
