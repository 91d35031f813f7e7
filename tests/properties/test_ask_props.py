"""What `muster ask` says comes true: the job is submitted as asked about, or as advised, and judged by the stages."""

from __future__ import annotations

from copy import deepcopy
from random import Random

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit import facts
from kit.chaos import NAMESPACES, Chaos
from muster.core.objects.labels import QUOTA_NAME
from muster.core.readmodel.model import ReadModel
from muster.core.readmodel.state import ReadState
from muster.core.stage import Folder
from muster.model.resources import scaled, summed
from muster.model.workload import PodSet, Workload
from muster.serving.asking import ask, read_job
from muster.serving.scope import EVERYTHING, Lens
from muster.serving.views import moment_of
from muster_cli import samples

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def job(name: str, namespace: str, pods: int, cpu: int) -> Workload:
    """A head of 1 cpu, and so many workers."""
    sets = (
        PodSet("head", 1, facts.vector(cpu=1, memory="1G")),
        PodSet("workers", pods, facts.vector(cpu=cpu, memory="1G")),
    )
    need = summed([scaled(each.request, each.count) for each in sets])
    made = facts.job(name, namespace, pod_sets=sets, need={"ack": need, "full": need})
    return msgspec.structs.replace(made, created=0)


def starts(chaos: Chaos, workload: Workload) -> bool:
    """Whether the stages let it in at once, in a copy of everything."""
    bench = deepcopy(chaos.bench)
    bench.facts(facts.seen(workload))
    bench.settle()
    ledger = bench.states["quota_accountant"].ledger
    return workload.ref.uid in ledger.charges


@SETTINGS
@given(st.integers(0, 2**32), st.sampled_from(NAMESPACES), st.integers(1, 6), st.integers(1, 5))
def test_what_is_said_of_now_and_what_is_advised_come_true(seed: int, namespace: str, pods: int, cpu: int) -> None:
    chaos = Chaos(Random(seed))
    chaos.run(steps=120)
    folder, state = Folder(ReadModel()), ReadState()
    for stored in chaos.bench.log:
        folder.fold(state, stored)
    workload = job("asked", namespace, pods, cpu)
    found = ask(state, Lens(EVERYTHING, state), moment_of(state, state.now, live=True), workload, state.now)
    assert starts(chaos, workload) == found.starts_now, found
    for each in found.advice:
        name, _, count = each.change.partition("=")
        if name == "queue":
            said = {QUOTA_NAME: count.rpartition("/")[2]}
            assert starts(chaos, msgspec.structs.replace(workload, labels=said)), each
        if name == "workers":
            assert starts(chaos, job("asked", namespace, int(count), cpu)), each
            assert int(count) == pods - 1 or not starts(chaos, job("asked", namespace, int(count) + 1, cpu)), each


def test_a_manifest_is_read_as_it_would_be_queued() -> None:
    workload = read_job(samples.manifest(samples.TRAINING))
    assert (workload.ref.namespace, workload.ref.name) == ("vision", "training-new")
    assert workload.need["ack"]["nvidia.com/gpu"] == 4000
