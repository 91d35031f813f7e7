"""Says which Go modules make up the control plane: what they require and what they build.

Called by `build`, which owns the cache. Nothing here writes outside the folder it is given.
`go/locks/<module>-<version>/` holds a committed go.mod and go.sum where we have them; for any
other version both are made with `go mod tidy` at build time.
"""

import hashlib
import json
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kit.controlplane.toolchain import BuildError, go_environment

DEFAULT_KUBERNETES_VERSION = "1.36.3"
OLDER_KUBERNETES_VERSION = "1.34.4"
"""A server that has no policies that change objects."""
KWOK_VERSION = "0.8.0"
NATSCLI_VERSION = "0.3.0"
HELM_VERSION = "3.22.0"

KUBERNETES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
KWOK = ("kwok",)

SOURCES = Path(__file__).parent / "go"


@dataclass(frozen=True)
class Module:
    """One Go module to build binaries from."""

    #: `kubernetes`, `kwok`, `natscli` or `helm`.
    name: str
    #: Without a leading v, e.g. `1.36.3`.
    version: str
    #: Binary name -> package to build, as `go build` takes it.
    packages: Mapping[str, str]
    #: Values stamped into the binaries, `import path.variable` -> text.
    stamps: Mapping[str, str]

    @property
    def lock(self) -> Path:
        """Folder that holds, or would hold, the committed go.mod and go.sum."""
        return SOURCES / "locks" / f"{self.name}-{self.version}"

    @property
    def linker_flags(self) -> str:
        """Value of `go build -ldflags`."""
        return " ".join(["-s -w", *(f"-X {key}={value}" for key, value in self.stamps.items())])

    @property
    def key(self) -> str:
        """Name of this module's folder in the cache: its version and a hash of all inputs."""
        digest = hashlib.sha256()
        inputs = [*SOURCES.glob("*/main.go"), *self.lock.glob("go.*")]
        for path in sorted(inputs):
            digest.update(f"{path.relative_to(SOURCES)}\0".encode() + path.read_bytes())
        digest.update(f"{self.linker_flags}\0{platform.system()}\0{platform.machine()}".encode())
        prefix = "" if self.name == "kubernetes" else f"{self.name}-"
        return f"{prefix}{self.version}-{digest.hexdigest()[:12]}"


def kubernetes_module(version: str) -> Module:
    """The API server, controller-manager and scheduler of one release, and its etcd."""
    found = re.fullmatch(r"(\d+)\.(\d+)\.\d+(-[0-9a-z.]+)?", version)
    if found is None:
        raise BuildError(
            f"cannot build kubernetes {version!r}: not a release number; "
            f"give one like {DEFAULT_KUBERNETES_VERSION}, without a leading v"
        )
    # Without these the server calls itself v0.0.0-master and clients refuse the version.
    stamp = "k8s.io/component-base/version"
    return Module(
        name="kubernetes",
        version=version,
        packages={name: f"./{name}" for name in KUBERNETES},
        stamps={
            f"{stamp}.gitVersion": f"v{version}",
            f"{stamp}.gitMajor": found[1],
            f"{stamp}.gitMinor": found[2],
        },
    )


def kwok_module() -> Module:
    """KWOK: plays the kubelet for nodes that do not exist."""
    return Module(
        name="kwok",
        version=KWOK_VERSION,
        packages={"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
        stamps={"sigs.k8s.io/kwok/pkg/consts.Version": KWOK_VERSION},
    )


def natscli_module() -> Module:
    """The `nats` command: what a subscriber has at hand."""
    return Module(
        name="natscli",
        version=NATSCLI_VERSION,
        packages={"nats": "github.com/nats-io/natscli/nats"},
        stamps={"main.version": NATSCLI_VERSION},
    )


def helm_module() -> Module:
    """The `helm` command: what renders and installs the chart."""
    return Module(
        name="helm",
        version=HELM_VERSION,
        packages={"helm": "helm.sh/helm/v3/cmd/helm"},
        stamps={"helm.sh/helm/v3/internal/version.version": f"v{HELM_VERSION}"},
    )


def lay_out(module: Module, folder: Path, go: Path, *, relock: bool = False) -> None:
    """Fill `folder` with mains, go.mod and go.sum, ready for `go build -mod=readonly`.

    Takes the committed lock when there is one, unless `relock`. Raises BuildError.
    """
    if module.name == "kubernetes":
        for main in SOURCES.glob("*/main.go"):
            (folder / main.parent.name).mkdir()
            shutil.copy(main, folder / main.parent.name)
    if not relock and (module.lock / "go.sum").exists():
        for name in ("go.mod", "go.sum"):
            shutil.copy(module.lock / name, folder)
        return
    if module.name == "kubernetes":
        text = _kubernetes_go_mod(module, folder, go)
    else:
        text = _tool_go_mod(module)
    (folder / "go.mod").write_text(text)
    run_go(go, folder, "mod", "tidy")


def run_go(go: Path, folder: Path, *arguments: str) -> str:
    """Run `go` in `folder` and return what it printed. Raises BuildError with its last words."""
    done = subprocess.run(
        [str(go), *arguments],
        cwd=folder,
        env=go_environment(go),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(
            f"cannot run go {' '.join(arguments)} in {folder}: exit code {done.returncode}; "
            f"its last lines were:\n{done.stderr.strip()[-3000:]}"
        )
    return done.stdout


def _kubernetes_go_mod(module: Module, folder: Path, go: Path) -> str:
    """The Kubernetes module names its own libraries v0.0.0; every main must say which they are."""
    found = json.loads(run_go(go, folder, "mod", "download", "-json", f"k8s.io/kubernetes@v{module.version}"))
    upstream = Path(found["GoMod"]).read_text()
    language = re.search(r"^go (\S+)$", upstream, re.MULTILINE)
    libraries = re.findall(r"^\s*(k8s\.io/\S+) v0\.0\.0$", upstream, re.MULTILINE)
    if language is None or not libraries:
        raise BuildError(
            f"cannot write a go.mod for kubernetes {module.version}: {found['GoMod']} has no go "
            f"line or no v0.0.0 libraries; look at that file and correct {__file__}"
        )
    library_version = f"v0.{module.version.split('.', 1)[1]}"
    return "\n".join(
        [
            "module kit.invalid/controlplane",
            f"go {language[1]}",
            f"require k8s.io/kubernetes v{module.version}",
            *(f"replace {name} => {name} {library_version}" for name in libraries),
            "",
        ]
    )


def _tool_go_mod(module: Module) -> str:
    (package,) = module.packages.values()
    root = package.partition("/cmd/")[0].removesuffix("/nats")
    return "\n".join(
        [
            f"module kit.invalid/{module.name}",
            "go 1.26.0",
            f"tool {package}",
            f"require {root} v{module.version}",
            "",
        ]
    )
