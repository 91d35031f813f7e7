"""Which token the bridge shows to which head, and what it counts of its readings."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from muster.model.elastic import HeadService
from muster.model.keys import Ref
from muster.ray.heads import Certificates
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
    made = head_of(ONE, 3, HeadService())
    assert (made.gcs, made.dashboard) == ("one-head-svc.team-a.svc:6379", "http://one-head-svc.team-a.svc:8265")
    head = structs.replace(made, token="secret-1", certificates=Certificates(b"ca", b"cert", b"secret-2"))
    assert (head.token, head.attempt) == ("secret-1", 3)
    assert "secret" not in repr(head) and "secret" not in repr(head.certificates)


def test_a_head_is_asked_where_it_is_served() -> None:
    own = head_of(ONE, 3, HeadService("mine", 6380, 9265))
    assert (own.gcs, own.dashboard) == ("mine.team-a.svc:6380", "http://mine.team-a.svc:9265")
    secret = head_of(ONE, 3, HeadService(dashboard=0, tls=True))
    assert (secret.gcs, secret.dashboard, secret.tls) == ("one-head-svc.team-a.svc.cluster.local:6379", "", True)
    long = Ref("RayCluster", "team-a", "a" * 53, "uid-3")
    assert head_of(long, 1, HeadService()).gcs == f"{'a' * 53}-head-svc.team-a.svc:6379", "KubeRay cuts no service"


def test_certificates_are_whole_or_none(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path)
    for part in ("ca.crt", "tls.crt"):
        (tmp_path / f"default.{part}").write_text(f"default {part}")
        (tmp_path / f"team-a.one.{part}").write_text(part)
    assert tokens.certificates(ONE) is None
    (tmp_path / "default.tls.key").write_text("default key")
    assert tokens.certificates(ONE) == Certificates(b"default ca.crt", b"default tls.crt", b"default key")
    (tmp_path / "team-a.one.tls.key").write_text("key")
    assert tokens.certificates(ONE) == Certificates(b"ca.crt", b"tls.crt", b"key")
    assert Tokens(None).certificates(ONE) is None


def test_readings_are_counted_by_source_and_outcome() -> None:
    metrics = Metrics()
    on_read = measured(metrics)
    on_read("gcs", "ok", 0.001)
    on_read("gcs", "ok", 0.002)
    on_read("dashboard", "unreachable", 0.5)
    page = metrics.render().decode()
    assert 'muster_ray_readings_total{outcome="ok",source="gcs"} 2.0' in page
    assert 'muster_ray_readings_total{outcome="unreachable",source="dashboard"} 1.0' in page
    assert "muster_ray_reading_duration_seconds_count" in page
