"""Kubeconfig files are read as kubectl reads them."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.kube.config import contexts
from muster.kube.errors import KubeConfigError
from muster.kube.kubeconfig import choose, locate, read
from muster.kube.sources import FromKubeconfig, InCluster, default_source


def write(path: Path, current: str = "", **sections: dict[str, dict[str, Any]]) -> Path:
    inner = {"clusters": "cluster", "contexts": "context", "users": "user"}
    found: dict[str, Any] = {"apiVersion": "v1", "kind": "Config", "current-context": current}
    for section, entries in sections.items():
        found[section] = [{"name": name, inner[section]: value} for name, value in entries.items()]
    path.write_text(yaml.safe_dump(found))
    return path


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    """Two files that both know a `dev`."""
    (tmp_path / "sub").mkdir()
    one = write(
        tmp_path / "one",
        current="dev",
        clusters={"dev": {"server": "https://one:6443/", "certificate-authority": "ca.crt"}},
        contexts={"dev": {"cluster": "dev", "user": "dev", "namespace": "team-a"}},
        users={"dev": {"tokenFile": "token", "token": "old"}},
    )
    other = write(
        tmp_path / "sub" / "two",
        current="prod",
        clusters={"dev": {"server": "https://two"}, "prod": {"server": "https://prod/prefix"}},
        contexts={"dev": {"cluster": "prod"}, "prod": {"cluster": "prod", "user": "me"}, "bare": {"cluster": "prod"}},
        users={"me": {"client-certificate": "me.crt", "exec": {"command": "./login", "apiVersion": "v1"}}},
    )
    return [one, other]


def test_the_first_file_wins(two: list[Path]) -> None:
    choice = choose(read(two))
    assert (choice.context, choice.server, choice.namespace) == ("dev", "https://one:6443", "team-a")


def test_files_are_named_relative_to_their_own_place(two: list[Path], tmp_path: Path) -> None:
    config = read(two)
    assert choose(config, "dev").cluster["certificate-authority"] == str(tmp_path / "ca.crt")
    user = choose(config, "prod").user
    assert user["client-certificate"] == str(tmp_path / "sub" / "me.crt")
    assert user["exec"]["command"] == str(tmp_path / "sub" / "login")


def test_token_file_stands_before_a_token(two: list[Path], tmp_path: Path) -> None:
    assert choose(read(two), "dev").user == {"tokenFile": str(tmp_path / "token")}


def test_context_without_a_user_is_anonymous(two: list[Path]) -> None:
    choice = choose(read(two), "bare")
    assert (choice.user, choice.namespace) == ({}, "default")
    assert choice.document()["users"] == [{"name": "chosen", "user": {}}]


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KubeConfigError, match=r"cannot find a kubeconfig: .*/absent does not exist; name one with"):
        read([tmp_path / "absent"])


def test_one_missing_file_of_several_is_passed_over(two: list[Path], tmp_path: Path) -> None:
    assert choose(read([tmp_path / "absent", *two])).context == "dev"


def test_unknown_context_lists_the_known_ones(two: list[Path]) -> None:
    with pytest.raises(KubeConfigError, match=r"cannot use context qa: it is not in .*, which has: bare, dev, prod$"):
        choose(read(two), "qa")


def test_no_current_context_lists_the_known_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "c", contexts={f"c{n:02}": {} for n in range(22)})
    with pytest.raises(KubeConfigError, match=r"choose with --context: c00, .*, c19 and 2 more"):
        choose(read([path]))


def test_all_that_is_wrong_with_a_context_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "c", current="x", contexts={"x": {"cluster": "gone", "user": "who"}})
    with pytest.raises(KubeConfigError, match=r"its cluster gone is not defined and its user who is not defined"):
        choose(read([path]))


def test_cluster_without_a_server_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "c", current="x", clusters={"k": {}}, contexts={"x": {"cluster": "k"}})
    with pytest.raises(KubeConfigError, match=r"its cluster k has no server"):
        choose(read([path]))


@pytest.mark.parametrize(
    "text", ["a: [", "- a\n", "just words", "clusters: [{cluster: {}}]", "users: [{name: u, user: 5}]"]
)
def test_what_is_no_kubeconfig_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd"
    path.write_text(text)
    with pytest.raises(KubeConfigError, match=rf"cannot read kubeconfig {path}") as refused:
        read([path])
    assert "\n" not in str(refused.value)


def test_empty_file_has_no_contexts(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    assert contexts(str(tmp_path / "empty"), {}) == ([], "")


def test_contexts_are_listed_from_the_environment(two: list[Path]) -> None:
    assert contexts(environ={"KUBECONFIG": os.pathsep.join(map(str, two))}) == (["bare", "dev", "prod"], "dev")


def test_default_file_is_the_last_resort() -> None:
    assert locate("", {}) == [Path("~/.kube/config").expanduser()]
    assert locate("/x", {"KUBECONFIG": "/y"}) == [Path("/x")]


def test_source_is_found_by_the_environment() -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert default_source(pod) == InCluster()
    assert default_source({**pod, "KUBECONFIG": "/x"}) == FromKubeconfig()
    assert default_source({}) == FromKubeconfig()
