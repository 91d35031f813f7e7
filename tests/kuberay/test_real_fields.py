"""Every field of Ray objects, edited in every state, on the real operator: what it does is what the record has.

MUSTER_TEST_REWRITE=1 writes the record (tests/kit/records/rayfields), with which `tests/sim/test_ray_field_records.py`
compares the rows.
"""

from __future__ import annotations

import os

import pytest

from kit.controlplane import ControlPlane
from kit.installation import figure
from kit.rayfieldsplayed import STATES
from kit.realkuberay.cluster import RealKubeRay
from kit.realkuberay.dashboards import Dashboards
from kit.realkuberay.fields import all_states, keep, lasts, recorded
from kit.realkuberay.sources import Release

pytestmark = [pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize("kind", STATES)
async def test_an_edit_does_what_was_recorded(
    plane: ControlPlane, release: Release, kind: str, request: pytest.FixtureRequest
) -> None:
    suspends = kind != "RayService" or release.suspends_services()
    async with RealKubeRay(plane, release, Dashboards(lasts)) as cluster:
        seen = await all_states(cluster, kind, lambda state: suspends or state != "waits")
        if os.environ.get("MUSTER_TEST_REWRITE"):
            keep(release.version, seen)
    known = recorded(release.version)
    figure(request, f"edits of {kind}, KubeRay {release.version}", f"{len(seen)} played")
    assert {name: one for name, one in seen.items() if known.get(name) != one} == {}
