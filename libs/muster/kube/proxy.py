"""Which HTTP proxy is before the API server, by the usual environment variables. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit


def proxy_for(server: str, environ: Mapping[str, str]) -> str | None:
    """URL of the proxy for ``server``, None for a direct connection.

    Reads HTTPS_PROXY or HTTP_PROXY by the scheme and NO_PROXY, upper or lower case. NO_PROXY may hold host names,
    domains (which cover their subdomains), addresses, CIDR blocks, each with a port or not, and ``*``. Loopback is
    always direct.
    """
    target = urlsplit(server)
    host = (target.hostname or "").lower()
    port = target.port or (443 if target.scheme == "https" else 80)
    proxy = _variable(environ, f"{target.scheme}_proxy")
    if not proxy or _is_loopback(host):
        return None
    for entry in _variable(environ, "no_proxy").split(","):
        if _covers(entry.strip().lower(), host, port):
            return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper(), "") or environ.get(name, "")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _covers(entry: str, host: str, port: int) -> bool:
    if entry in {"", "*"}:
        return entry == "*"
    name, colon, wanted = entry.rpartition(":")
    if colon and wanted.isdigit() and ":" not in name:
        if int(wanted) != port:
            return False
        entry = name
    try:
        return ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        domain = entry.removeprefix("*").removeprefix(".")
        return host == domain or host.endswith("." + domain)
