"""Our CustomResourceDefinitions, those of other operators that tests need, and how a test installs them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from kit.waiting import until
from muster.model.api import CRDS
from muster.ports import ApiTransport

FOLDER = Path(__file__).parents[2] / "deploy" / "crds"
OTHERS = Path(__file__).parent / "definitions"
"""Of operators that we do not ship with: Kubeflow, Spark."""


@cache
def definitions() -> list[dict[str, Any]]:
    """Every definition we ship; not to be changed."""
    return [yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yaml"))]


@cache
def others() -> list[dict[str, Any]]:
    """Every definition of others; not to be changed."""
    return [yaml.safe_load(path.read_text()) for path in sorted(OTHERS.glob("*.yaml"))]


async def install_crds(transport: ApiTransport) -> None:
    """Create every definition that is not there yet, and wait until all kinds are served and listed."""
    for definition in [*definitions(), *others()]:
        body = json.dumps(definition).encode()
        answer = await transport.request("POST", CRDS.path(), body=body)
        assert answer.status in (201, 409), answer.body

    async def served() -> bool:
        for definition in [*definitions(), *others()]:
            spec = definition["spec"]
            path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
            if (await transport.request("GET", path)).status != 200:
                return False
            found = json.loads((await transport.request("GET", path.rpartition("/")[0])).body)
            if spec["names"]["plural"] not in [entry["name"] for entry in found.get("resources", ())]:
                return False
        return True

    await until(served, 30.0)
