"""Builds the operator from a clone of KubeRay, and keeps in the cache what the tests need of that release."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from kit.controlplane.build import cache_folder
from kit.controlplane.modules import run_go
from kit.controlplane.toolchain import BuildError, find_go

Object = dict[str, Any]

SOURCE = "MUSTER_TEST_KUBERAY"
"""Names a clone of github.com/ray-project/kuberay, with or without a work tree."""
VERSIONS = ("1.6.2", "1.7.0")
KEPT = {"config/crd/bases": "definitions", "config/rbac/role.yaml": "role.yaml", "config/samples": "samples"}
"""{of ray-operator/: under what name it is kept}"""
GATEWAYS = "sigs.k8s.io/gateway-api"
"""The module whose definitions an incremental upgrade needs."""


class Release(Struct, frozen=True):
    """An operator, and the files of its release."""

    version: str
    folder: Path

    @property
    def operator(self) -> Path:
        return self.folder / "operator"

    def definitions(self) -> list[Object]:
        """Those of KubeRay, and of Gateways."""
        return [*_read(self.folder / "definitions"), *_read(self.folder / "gateways")]

    def suspends_services(self) -> bool:
        """Whether a RayService has ``spec.suspend``, without which it cannot be queued."""
        [body] = [each for each in self.definitions() if each["spec"]["names"]["kind"] == "RayService"]
        return "suspend" in body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]

    def role(self) -> Object:
        role: Object = yaml.safe_load((self.folder / "role.yaml").read_text())
        return role

    def samples(self) -> Iterator[tuple[str, Object]]:
        """(file, object) of every manifest."""
        for path in sorted((self.folder / "samples").rglob("*.yaml")):
            for body in yaml.safe_load_all(path.read_text()):
                if isinstance(body, dict):
                    yield str(path.relative_to(self.folder / "samples")), body


@cache
def _read(folder: Path) -> tuple[Object, ...]:
    return tuple(yaml.load(path.read_text(), yaml.CSafeLoader) for path in sorted(folder.glob("*.yaml")))


def build(version: str, echo: Callable[[str], None] = print) -> Release:
    """The release, from the cache, or built from the clone. Raises BuildError."""
    release = Release(version, cache_folder() / "kuberay" / version)
    if release.operator.exists():
        return release
    clone = os.environ.get(SOURCE, "")
    if not clone:
        raise BuildError(f"KubeRay {version} is not in {release.folder}: clone github.com/ray-project/kuberay, "
                         f"and name the clone: {SOURCE}=PATH")  # fmt: skip
    echo(f"building KubeRay {version} from {clone} ...")
    release.folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as sources, tempfile.TemporaryDirectory(dir=release.folder.parent) as made:
        _laid_out(version, clone, Path(sources))
        inner, half = Path(sources) / "ray-operator", Path(made) / version
        go = find_go(cache_folder(), echo)
        flags = ("-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w")
        run_go(go, inner, "build", *flags, "-o", str(half / "operator"), ".")
        for part, name in KEPT.items():
            (shutil.copytree if (inner / part).is_dir() else shutil.copy)(inner / part, half / name)
        gateways = Path(run_go(go, inner, "list", "-m", "-f", "{{.Dir}}", GATEWAYS).strip())
        (half / "gateways").mkdir()
        for path in (gateways / "config" / "crd" / "standard").glob("gateway.networking.k8s.io_*.yaml"):
            (half / "gateways" / path.name).write_text(path.read_text())
        half.rename(release.folder)
    return release


def _laid_out(version: str, clone: str, target: Path) -> None:
    command = ["git", "-C", clone, "archive", f"v{version}", "ray-operator"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"cannot read v{version} of {clone}: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(target, filter="data")
