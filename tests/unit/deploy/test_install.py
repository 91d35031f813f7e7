"""deploy/install.yaml and its small form: as the code says, confined, and every service with its own key."""

import subprocess
from pathlib import Path

import pytest
import yaml

from kit.compose import REPOSITORY, services
from kit.deployed import every
from kit.pages import blocks
from muster.runtime.config import Config
from muster.runtime.layouts import LAYOUTS, SERVICES
from muster.runtime.natsaccounts import API, inbox, muster_users, secret_of
from muster_tools.installing import (
    BASES,
    COMMANDS,
    FILES,
    KEYS,
    SPEAKS_TO_KUBERNETES,
    TLS,
    Object,
    objects,
)
from muster_tools.shipping import CHART, written

forms = pytest.mark.parametrize("small", [False, True], ids=["production", "small"])


def of_kind(kind: str, *, small: bool) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in objects(small=small) if each["kind"] == kind}


def pods(*, small: bool) -> dict[str, Object]:
    """{name: spec of its pods} of everything that makes pods."""
    kinds = ("Deployment", "StatefulSet", "Job")
    found = {name: each for kind in kinds for name, each in of_kind(kind, small=small).items()}
    return {name: each["spec"]["template"]["spec"] for name, each in found.items()}


def test_the_files_are_what_the_code_says() -> None:
    made = written()
    for file, text in made.items():
        assert (REPOSITORY / file).read_text() == text, f"{file}: run `make schemas`"
    made_alone = (REPOSITORY / folder for folder in (*BASES.values(), CHART))
    there = {str(path.relative_to(REPOSITORY)) for folder in made_alone for path in folder.rglob("*") if path.is_file()}
    assert there <= made.keys()


@forms
def test_a_base_renders_to_the_file(small: bool) -> None:
    assert every((REPOSITORY / FILES[small]).read_text()) == objects(small=small)
    assert rendered(REPOSITORY / BASES[small]) == objects(small=small)


def rendered(folder: Path) -> list[Object]:
    """What kustomize makes of a folder that names resources and nothing else, in their order."""
    said = yaml.safe_load((folder / "kustomization.yaml").read_text())
    assert said.keys() == {"apiVersion", "kind", "resources"}
    found: list[Object] = []
    for name in said["resources"]:
        path = (folder / name).resolve()
        found += rendered(path) if path.is_dir() else every(path.read_text())
    return found


@forms
def test_every_container_is_confined(small: bool) -> None:
    for name, pod in pods(small=small).items():
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in pod["containers"]:
            confined = container["securityContext"]
            assert confined["capabilities"] == {"drop": ["ALL"]}, name
            assert confined["readOnlyRootFilesystem"] is True, name
            assert confined["allowPrivilegeEscalation"] is False, name
            assert container["resources"].keys() == {"requests", "limits"}, name
            assert name == "muster-log-init" or {"readinessProbe", "livenessProbe"} <= container.keys(), name


@forms
def test_every_service_runs_as_in_compose_with_its_own_key(small: bool) -> None:
    compose = {name.replace("-", "_"): each.argv for name, each in services().items()}
    found = {}
    for pod in pods(small=small).values():
        volumes = {each["name"]: each for each in pod["volumes"]}
        for container in pod["containers"]:
            service = container["name"].replace("-", "_")
            if service not in COMMANDS:
                continue
            found[service] = container["command"]
            env = {each["name"]: each.get("value") for each in container["env"]}
            assert env["MUSTER_NATS_INBOX_PREFIX"] == inbox(service)
            assert env["MUSTER_NATS_API_PREFIX"] == API
            keys = [mount for mount in container["volumeMounts"] if mount["name"].startswith("key-")]
            assert [volumes[mount["name"]]["secret"]["secretName"] for mount in keys] == [secret_of(service)]
            assert env["MUSTER_NATS_NKEY_FILE"] == f"{keys[0]['mountPath']}/seed"
    assert found == {process: COMMANDS[process] for process in LAYOUTS["all" if small else "separate"]}
    assert {name: argv for name, argv in compose.items() if name in COMMANDS} == {
        service: COMMANDS[service] for service in SERVICES
    }
    assert {user.name for user in muster_users("main")} >= COMMANDS.keys()


