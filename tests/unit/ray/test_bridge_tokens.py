"""Which token the bridge shows to which head, and what it counts of its readings."""

from __future__ import annotations

from pathlib import Path

from muster.model.keys import Ref
from muster.telemetry.metrics import Metrics
from muster_autoscaler_bridge.leading import head_of
from muster_autoscaler_bridge.measuring import measured
from muster_autoscaler_bridge.tokens import Tokens

ONE = Ref("RayCluster", "team-a", "one", "uid-1")
TWO = Ref("RayCluster", "team-a", "two", "uid-2")


def test_a_cluster_of_its_own_token_else_the_default(tmp_path: Path) -> None:
    (tmp_path / "team-a.one").write_text("secret-1\n")
    tokens = Tokens(tmp_path)
    assert (tokens.of(ONE), tokens.of(TWO)) == ("secret-1", "")
    (tmp_path / "default").write_text("for-all")
    assert (tokens.of(ONE), tokens.of(TWO)) == ("secret-1", "for-all")
    (tmp_path / "team-a.one").write_text("secret-2")
    assert tokens.of(ONE) == "secret-2", "a token may be changed"
    assert Tokens(None).of(ONE) == ""
    assert Tokens(tmp_path / "missing").of(ONE) == ""


def test_a_head_carries_its_token_and_never_shows_it() -> None:
    head = head_of(ONE, 3, "secret-1")
    assert (head.token, head.attempt) == ("secret-1", 3)
    assert "secret-1" not in repr(head)


def test_readings_are_counted_by_source_and_outcome() -> None:
    metrics = Metrics("test")
    on_read = measured(metrics)
    on_read("gcs", "ok", 0.001)
    on_read("gcs", "ok", 0.002)
    on_read("dashboard", "unreachable", 0.5)
    page = metrics.render().decode()
    assert 'muster_ray_readings_total{outcome="ok",source="gcs"} 2.0' in page
    assert 'muster_ray_readings_total{outcome="unreachable",source="dashboard"} 1.0' in page
    assert "muster_ray_reading_duration_seconds_count" in page
