"""What `muster why` says of a Ray cluster that scales itself: granted, ceiling, asked, and each step on the way."""

from kit.audits import audit
from kit.rayscenes import denied
from muster.core.cell.seats import Seat
from muster.told.readmodel.model import ReadModel
from muster.told.status.statuses import job_status
from muster.told.wording import jobs


def test_granted_ceiling_asked_and_what_refuses_it() -> None:
    scene, _ = denied("insufficient_quota")
    seat = Seat(ReadModel())
    for stored in scene.bench.log:
        seat.fold(stored)
    said = jobs.text(job_status(seat.state, "one-uid"), scene.bench.now)
    assert "Granted: small 1" in said
    assert "it asks for small 4 more; RayCluster a/one cannot grow by 4 of group small: cpu in quota root/a" in said
    happened = [each.what for each in seat.state.records["one-uid"].past.all()]
    assert [what for what in happened if what.startswith("growth")] == ["growth_requested", "growth_denied"]
    assert audit(scene.bench.log).violations == []
