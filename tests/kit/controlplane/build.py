"""Builds the binaries of a control plane and keeps them in a cache outside the repository.

Called by the command line, by `ControlPlane` and by the pytest fixtures. A cold build of
everything takes minutes, a warm call under a millisecond per binary; only the binaries asked for
are built. Safe to call from many processes at once. It starts no server.
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kit.controlplane import modules
from kit.controlplane.modules import DEFAULT_KUBERNETES_VERSION, KUBERNETES, KWOK, Module
from kit.controlplane.toolchain import BuildError, find_go

#: Environment variable that chooses the Kubernetes version of a test run.
VERSION_VARIABLE = "MUSTER_TEST_KUBERNETES_VERSION"
#: Binaries that a KUBEBUILDER_ASSETS folder may supply.
ASSETS = ("etcd", "kube-apiserver")


@dataclass(frozen=True)
class Binaries:
    """Executables of one control plane."""

    #: What the API server calls itself, without a leading v.
    kubernetes_version: str
    #: Binary name -> executable; only what was asked for.
    paths: Mapping[str, Path]


def wanted_version() -> str:
    """Kubernetes version for this run, without a leading v."""
    return os.environ.get(VERSION_VARIABLE) or DEFAULT_KUBERNETES_VERSION


def cache_folder() -> Path:
    """Where binaries live: MUSTER_TEST_CACHE, else the user's cache folder."""
    own = os.environ.get("MUSTER_TEST_CACHE")
    if own:
        return Path(own).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster"


def build(
    version: str | None = None,
    names: Iterable[str] = (*KUBERNETES, *KWOK),
    echo: Callable[[str], None] = print,
) -> Binaries:
    """Executables for `names`, built first where the cache lacks them.

    `version` is a Kubernetes release without a leading v; None takes `wanted_version()`.
    `echo` gets one line per thing built. Raises BuildError.
    """
    version = version or wanted_version()
    wanted = set(names)
    kubernetes = modules.kubernetes_module(version)
    paths, served = _assets(version, wanted, echo)
    for module in (kubernetes, modules.kwok_module()):
        missing = [name for name in module.packages if name in wanted and name not in paths]
        paths.update(_from_cache(module, missing, echo))
    unknown = wanted - paths.keys()
    if unknown:
        known = (*KUBERNETES, *KWOK)
        raise BuildError(f"cannot build {sorted(unknown)}: not among {known}; correct the name")
    return Binaries(kubernetes_version=served, paths=paths)


def build_natscli(echo: Callable[[str], None] = print) -> Path:
    """The `nats` command, built first where the cache lacks it. Raises BuildError."""
    return _from_cache(modules.natscli_module(), ["nats"], echo)["nats"]


def build_helm(echo: Callable[[str], None] = print) -> Path:
    """The `helm` command, built first where the cache lacks it. Raises BuildError."""
    return _from_cache(modules.helm_module(), ["helm"], echo)["helm"]


def write_lock(version: str | None = None, echo: Callable[[str], None] = print) -> None:
    """Resolve the Go dependencies anew and write the go.mod and go.sum files to commit."""
    kubernetes = modules.kubernetes_module(version or wanted_version())
    for module in (kubernetes, modules.kwok_module(), modules.natscli_module(), modules.helm_module()):
        with _exclusive(cache_folder(), echo), tempfile.TemporaryDirectory() as folder:
            go = find_go(cache_folder(), echo)
            modules.lay_out(module, Path(folder), go, relock=True)
            module.lock.mkdir(parents=True, exist_ok=True)
            for name in ("go.mod", "go.sum"):
                shutil.copy(Path(folder) / name, module.lock)
        echo(f"wrote {module.lock}")


def _from_cache(module: Module, names: list[str], echo: Callable[[str], None]) -> Mapping[str, Path]:
    """Executables of one module by name; builds those not in the cache."""
    folder = cache_folder() / "controlplane" / module.key
    paths = {name: folder / name for name in names}
    if all(path.exists() for path in paths.values()):
        return paths
    with _exclusive(cache_folder(), echo), tempfile.TemporaryDirectory() as sources:
        # Looked at again under the lock: whoever held it may have built what we need.
        missing = [name for name in names if not paths[name].exists()]
        if missing:
            go = find_go(cache_folder(), echo)
            folder.mkdir(parents=True, exist_ok=True)
            label = f"{module.name} {module.version}"
            modules.lay_out(module, Path(sources), go)
            for name in missing:
                with _timed(f"{name} ({label})", echo):
                    _build_one(module, name, Path(sources), paths[name], go)
    return paths


def _build_one(module: Module, name: str, sources: Path, target: Path, go: Path) -> None:
    # Built beside its target, because a rename is atomic only within one file system.
    half_built = target.with_name(f".{name}.{os.getpid()}")
    flags = ["-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", module.linker_flags]
    try:
        package = module.packages[name]
        modules.run_go(go, sources, "build", *flags, "-o", str(half_built), package)
        half_built.rename(target)
    finally:
        half_built.unlink(missing_ok=True)


def _assets(version: str, wanted: set[str], echo: Callable[[str], None]) -> tuple[dict[str, Path], str]:
    """Binaries supplied by KUBEBUILDER_ASSETS, and the version the API server will report."""
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if not folder:
        return {}, version
    supplied = {name: Path(folder) / name for name in ASSETS if name in wanted}
    paths = {name: path for name, path in supplied.items() if os.access(path, os.X_OK)}
    for path in paths.values():
        echo(f"using {path} (KUBEBUILDER_ASSETS)")
    if "kube-apiserver" not in paths:
        return paths, version
    served = _reported_version(paths["kube-apiserver"])
    if served.split(".")[:2] != version.split(".")[:2]:
        raise BuildError(
            f"cannot use {paths['kube-apiserver']}: it is Kubernetes {served}, {version} was "
            f"asked for; set {VERSION_VARIABLE}={served} or unset KUBEBUILDER_ASSETS"
        )
    return paths, served


def _reported_version(apiserver: Path) -> str:
    done = subprocess.run([str(apiserver), "--version"], capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r"v(\d+\.\d+\.\d+\S*)", done.stdout)
    if found is None:
        raise BuildError(
            f"cannot use {apiserver}: `--version` printed {done.stdout!r}, exit code "
            f"{done.returncode}; repair or unset KUBEBUILDER_ASSETS"
        )
    return found[1]


@contextmanager
def _timed(what: str, echo: Callable[[str], None]) -> Iterator[None]:
    echo(f"building {what} ...")
    started = time.monotonic()
    yield
    echo(f"built {what} in {time.monotonic() - started:.0f} s")


@contextmanager
def _exclusive(folder: Path, echo: Callable[[str], None]) -> Iterator[None]:
    """Hold the build lock of a cache. The kernel frees it when the holder dies."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            echo(f"another process is building into {folder}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
