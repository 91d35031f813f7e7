"""Which connections go through a proxy."""

import pytest

from muster.kube.proxy import proxy_for

PROXY = {"HTTPS_PROXY": "http://proxy:3128"}


@pytest.mark.parametrize(
    ("server", "no_proxy", "direct"),
    [
        ("https://api.example.com:6443", "", False),
        ("https://10.96.0.1", "10.0.0.0/8,.svc", True),
        ("https://10.96.0.1", "10.96.0.1", True),
        ("https://11.96.0.1", "10.0.0.0/8", False),
        ("https://[fd00::1]:6443", "fd00::/8", True),
        ("https://kubernetes.default.svc", ".svc", True),
        ("https://kubernetes.default.svc", "default.svc", True),
        ("https://kubernetes.default.svc", "*.svc", True),
        ("https://notexample.com", "example.com", False),
        ("https://API.Example.com", "api.example.COM", True),
        ("https://api.example.com:6443", "api.example.com:6443", True),
        ("https://api.example.com:6443", "api.example.com:443", False),
        ("https://api.example.com", "api.example.com:443", True),
        ("https://api.example.com", " other , * ", True),
        ("https://127.0.0.1:6443", "", True),
        ("https://[::1]:6443", "", True),
        ("https://localhost:6443", "", True),
    ],
)
def test_no_proxy_is_read_as_others_read_it(server: str, no_proxy: str, direct: bool) -> None:
    expected = None if direct else "http://proxy:3128"
    assert proxy_for(server, {**PROXY, "NO_PROXY": no_proxy}) == expected


def test_scheme_chooses_the_variable_and_lower_case_counts_too() -> None:
    assert proxy_for("http://api", PROXY) is None
    assert proxy_for("https://api", {"https_proxy": "proxy:1"}) == "http://proxy:1"
    assert proxy_for("https://api", {}) is None
