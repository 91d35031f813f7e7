"""NATS JetStream behind the ports: the only package that imports nats."""

from __future__ import annotations

import sys
from enum import StrEnum
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace


class Header(StrEnum):
    """The headers that the client of nats-py reads by itself."""

    CONSUMER_STALLED = "Nats-Consumer-Stalled"
    DESCRIPTION = "Description"
    STATUS = "Status"


def _import_nats() -> None:
    """Import nats-py without aiohttp, without its JetStream classes and without a search for its version: together a
    third of the time of a command that only reads a log.

    nats-py needs aiohttp for websockets alone, which are not used. Its version is in the name of a folder.
    ``muster.bus`` speaks to JetStream by itself; the client of nats-py reads three names of headers there. Other users
    of ``nats.js`` find the whole package.
    """
    modules: dict[str, object] = sys.modules  # type: ignore[assignment]
    if "nats" in modules:
        return
    instead = {"aiohttp": None, "importlib.metadata": SimpleNamespace(version=_version)}
    away = [name for name in instead if name not in modules]
    modules |= {name: instead[name] for name in away}
    try:
        jetstream = _without_classes()
        import nats

        if jetstream is not None:
            vars(nats)["js"] = jetstream
    finally:
        for name in away:
            del modules[name]


def _version(package: str) -> str:
    """The version of an installed package."""
    name = package.replace("-", "_")
    folders = (folder for path in sys.path for folder in Path(path).glob(f"{name}-*.dist-info"))
    return next(folders).name.removesuffix(".dist-info").removeprefix(f"{name}-")


def _without_classes() -> ModuleType | None:
    """The registered ``nats.js``, whose ``__init__`` runs once a name of it is asked for. A part such as
    ``nats.js.api`` is imported by itself.
    """
    root = next((folder for path in sys.path if (folder := Path(path, "nats", "js")).is_dir()), None)
    spec = root and spec_from_file_location("nats.js", root / "__init__.py", submodule_search_locations=[str(root)])
    if not spec or spec.loader is None:
        return None  # Installed in a way of its own: it is imported as a whole.
    package, loader = module_from_spec(spec), spec.loader

    def whole(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        del package.__dict__["__getattr__"], package.__dict__["api"]
        loader.exec_module(package)
        return getattr(package, name)

    package.__dict__.update(api=SimpleNamespace(Header=Header), __getattr__=whole)
    sys.modules["nats.js"] = package
    return package


_import_nats()
