"""The Helm chart as the real helm renders it: by default what install.yaml has, each value in its places."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from kit.chart import CHART, FORMS, KUBERNETES, Object, by_name, helm, rendered, shipped, template, values
from kit.compose import REPOSITORY
from kit.deployed import every, shipped_policies
from muster.runtime.config import Config, load
from muster.runtime.layouts import LAYOUTS
from muster.runtime.natsaccounts import dashed
from muster_tools.charting import FIXED, MODES
from muster_tools.installing import IMAGE, NATS_IMAGE, granted, parts

DIGEST = "sha256:" + "5e" * 32
CHOSEN: Object = {
    "image": f"registry.example/muster:0.1.0@{DIGEST}",
    "natsImage": f"nats@{DIGEST}",
    "natsStorage": "100Gi",
    "archiveStorage": "1Ti",
    "tlsSecret": "of-cert-manager",
    "controllers": {"rayjobs.ray.io": "system:serviceaccount:ray:operator"},
}
PODS: Object = {
    "imagePullSecrets": [{"name": "registry"}],
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "system", "operator": "Exists"}],
}
"""Values that are fields of the spec of every pod."""
CHANGING = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"


def schema() -> Object:
    found: Object = json.loads((CHART / "values.schema.json").read_text())
    return found


def workloads(made: list[Object]) -> dict[str, Object]:
    """{name: spec of the template} of everything that makes pods."""
    kinds = ("Deployment", "StatefulSet", "Job")
    return {each["metadata"]["name"]: each["spec"]["template"] for each in made if each["kind"] in kinds}


def environment(container: Object) -> dict[str, str]:
    named = [each["name"] for each in container["env"]]
    assert len(named) == len(set(named)), "a variable is set twice"
    return {each["name"]: each["value"] for each in container["env"] if "value" in each}


def test_helm_finds_no_fault() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("form", FORMS)
def test_by_default_it_is_the_install_file(form: str) -> None:
    assert by_name(rendered({"form": form})) == by_name(shipped(form))
    assert values()["form"] == "production"


def test_it_installs_into_the_namespace_of_the_release() -> None:
    made = rendered({"guard": True}, namespace="other", apis=[CHANGING])
    own = {each["metadata"]["namespace"] for each in made if "namespace" in each["metadata"]}
    shipped_in = {each["metadata"]["namespace"] for each in shipped("production") if "namespace" in each["metadata"]}
    assert own == {"other" if name == "muster-system" else name for name in shipped_in}
    # Leases are the same for every Muster of a cluster, so that one acts.
    kept = [each for each in made if (each["kind"], each["metadata"]["name"]) == ("Namespace", "muster-system")]
    assert [each["metadata"]["annotations"]["helm.sh/resource-policy"] for each in kept] == ["keep"]
    others = [each for each in made if each not in kept]
    texts = [line for line in json.dumps(others, indent=1).splitlines() if "muster-system" in line]
    assert texts and all("Lease" in line for line in texts), texts


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_is_of_the_production_form_and_runs_every_service(layout: str) -> None:
    made = rendered({"layout": layout})
    own = [each for part in parts(small=False, layout=layout).values() for each in part]
    every_object = [
        each for each in granted() + own if each["kind"] != "Namespace" or "gpu" in each["metadata"]["name"]
    ]
    assert by_name(made) == by_name(every_object)
    deployments = [each for each in made if each["kind"] == "Deployment"]
    processes = {pod["name"] for each in deployments for pod in each["spec"]["template"]["spec"]["containers"]}
    assert processes == {dashed(process) for process in LAYOUTS[layout]}
    # The archive of the keeper is on a volume that one process has at a time.
    assert {each["metadata"]["name"] for each in deployments if each["spec"]["replicas"] != 2} == {"muster-keeper"}
    accounts = {each["metadata"]["name"] for each in made if each["kind"] == "ServiceAccount"}
    assert {each["spec"]["template"]["spec"]["serviceAccountName"] for each in deployments} <= accounts


def test_whatever_the_layout_the_same_roles_are_bound_and_the_same_ports_are_open() -> None:
    def open_to(made: list[Object]) -> set[str]:
        rules = [each["spec"] for each in made if each["kind"] == "NetworkPolicy"]
        return {json.dumps({key: rule[key] for key in rule if key != "podSelector"}) for rule in rules}

    def bound(made: list[Object]) -> set[str]:
        return {each["roleRef"]["name"] for each in made if each["kind"] == "ClusterRoleBinding"}

    every_layout = {layout: rendered({"layout": layout}) for layout in LAYOUTS}
    separate = every_layout["separate"]
    for made in every_layout.values():
        assert open_to(made) == open_to(separate)
        assert bound(made) == bound(separate)
        rules = [each for each in made if each["kind"] == "NetworkPolicy"]
        selected = [each["spec"]["podSelector"].get("matchLabels", {}) for each in rules]
        name = "app.kubernetes.io/name"
        pods = {each["metadata"]["name"] for each in made if each["kind"] in ("Deployment", "StatefulSet")}
        assert {labels[name] for labels in selected if name in labels} <= pods


@pytest.mark.parametrize("form", FORMS)
def test_a_value_is_where_its_default_was_and_nowhere_else(form: str) -> None:
    was = json.dumps(rendered({"form": form}))
    for name, choice in CHOSEN.items():
        now = json.dumps(rendered({"form": form, name: choice}))
        default = json.dumps(values()[name], sort_keys=True)
        chosen = json.dumps({**values()[name], **choice} if isinstance(choice, dict) else choice, sort_keys=True)
        assert now != was and now == was.replace(default, chosen), name


@pytest.mark.parametrize("form", FORMS)
def test_what_pods_and_containers_get(form: str) -> None:
    chosen: Object = {
        "form": form,
        **PODS,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
        "labels": {"team": "platform"},
        "resources": {"limits": {"memory": "9Gi"}},
        "natsResources": {"requests": {"cpu": "3"}},
        "replicas": 3,
        "imagePullPolicy": "Always",
        "storageClass": "fast",
        "existingSecret": "of-vault",
    }
    was, made = rendered({"form": form}), rendered(chosen)
    before = workloads(was)
    for name, pod in workloads(made).items():
        nats = name == "nats"
        spec = pod["spec"]
        assert {key: spec[key] for key in PODS} == PODS, name
        assert ("podAntiAffinity" in spec["affinity"]) == nats and ("nodeAffinity" in spec["affinity"]) != nats
        assert pod["metadata"]["labels"]["team"] == "platform"
        for container, shipped_one in zip(spec["containers"], before[name]["spec"]["containers"], strict=True):
            assert container["imagePullPolicy"] == "Always"
            wanted = shipped_one["resources"]
            more = {"requests": {**wanted["requests"], "cpu": "3"}} if nats else {}
            more |= {} if nats else {"limits": {**wanted["limits"], "memory": "9Gi"}}
            assert container["resources"] == {**wanted, **more}
        for volume in spec["volumes"]:
            if volume["name"].startswith("key-"):
                user = volume["name"].removeprefix("key-").replace("-", "_")
                assert volume["secret"] == {
                    "secretName": "of-vault",
                    "defaultMode": 0o440,
                    "items": [{"key": user, "path": "seed"}],
                }
    assert all(each["metadata"]["labels"]["team"] == "platform" for each in made)
    sizes = {each["metadata"]["name"]: each["spec"]["replicas"] for each in made if each["kind"] == "Deployment"}
    assert set(sizes.values()) == ({1, 3} if form == "production" else {1})
    claims = [each for each in made if each["kind"] == "PersistentVolumeClaim"]
    claims += [claim for each in made for claim in each.get("spec", {}).get("volumeClaimTemplates", ())]
    assert len(claims) == 2 and {each["spec"]["storageClassName"] for each in claims} == {"fast"}


def other_than(name: str) -> object:
    """A value that a setting takes and does not have by default."""
    offered = schema()["properties"]["settings"]["properties"][name]
    special = {
        "kinds": "Job",
        "placement_hold_s": 60,
        "log_max_bytes": 1 << 40,
        "replicas": 3,
        "gpu_sharing_mode": "Disabled",
    }
    if name in special:
        return special[name]
    if "enum" in offered:
        return next(value for value in offered["enum"] if value != offered["default"])
    return {"boolean": not offered["default"], "integer": 1, "string": "text-of-some"}[offered["type"]]


def test_every_setting_reaches_every_process() -> None:
    offered = schema()["properties"]["settings"]["properties"]
    assert offered.keys() | FIXED == {*Config.__struct_fields__} and not offered.keys() & FIXED
    chosen = {name: other_than(name) for name in offered}
    for name, pod in workloads(rendered({"settings": chosen})).items():
        for container in pod["spec"]["containers"] if name != "nats" else ():
            config = load({key: value for key, value in environment(container).items() if "KINDS_FOLDER" not in key})
            assert {key: getattr(config, key) for key in chosen} == chosen, name


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_says_who_places(mode: str) -> None:
    pods = workloads(rendered({"mode": mode})).items()
    got = {
        environment(c).get("MUSTER_PLACEMENT", "off")
        for name, pod in pods
        if name != "nats"
        for c in pod["spec"]["containers"]
    }
    assert got == {MODES[mode]}


def test_the_notes_tell_what_was_installed(tmp_path: Path) -> None:
    chart = shutil.copytree(CHART, tmp_path / "chart")
    shutil.move(chart / "templates" / "NOTES.txt", chart / "notes")
    (chart / "templates" / "notes.yaml").write_text('{"notes": {{ tpl (.Files.Get "notes") . | toJson }}}')

    def notes(*chosen: str) -> str:
        where = ["--namespace", "other", "--kube-version", KUBERNETES, "--show-only", "templates/notes.yaml"]
        done = helm("template", "muster", str(chart), *where, *(part for one in chosen for part in ("--set", one)))
        assert done.returncode == 0, done.stderr
        told: str = every(done.stdout)[0]["notes"]
        return told

    assert "placement off.\n\nQuota alone decides" in notes() and "muster nats keys --namespace other |" in notes()
    assert "placement pack.\n\nMuster places" in notes("mode=place")
    assert "placement pack.\n\nMuster places" in notes("settings.placement=pack"), "the setting is before the mode"
    assert "placement off.\n\nQuota alone" in notes("mode=place", "settings.placement=off")
    assert "placement native.\n\nkube-scheduler places" in notes("mode=native")
    small = notes("form=small", "existingSecret=mine", "guard=true")
    assert "--layout all" in small and "from Secret mine alone" in small and "The policies bind" in small


def test_the_guard_is_the_policies() -> None:
    before = by_name(rendered({}))
    for apis, prefixes in (([], ("Validating",)), ([CHANGING], ("Validating", "Mutating"))):
        made = by_name(rendered({"guard": True}, apis=apis))
        added = {(kind, name): each for (kind, space, name), each in made.items() if (kind, space, name) not in before}
        assert added == {key: each for key, each in shipped_policies().items() if key[0].startswith(prefixes)}


def test_values_that_no_cluster_takes_are_refused() -> None:
    jsonschema.validate(values(), schema())
    for fit in (CHOSEN, PODS, {"natsStorage": "80G"}, {"controllers": {"things.example.com": ""}}):
        jsonschema.validate({**values(), **fit}, schema())
    for wrong in (
        {"imagee": IMAGE},
        {"form": "tiny"},
        {"layout": "together"},
        {"image": "a b"},
        {"image": f"muster@{DIGEST[:-1]}"},
        {"natsStorage": "9"},
        {"mode": "pack"},
        {"replicas": 0},
        {"settings": {"placement": "somewhere"}},
        {"settings": {"placements": "pack"}},
        {"settings": {"process": "mine"}},
        {"settings": {"placement_grow_s": -5}},
        {"settings": {"log_roll_percent": 95}},
        {"settings": {"replicas": 2}},
        {"settings": {"gpu_sharing_mode": "HamiCore"}},
        {"natsStorage": "0Gi"},
        {"nodeSelector": {"gpu": True}},
        {"labels": {"team": "ml platform"}},
        {"labels": {"app.kubernetes.io/name": "other"}},
        {"resources": {"limit": {"cpu": "2"}}},
        {"resources": {"limits": {"memory": "lots"}}},
        {"tolerations": [{"key": "gpu", "operator": "Exist"}]},
        {"affinity": {"nodeAffinty": {}}},
        {"imagePullSecrets": [{"name": "registry", "key": "x"}]},
        {"existingSecret": "Of_vault"},
        {"storageClass": "Fast!"},
        {"controllers": {"rayjob": "system:serviceaccount:ray:operator"}},
        {"form": "small", "layout": "deciders"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**values(), **wrong}, schema())
    refused = template({"settings": {"placements": "pack"}})
    assert refused.returncode and "placements" in refused.stderr
    misnamed = template({"controllers": {"rayjob": ""}, "labels": {"app.kubernetes.io/name": "other"}}).stderr
    assert "'rayjob' not allowed" in misnamed and "/labels/app.kubernetes.io~1name" in misnamed


DOCKER = """#!/bin/sh
echo "$4" >> "$NOTED"
printf '%s' "$DIGEST"
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
@pytest.mark.parametrize("digest", [DIGEST, ""])
def test_a_release_names_its_images_by_digest_or_is_not_made(tmp_path: Path, digest: str) -> None:
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    environ = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "NOTED": str(tmp_path / "noted"),
        "DIGEST": digest,
    }
    made = tmp_path / "dist"
    argv = ["make", "pinned", f"IMAGE={IMAGE}", f"PINNED={made}"]
    code = subprocess.run(argv, cwd=REPOSITORY, env=environ, capture_output=True, check=False).returncode
    assert (tmp_path / "noted").read_text().split() == [IMAGE, NATS_IMAGE]
    assert (code == 0) == bool(digest)
    assert made.exists() == bool(digest)
    if not digest:
        return
    for file in FORMS.values():
        text, pinned = (REPOSITORY / "deploy" / file).read_text(), (made / "deploy" / file).read_text()
        for image in (IMAGE, NATS_IMAGE):
            for key in ("image", "value"):  # The image of GPU reservations is a variable of the actuator.
                text = text.replace(f"{key}: {image}\n", f"{key}: {image}@{digest}\n")
        assert every(pinned) == every(text)
    said = yaml.safe_load((made / "deploy" / "chart" / "values.yaml").read_text())
    assert said == {**values(), "image": f"{IMAGE}@{digest}", "natsImage": f"{NATS_IMAGE}@{digest}"}
