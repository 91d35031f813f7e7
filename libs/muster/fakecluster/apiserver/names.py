"""Names, uids and time stamps: what a server makes up, made up here without chance or clock.

Used by the simulated API server and the simulated operator. The same seed gives the same names.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime
from functools import lru_cache

from muster.model.api import ApiResource

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""What Kubernetes builds name suffixes from: no vowels, so that no words appear."""
SUFFIX_LENGTH = 5
MAX_PREFIX = 63 - SUFFIX_LENGTH
"""A generateName is cut to this, so that the name stays a valid label."""

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SERVICE = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

_RULES = {
    "namespaces": (_LABEL, 63, "a lowercase RFC 1123 label"),
    "services": (_SERVICE, 63, "a DNS-1035 label"),
}
_PATH_SEGMENT = ("roles", "rolebindings")
"""Resources whose names only have to fit into a path."""


class Names:
    """A seeded source of name suffixes and uids. ``identity``: tells the uids from those of other servers."""

    def __init__(self, seed: int = 0, identity: str = "") -> None:
        self._seed = seed
        self._given: dict[tuple[str, ...], int] = {}
        self._prefix = hashlib.blake2b(f"uid-{seed}{identity}".encode(), digest_size=8).hexdigest()
        self._count = 0

    def suffix(self, *about: str) -> str:
        """Five characters to append to a generateName: the next characters for this ``about``.

        So the third RayJob of a prefix always has the same name, whatever other objects were created before.
        """
        count = self._given[about] = self._given.get(about, 0) + 1
        return derived_suffix(self._seed, *about, count)

    def uid(self) -> str:
        """The next uid, in the shape of a UUID; never the same twice."""
        self._count += 1
        head, tail = self._prefix, f"{self._count:012x}"
        return f"{head[:8]}-{head[8:12]}-4{head[12:15]}-8{head[13:16]}-{tail}"


def derived_suffix(*parts: object) -> str:
    """A name suffix that depends on nothing but ``parts``: for pure functions that have to make up a name."""
    digest = hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=SUFFIX_LENGTH).digest()
    return "".join(ALPHABET[byte % len(ALPHABET)] for byte in digest)


@lru_cache(maxsize=1024)
def stamp(at_ms: int) -> str:
    """A time as Kubernetes writes it, whole seconds: ``2025-01-10T01:36:24Z``."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=4096)
def moment(text: str) -> int:
    """Ms since the epoch of a Kubernetes time stamp."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def name_problem(resource: ApiResource, name: str) -> str:
    """Why ``name`` may not name an object of the resource; empty when it may."""
    if resource.plural in _PATH_SEGMENT:
        return "" if name not in (".", "..") and "/" not in name and "%" not in name else "not a path segment"
    rule, longest, kind = _RULES.get(resource.plural, (_SUBDOMAIN, 253, "a lowercase RFC 1123 subdomain"))
    if len(name) > longest:
        return f"must be no more than {longest} characters"
    if not rule.fullmatch(name):
        return f"{kind} must consist of lower case alphanumeric characters (regex used: '{rule.pattern}')"
    return ""


@lru_cache(maxsize=65536)
def key_problem(key: str) -> str:
    """Why ``key`` may not be the key of a label or annotation; empty when it may."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        return "prefix part must be a lowercase RFC 1123 subdomain"
    if len(name) > 63 or not _QUALIFIED.fullmatch(name):
        return "name part must consist of alphanumeric characters, '-', '_' or '.', at most 63 of them"
    return ""


@lru_cache(maxsize=65536)
def label_problem(value: str) -> str:
    """Why ``value`` may not be the value of a label; empty when it may."""
    if len(value) > 63 or (value and not _QUALIFIED.fullmatch(value)):
        return "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.'"
    return ""
