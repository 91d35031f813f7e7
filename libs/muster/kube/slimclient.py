"""Imports kubernetes_asyncio without its generated models and API classes.

Logging in needs ``config`` and, of ``client``, the configuration and the TLS set-up. ``import kubernetes_asyncio``
also loads 850 modules of models: 35 MB and half a second of CPU in every service. Muster's models are msgspec structs,
so the three packages that would load the models are registered without running their ``__init__``.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

_PACKAGE = "kubernetes_asyncio"
_BARE = (_PACKAGE, f"{_PACKAGE}.client", f"{_PACKAGE}.client.models")


def load() -> None:
    """Make ``kubernetes_asyncio.client.{Configuration, ApiClient}`` and ``kubernetes_asyncio.config`` importable.

    Does nothing where the whole package is loaded already. Blocks for about 70 ms of CPU the first time.
    """
    if _PACKAGE not in sys.modules:
        spec = find_spec(_PACKAGE)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"package {_PACKAGE} is not installed")
        root = Path(spec.origin).parent
        for name in _BARE:
            _register(name, root.joinpath(*name.split(".")[1:]))
        client = sys.modules[f"{_PACKAGE}.client"]
        for module, name in (("configuration", "Configuration"), ("api_client", "ApiClient")):
            setattr(client, name, getattr(import_module(f"{_PACKAGE}.client.{module}"), name))
    import_module(f"{_PACKAGE}.config")


def _register(name: str, folder: Path) -> None:
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, package)
