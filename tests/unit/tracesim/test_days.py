"""Days that are drawn: every family, with every option, is a trace that files can hold and a policy can run."""

from collections import defaultdict
from math import log
from statistics import fmean, pvariance

import pytest

from kit.compose import REPOSITORY
from muster.tracesim.days import FAMILIES, OPTIONS, DayWish, draw, parse, write
from muster.tracesim.faults import read_faults
from muster.tracesim.jobsfile import read_trace
from muster.tracesim.limits import too_large_text
from muster.tracesim.machines import node_capacities
from muster.tracesim.model import GPU, TraceError

EVERYTHING = "linked,inner,max=2,lost=3,elastic=0.5,placement=pack,jobs=120"


@pytest.mark.parametrize("nodes", [1, 16])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_day_is_the_same_in_files_and_every_job_of_it_may_start(tmp_path, family, nodes):
    day = draw(parse(f"{family}:4,{EVERYTHING},nodes={nodes}"))
    assert day == draw(parse(f"{family}:4,{EVERYTHING},nodes={nodes}"))
    assert day.trace.jobs != draw(parse(f"{family}:5,{EVERYTHING},nodes={nodes}")).trace.jobs
    assert write(tmp_path, day) == ["cluster.json", "arrivals.csv", "faults.json"]
    again = read_trace(tmp_path / "cluster.json", tmp_path / "arrivals.csv")
    assert again.jobs == day.trace.jobs
    assert (again.cluster.root, again.cluster.placement) == (day.trace.cluster.root, "pack")
    assert read_faults(tmp_path / "faults.json", tuple(node_capacities(again))) == day.faults
    assert too_large_text(day.trace) == ""


def test_more_work_arrives_than_the_cluster_does():
    jobs = draw(DayWish(family="helios", seed=2, jobs=2000)).trace.jobs
    work = sum(job.gpus / 1000 * (job.duration or 0) for job in jobs)
    assert work / (128 * jobs[-1].submit) == pytest.approx(1.1, rel=0.01)
    assert 30 < 100 * fmean(job.gpus == 1000 for job in jobs) < 60


def test_linked_run_times_tell_of_the_next_run():
    def unexplained(*, linked: bool) -> float:
        """The part of the variance of the logarithms within owner and size."""
        drawn: dict[tuple[str, int], list[float]] = defaultdict(list)
        for job in draw(DayWish(family="seren", seed=9, jobs=3000, linked=linked)).trace.jobs:
            drawn[job.queue, job.gpus].append(log(job.duration or 1))
        every = [each for times in drawn.values() for each in times]
        return sum(pvariance(times) * len(times) for times in drawn.values()) / (pvariance(every) * len(every))

    assert unexplained(linked=False) > 0.9
    assert unexplained(linked=True) < 0.5


def test_options_change_what_they_name_and_nothing_else():
    plain = draw(parse("helios:6,jobs=300"))
    inner = draw(parse("helios:6,jobs=300,inner"))
    assert [job.duration for job in inner.trace.jobs] == [job.duration for job in plain.trace.jobs]
    assert sum(group.min[GPU] for group in inner.trace.cluster.root.children) == sum(
        queue.min[GPU] for queue in plain.trace.cluster.root.children
    )
    elastic = draw(parse("helios:6,jobs=300,elastic=1"))
    assert sum(job.gpus for job in elastic.trace.jobs) == sum(job.gpus for job in plain.trace.jobs)
    assert {job.priority for job in elastic.trace.jobs} == {0, -1}
    assert len(draw(parse("helios:6,jobs=300,lost=4")).faults.rows) == 4


def test_the_page_has_every_family_and_option():
    page = (REPOSITORY / "docs" / "howto" / "simulate.md").read_text()
    for family, (words, _) in FAMILIES.items():
        assert f"| `{family}` | {words}" in page
    for option in OPTIONS:
        assert f"`{option}`" in page


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("helos", "there is no family 'helos'; there are helios, seren"),
        ("helios:x", "the seed 'x' is not a whole number"),
        ("helios,fast", "'fast' is no option of a day; there are linked (run times depend on owner and size); inner"),
        ("helios,jobs=0", "jobs=0 is not a whole number from 2 to"),
        ("helios,elastic=2", "elastic=2 is not a part from 0 to 1"),
        ("helios,linked=yes", "'linked=yes' is no option"),
        ("helios,placement=tight", "'placement=tight' is no option"),
    ],
)
def test_a_wrong_day_names_its_wrong_part(text, told):
    with pytest.raises(TraceError) as caught:
        parse(text)
    assert str(caught.value).startswith(told)
