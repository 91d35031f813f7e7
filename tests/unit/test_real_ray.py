"""What the tests of a real Ray say where they cannot run: they are never skipped."""

import subprocess

import pytest

from kit.realray import network, venv
from kit.realray.__main__ import main
from kit.realray.venv import RayMissingError


def test_without_unshare_the_way_out_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(network.shutil, "which", lambda _name: None)
    assert main(["inside", "true"]) == 1
    assert "install util-linux" in capsys.readouterr().err


def test_without_the_privilege_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = subprocess.CompletedProcess([], 1, "", "unshare: unshare failed: Operation not permitted\n")
    monkeypatch.setattr(network.shutil, "which", lambda name: name)
    monkeypatch.setattr(network.subprocess, "run", lambda *_args, **_more: refused)
    with pytest.raises(RayMissingError, match="Operation not permitted; run as root"):
        network.inside(["true"])


def test_without_ray_the_command_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("MUSTER_TEST_CACHE", str(tmp_path))
    with pytest.raises(RayMissingError, match="make ray"):
        venv.installed()
