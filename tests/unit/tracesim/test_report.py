"""The page: well-formed, complete, nothing from elsewhere, and names from users' files are text in it."""

import re
from html.parser import HTMLParser

import pytest

from kit.traces import run, trace
from muster.tracesim.report import write_report
from muster.tracesim.svg import figure, ticks
from muster.tracesim.timeline import Timeline

TWO = {"nodes": [{"count": 1, "gpus": 4}], "queues": {"a": {"min": 2}, "b<i>&": {"min": 2}}}
JOBS = "x,a,4,0,100\ny,b<i>&,2,10,10\nz,b<i>&,1,20,30"
VOID = {"meta"}


class Page(HTMLParser):
    """Which elements there are, that each is closed, and everything that would be loaded."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.count: dict[str, int] = {}
        self.loads: list[str] = []
        self.words = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.loads += [value for name, value in attrs if name in ("src", "href") and value]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.remove(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.words += data


def page(tmp_path, *results):
    write_report(tmp_path / "report.html", results)
    text = (tmp_path / "report.html").read_text()
    assert "http" not in text
    assert not re.search(r"url\(|@import|<script", text)
    assert "NaN" not in text
    assert "nan" not in text
    return Page(text)


@pytest.mark.parametrize("policy", ["muster", "kueue-like"])
def test_a_report_of_one_policy(tmp_path, policy):
    found = page(tmp_path, run(trace(tmp_path, TWO, JOBS), policy))
    assert found.loads == []
    assert found.count["svg"] >= 4
    for word in ("Waits", "Utilisation", "Share against guarantee", "Evictions", "b<i>&"):
        assert word in found.words


def test_evictions_are_drawn(tmp_path):
    cluster = {"nodes": [{"count": 2, "gpus": 4}], "queues": {"a": {"min": 4}, "b": {"min": 4}}}
    made = trace(tmp_path, cluster, "x,a,4,0,100\nyoung,a,4,20,100\ny,b,4,50,10")
    found = page(tmp_path, run(made, "kueue-like"))
    assert "No job was evicted" not in found.words
    assert found.count["rect"] == 1


def test_a_report_of_several_policies_links_to_each(tmp_path):
    made = trace(tmp_path, TWO, JOBS)
    found = page(tmp_path, *(run(made, policy) for policy in ("fifo", "srtf")))
    assert found.loads == ["fifo/report.html", "srtf/report.html"]


def test_each_question_has_one_chart_with_all_policies(tmp_path):
    made = trace(tmp_path, TWO, JOBS)
    results = [run(made, policy) for policy in ("muster", "fifo", "srtf")]
    found = page(tmp_path, *results)
    assert found.count["svg"] == 4
    for question in ("Waits", "How much of the cluster works", "kept from jobs that ask", "How often work is stopped"):
        assert question in found.words
    assert found.count["li"] == 2
    assert "Against fifo: " in found.words


def test_a_job_that_no_policy_can_start_is_named_with_the_limit(tmp_path):
    cluster = {"nodes": [{"count": 1, "gpus": 4}], "queues": {"a": {"min": 2, "max": 3}, "b": {"min": 2}}}
    found = page(tmp_path, run(trace(tmp_path, cluster, "x,a,4,0,9\ny,b,9,0,9\nz,b,1,0,9")))
    assert "2 jobs can never start, whatever the policy: " in found.words
    assert "x asks for nvidia.com/gpu 4, and queue a has 3" in found.words
    assert "y asks for nvidia.com/gpu 9, and the cluster has 4" in found.words


def test_a_report_of_nothing_is_a_report(tmp_path):
    found = page(tmp_path, run(trace(tmp_path, TWO, "x,a,9,0,100")))
    assert "No job was evicted" in found.words


def test_spans_hold_means_over_time(tmp_path):
    made = trace(tmp_path, TWO, "x,a,4,0,50\ny,b<i>&,2,100,50")
    found = run(made, "fifo")
    timeline = Timeline(made, found.history, spans=3)
    from muster.tracesim.sweep import Sweep

    Sweep(made, found.history).run(timeline.watch)
    assert timeline.end == 150_000
    assert timeline.busy == pytest.approx([4, 0, 2])
    assert timeline.capacity == pytest.approx([4, 4, 4])
    assert timeline.used["root/a"] == pytest.approx([4, 0, 0])


def test_ticks_are_round():
    assert ticks(100) == [0, 25, 50, 75, 100]
    assert ticks(448 * 1.05) == [0, 200, 400]
    assert ticks(0) == [0]
    assert [figure(value) for value in (0.5, 12, 1500, 2_000_000)] == ["0.5", "12", "1.5k", "2M"]
