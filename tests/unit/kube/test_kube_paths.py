"""Requests get the names that RBAC and the audit log give them."""

import pytest

from muster.kube.paths import describe


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/v1/pods", ("list", "pods")),
        ("GET", "/api/v1/namespaces/n/pods", ("list", "pods")),
        ("GET", "/api/v1/namespaces/n/pods/x", ("get", "pods")),
        ("POST", "/api/v1/namespaces/n/pods/x/binding", ("create", "pods/binding")),
        ("POST", "/api/v1/namespaces/n/pods/x/eviction", ("create", "pods/eviction")),
        ("PATCH", "/apis/ray.io/v1/namespaces/n/rayjobs/x/status", ("patch", "rayjobs.ray.io/status")),
        ("PUT", "/apis/batch/v1/namespaces/n/jobs/x", ("update", "jobs.batch")),
        ("DELETE", "/apis/batch/v1/namespaces/n/jobs/x", ("delete", "jobs.batch")),
        ("DELETE", "/apis/batch/v1/namespaces/n/jobs", ("deletecollection", "jobs.batch")),
        ("GET", "/api/v1/namespaces", ("list", "namespaces")),
        ("GET", "/api/v1/namespaces/n", ("get", "namespaces")),
        ("PUT", "/api/v1/namespaces/n/finalize", ("update", "namespaces/finalize")),
        ("GET", "/api/v1/nodes/x", ("get", "nodes")),
        ("GET", "/version", ("get", "other")),
        ("GET", "/api/v1", ("get", "other")),
        ("GET", "/apis/ray.io/v1", ("get", "other")),
        ("GET", "/", ("get", "other")),
    ],
)
def test_request_is_named(method: str, path: str, expected: tuple[str, str]) -> None:
    assert describe(method, path) == expected


def test_watch_is_a_verb_of_its_own() -> None:
    assert describe("GET", "/api/v1/pods", watch=True) == ("watch", "pods")
