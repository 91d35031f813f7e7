"""What waits and no worker of any group could hold is said, with its shape, and stops nothing else."""

from __future__ import annotations

from kit.rayscenes import RayScene
from muster.events.alarms import AlarmCleared, AlarmRaised
from muster.model.raydemand import RAY_UNIT, RayDemand, RayShape
from muster.told.wording.raywords import alarm_reason

ONE = RayShape({"CPU": RAY_UNIT})
GPUS = RayShape({"GPU": 2 * RAY_UNIT}, 3)
LARGE = RayShape({"CPU": 64 * RAY_UNIT})


def test_what_never_fits_is_named_until_it_is_gone() -> None:
    scene = RayScene()
    scene.pod("head", "head")
    scene.pod("one-worker")
    scene.demands(RayDemand(joined={"small": 1}, pending=(GPUS,)))
    scene.bench.pass_time(61_000)
    [alarm] = scene.bench.happened(AlarmRaised)
    assert (alarm.reason, alarm.lacks) == ("no_group", (RayShape(GPUS.resources),))
    assert "1 x GPU 2" in alarm_reason(alarm).text
    scene.demands(RayDemand(joined={"small": 1}, pending=(GPUS, LARGE)))
    assert [len(each.lacks) for each in scene.bench.happened(AlarmRaised)] == [1, 2], "what is new is said too"
    scene.bench.pass_time(1_000)
    scene.demands(RayDemand(joined={"small": 1}))
    assert scene.bench.happened(AlarmCleared)


def test_what_only_quota_refuses_is_no_alarm() -> None:
    """A group that is granted nothing has maxReplicas 0, and could hold it all the same."""
    scene = RayScene(cores=1)
    scene.pod("head", "head")
    scene.pod("one-worker")
    scene.demands(RayDemand(joined={"small": 1}, pending=(ONE,)))
    scene.bench.pass_time(120_000)
    assert not [each for each in scene.bench.happened(AlarmRaised) if each.reason == "no_group"]
