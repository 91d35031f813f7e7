"""Services log in to the API server without the thousands of classes that kubernetes_asyncio generates."""

from __future__ import annotations

import subprocess
import sys

LOGIN = """
import sys
from muster.kube import slimclient
slimclient.load()
from kubernetes_asyncio import client
from kubernetes_asyncio.config import ConfigException
from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader
from kubernetes_asyncio.config.kube_config import load_kube_config_from_dict
client.Configuration()
print(sum(name.startswith("kubernetes_asyncio") for name in sys.modules))
"""


def test_a_login_loads_no_generated_model() -> None:
    loaded = subprocess.run([sys.executable, "-c", LOGIN], capture_output=True, text=True, check=True)
    assert int(loaded.stdout) < 30


def test_the_whole_package_is_left_alone_where_it_is_loaded() -> None:
    whole = (
        "import kubernetes_asyncio.client as c; from muster.kube import slimclient; slimclient.load(); print(c.V1Pod)"
    )
    loaded = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=True)
    assert "V1Pod" in loaded.stdout