def test_in_production_everything_is_there_twice_and_nats_three_times() -> None:
    deployments = of_kind("Deployment", small=False)
    # The archive of the keeper is on a volume that one process has at a time.
    once = {name for name, each in deployments.items() if each["spec"]["replicas"] != 2}
    assert once == {"muster-keeper"}
    assert of_kind("StatefulSet", small=False)["nats"]["spec"]["replicas"] == 3
    assert of_kind("PodDisruptionBudget", small=False).keys() == {*deployments, "nats"} - once


@forms
def test_the_keeper_archives_the_log_and_deletes_what_is_archived(small: bool) -> None:
    made = of_kind("PersistentVolumeClaim", small=small)["muster-archive"]
    assert made["spec"]["resources"]["requests"]["storage"] == "64Gi"
    [keeper] = [each for pod in pods(small=small).values() for each in pod["containers"] if each["name"] == "keeper"]
    env = {each["name"]: each.get("value") for each in keeper["env"]}
    assert env["MUSTER_LOG_ARCHIVE"] in {mount["mountPath"] for mount in keeper["volumeMounts"]}
    assert Config().log_keep == 2


def test_what_speaks_to_kubernetes_in_production_and_what_nats_is_like() -> None:
    deployments = of_kind("Deployment", small=False)
    tokens = {name for name, pod in pods(small=False).items() if pod.get("automountServiceAccountToken", True)}
    assert tokens == {f"muster-{service}" for service in SPEAKS_TO_KUBERNETES}
    accounts = of_kind("ServiceAccount", small=False)
    assert {each["spec"]["template"]["spec"]["serviceAccountName"] for each in deployments.values()} <= accounts.keys()
    config = of_kind("ConfigMap", small=False)["muster-nats"]["data"]["server.conf"]
    assert "sync_interval: always" in config
    assert "cluster {" in config


def test_the_small_form_is_one_nats_and_one_pod() -> None:
    assert of_kind("Deployment", small=True).keys() == {"muster"}
    assert of_kind("StatefulSet", small=True)["nats"]["spec"]["replicas"] == 1
    assert "cluster {" not in of_kind("ConfigMap", small=True)["muster-nats"]["data"]["server.conf"]


@forms
def test_what_is_not_in_the_file_is_what_install_md_makes(small: bool) -> None:
    made = {(each["kind"], each["metadata"]["name"]) for each in objects(small=small)}
    named = set()
    for pod in pods(small=small).values():
        for volume in pod["volumes"]:
            if "secret" in volume:
                named.add(("Secret", volume["secret"]["secretName"]))
            for source in volume.get("projected", {}).get("sources", ()):
                named.add(("ConfigMap", source["configMap"]["name"]))
    keys = {("Secret", secret_of(user)) for user in (*LAYOUTS["all" if small else "separate"], "admin")}
    assert named - made == {*keys, ("ConfigMap", KEYS), ("Secret", TLS)}


def test_the_certificate_of_install_md_is_one_that_nats_takes(tmp_path: Path) -> None:
    page = REPOSITORY / "docs" / "howto" / "install.md"
    [block] = [block for block in blocks(page) if "openssl req" in block.text]
    commands = [line for line in block.text.splitlines() if not line.startswith("kubectl")]
    subprocess.run(["bash", "-euc", "\n".join(commands)], cwd=tmp_path, check=True, capture_output=True)
    checked = ["openssl", "verify", "-CAfile", "ca.crt", "-verify_hostname", "nats-0.nats", "tls.crt"]
    assert b"tls.crt: OK" in subprocess.run(checked, cwd=tmp_path, check=True, capture_output=True).stdout
