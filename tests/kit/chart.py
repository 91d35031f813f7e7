"""The chart of ``deploy/chart`` as the real helm renders it (built once with Go, as the control plane is).

``python -m kit.chart`` prints where that helm is.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from kit.compose import REPOSITORY
from kit.controlplane.build import build_helm
from kit.deployed import every

CHART = REPOSITORY / "deploy" / "chart"
FORMS = {"production": "install.yaml", "small": "install-small.yaml"}
KUBERNETES = "1.30.0"
NAMESPACE = "muster-system"

Object = dict[str, Any]


def values() -> Object:
    found: Object = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm, and wait for its end."""
    return subprocess.run([str(build_helm(lambda _: None)), *arguments], capture_output=True, text=True, check=False)


def template(
    chosen: Object, *, namespace: str = NAMESPACE, apis: Iterable[str] = ()
) -> subprocess.CompletedProcess[str]:
    """``helm template`` of the chart with values; ``apis``: what the API server has besides."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "values.json")
        file.write_text(json.dumps(chosen))
        more = [part for api in apis for part in ("--api-versions", api)]
        where = ["--namespace", namespace, "--kube-version", KUBERNETES, "--values", str(file)]
        return helm("template", "muster", str(CHART), *where, *more)


def rendered(chosen: Object, *, namespace: str = NAMESPACE, apis: Iterable[str] = ()) -> list[Object]:
    """Every object of the chart with values, in the order in which helm installs the objects."""
    done = template(chosen, namespace=namespace, apis=apis)
    assert done.returncode == 0, done.stderr
    return every(done.stdout)


def by_name(objects: list[Object]) -> dict[tuple[str, str, str], Object]:
    """Helm sorts objects by its own order of kinds."""
    found = {(o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]): o for o in objects}
    assert len(found) == len(objects)
    return found


def shipped(form: str) -> list[Object]:
    """An install file without the namespace, which is there before a release of helm."""
    made = every((REPOSITORY / "deploy" / FORMS[form]).read_text())
    return [each for each in made if (each["kind"], each["metadata"]["name"]) != ("Namespace", NAMESPACE)]


if __name__ == "__main__":
    sys.stdout.write(f"{build_helm(lambda text: print(text, file=sys.stderr))}\n")
