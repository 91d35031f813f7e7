"""Job lists of other schedulers: what ``sacct --parsable2`` prints, and the Standard Workload Format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kit.traces import run
from muster.tracesim.jobsfile import read_trace
from muster.tracesim.model import CPU, GPU, MEMORY, Trace, TraceError

CLUSTER = {"nodes": [{"count": 2, "gpus": 8}], "queues": {"vision": {"min": 8, "max": 16}, "text": {"min": 8}}}
SACCT = """\
JobID|Account|Partition|Submit|Start|End|ElapsedRaw|TimelimitRaw|State|ReqTRES|AllocTRES
17|vision|gpu|2026-03-01T08:00:00|2026-03-01T08:00:05|2026-03-01T09:00:05|3600|120|COMPLETED|cpu=8,mem=64G|billing=8,cpu=8,gres/gpu=4,gres/gpu:a100=4,mem=64G,node=1
17.batch|vision||2026-03-01T08:00:05|2026-03-01T08:00:05|2026-03-01T09:00:05|3600||COMPLETED||cpu=8
18_2|text|gpu|2026-03-01T08:01:00|2026-03-01T08:02:00|Unknown|60|UNLIMITED|RUNNING|cpu=2,gres/gpu:h100=2,mem=512M|
19|text|gpu|2026-03-01T08:02:00|Unknown|2026-03-01T08:03:00|0|60|CANCELLED by 4|cpu=1|
"""
SWF = """\
; Version: 2.2
; MaxProcs: 16
  1  100  5  60  4 -1 1024  8 120 2048 1 3 1 -1 0 -1 -1 -1
  2  130 -1  -1 -1 -1   -1  2  60   -1 5 3 1 -1 1 -1 -1 -1
  3  160  0  30  2 -1   -1 -1  -1   -1 1 4 1 -1 1 -1 -1 -1
"""


def read(folder: Path, text: str, name: str = "jobs.txt", cluster: object = CLUSTER) -> Trace:
    (folder / "cluster.json").write_text(json.dumps(cluster))
    (folder / name).write_text(text)
    return read_trace(folder / "cluster.json", folder / name)


def test_what_sacct_prints_is_read_as_it_is(tmp_path: Path) -> None:
    found = read(tmp_path, SACCT)
    one, two = found.jobs
    assert (one.id, one.queue, one.submit, one.duration, one.run_time) == ("17", "root/vision", 0, 3_600_000, 7_200_000)
    assert one.request == {GPU: 4000, CPU: 8000, MEMORY: 64 * 2**30}
    assert (two.id, two.queue, two.submit, two.run_time) == ("18_2", "root/text", 60_000, 0)
    assert two.duration is None, "it has not ended"
    assert two.request == {GPU: 2000, CPU: 2000, MEMORY: 512 * 2**20}


def test_elapsed_and_partition_do_where_sacct_was_asked_for_no_more(tmp_path: Path) -> None:
    text = "JobID|Partition|Submit|Elapsed|AllocTRES\n1|vision|2026-03-01T08:00:00|1-02:00:10|gres/gpu=1\n"
    [job] = read(tmp_path, text).jobs
    assert (job.queue, job.duration, job.gpus) == ("root/vision", (26 * 3600 + 10) * 1000, 1000)


def test_swf_is_read_a_processor_as_a_gpu_and_jobs_that_never_ran_are_left_out(tmp_path: Path) -> None:
    cluster = {"nodes": [{"count": 2, "gpus": 8}], "queues": {"0": {"min": 8}, "1": {"min": 8}}}
    one, three = read(tmp_path, SWF, "log.swf", cluster).jobs
    assert (one.id, one.queue, one.submit, one.duration, one.run_time) == ("1", "root/0", 0, 60_000, 120_000)
    assert one.request == {GPU: 8000, MEMORY: 16 * 2**20}
    assert (three.id, three.submit, three.gpus) == ("3", 60_000, 2000)
    result = run(read(tmp_path, SWF, "log.swf", cluster))
    assert {job.id for job in result.history.jobs.values() if job.end >= 0} == {"1", "3"}


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (SACCT.replace("|3600|120", "|soon|120"), "jobs.txt", "line 2, column 7 (ElapsedRaw): 'soon' cannot be read"),
        ("JobID|Submit|AllocTRES\n1|2026-03-01|cpu=1\n", "jobs.txt", "add ElapsedRaw to sacct --format"),
        ("JobID|Submit|Elapsed\n1|2026-03-01|00:01:00\n", "jobs.txt", "add AllocTRES,ReqTRES to sacct --format"),
        (SACCT.replace("text|gpu", "speech|gpu"), "jobs.txt", "there is no queue speech in the cluster"),
        ("; nothing\n1 2 3\n", "log.swf", "line 2: has 3 fields, and a job of SWF has 18"),
        ("; nothing\n", "log.swf", "holds no job that started"),
        (SWF.replace("160", "late"), "log.swf", "line 5, field 2: 'late' is not a number"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(tmp_path: Path, text: str, name: str, said: str) -> None:
    with pytest.raises(TraceError) as err:
        read(tmp_path, text, name)
    assert said in str(err.value)
