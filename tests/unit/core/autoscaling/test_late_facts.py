"""The bridge and the accountant take the same facts: what was seen late says nothing to either."""

from __future__ import annotations

from typing import Any

import pytest

from kit import facts
from kit.folded import heard
from muster.core.autoscaling.bridge import AutoscalerBridge
from muster.core.quota.accountant import QuotaAccountant
from muster.core.stage import Folder, Stage
from muster.events.base import Cause, Event
from muster.events.decisions import WorkloadAdopted
from muster.model.elastic import Elastic, ScaledGroup
from muster.model.workload import PodSet

PODS = (PodSet("head", 1, {}), PodSet("small", 2, {}))


def folded(stage: Stage[Any], *told: Event) -> Any:
    state, folder = stage.initial(), Folder(stage)
    for event in told:
        heard(folder, state, event)
    return state


@pytest.mark.parametrize("scales", [False, True], ids=["fixed by now", "scales by now"])
def test_a_size_that_was_seen_late_is_not_what_is_granted(scales: bool) -> None:
    """They would build on different grants, and growth would be asked for and never answered."""
    fixed = facts.job("auto", pod_sets=PODS)
    elastic = facts.seen(fixed, elastic=Elastic((ScaledGroup("small", 5, 5),))).workload
    old, new = (fixed, elastic) if scales else (elastic, facts.seen(fixed, rv=elastic.rv + 1).workload)
    charge = WorkloadAdopted(
        cause=Cause(1, 0), ref=fixed.ref, attempt=1, queue="root/a", request={}, pods=3, reason="already_running"
    )
    told = (facts.seen(new), facts.seen(old), charge)
    entry = folded(QuotaAccountant(), *told).entries[fixed.ref.uid]
    grant = folded(AutoscalerBridge(), *told).grants[fixed.ref.uid]
    assert (grant.groups, grant.fixed) == (entry.groups, entry.fixed)
    assert grant.groups == ({"small": 5} if scales else {})
