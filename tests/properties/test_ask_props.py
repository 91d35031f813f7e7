"""What `muster ask` says comes true: the job is submitted as asked about, or as advised, and judged by the stages."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.advised import advised, asked, job, starts
from kit.chaos import NAMESPACES, Chaos
from kit.depth import examples
from muster.core.stage import Folder
from muster.serving.asking import read_job
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster_cli import samples

SETTINGS = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@SETTINGS
@given(st.integers(0, 2**32), st.sampled_from(NAMESPACES), st.integers(1, 6), st.integers(1, 5))
def test_what_is_said_of_now_and_what_is_advised_come_true(seed: int, namespace: str, pods: int, cpu: int) -> None:
    chaos = Chaos(Random(seed))
    chaos.run(steps=120)
    folder, state = Folder(ReadModel()), ReadState()
    for stored in chaos.bench.log:
        folder.fold(state, stored)
    workload = job("asked", namespace, pods, cpu)
    found = asked(state, workload, state.now)
    assert starts(chaos.bench, workload) == found.starts_now, found
    for change, other in advised(found, pods, cpu):
        assert starts(chaos.bench, other), change
        name, _, count = change.partition("=")
        if name == "workers":
            more = job("asked", namespace, int(count) + 1, cpu)
            assert int(count) == pods - 1 or not starts(chaos.bench, more), change


def test_a_manifest_is_read_as_it_would_be_queued() -> None:
    workload = read_job(samples.manifest(samples.TRAINING))
    assert (workload.ref.namespace, workload.ref.name) == ("vision", "training-new")
    assert workload.need["ack"]["nvidia.com/gpu"] == 4000
