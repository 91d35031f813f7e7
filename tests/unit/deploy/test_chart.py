"""The Helm chart: by default what install.yaml has, each value in its places, and images by digest where that is known.

`make helm` asks the real helm the first of these; here its templates are rendered by what they use.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest
import yaml

from kit.chart import CHART, FORMS, Object, by_name, rendered, shipped, values
from kit.compose import REPOSITORY
from kit.deployed import every
from muster.runtime.layouts import LAYOUTS
from muster.runtime.natsaccounts import dashed
from muster_tools.installing import IMAGE, NATS_IMAGE, granted, parts

DIGEST = "sha256:" + "5e" * 32
CHOSEN: Object = {
    "image": f"registry.example/muster:0.1.0@{DIGEST}",
    "natsImage": f"nats@{DIGEST}",
    "natsStorage": "100Gi",
    "archiveStorage": "1Ti",
    "controllers": {"rayjobs.ray.io": "system:serviceaccount:ray:operator"},
}


def schema() -> Object:
    found: Object = json.loads((CHART / "values.schema.json").read_text())
    return found


@pytest.mark.parametrize("form", FORMS)
def test_by_default_it_is_the_install_file(form: str) -> None:
    assert by_name(rendered({"form": form})) == by_name(shipped(form))
    assert values()["form"] == "production"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_is_of_the_production_form_and_runs_every_service(layout: str) -> None:
    made = rendered({"layout": layout})
    assert by_name(made) == by_name(
        granted() + [each for part in parts(small=False, layout=layout).values() for each in part]
    )
    deployments = [each for each in made if each["kind"] == "Deployment"]
    processes = [pod["name"] for each in deployments for pod in each["spec"]["template"]["spec"]["containers"]]
    assert processes == [dashed(process) for process in LAYOUTS[layout]]
    # The archive of the keeper is on a volume that one process has at a time.
    assert {each["metadata"]["name"] for each in deployments if each["spec"]["replicas"] != 2} == {"muster-keeper"}
    accounts = {each["metadata"]["name"] for each in made if each["kind"] == "ServiceAccount"}
    assert {each["spec"]["template"]["spec"]["serviceAccountName"] for each in deployments} <= accounts
    assert by_name(rendered({"form": "small", "layout": layout})) == by_name(shipped("small"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_whatever_the_layout_the_same_roles_are_bound_and_the_same_ports_are_open(layout: str) -> None:
    def open_to(made: list[Object]) -> set[str]:
        rules = [each["spec"] for each in made if each["kind"] == "NetworkPolicy"]
        return {json.dumps({key: rule[key] for key in rule if key != "podSelector"}) for rule in rules}

    def bound(made: list[Object]) -> set[str]:
        return {each["roleRef"]["name"] for each in made if each["kind"] == "ClusterRoleBinding"}

    made, separate = rendered({"layout": layout}), rendered({})
    assert open_to(made) == open_to(separate)
    assert bound(made) == bound(separate)
    selected = [each["spec"]["podSelector"].get("matchLabels", {}) for each in made if each["kind"] == "NetworkPolicy"]
    name = "app.kubernetes.io/name"
    pods = {each["metadata"]["name"] for each in made if each["kind"] in ("Deployment", "StatefulSet")}
    assert {labels[name] for labels in selected if name in labels} <= pods


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CHOSEN)
def test_a_value_is_where_its_default_was_and_nowhere_else(form: str, name: str) -> None:
    assert CHOSEN.keys() == values().keys() - {"form", "layout"}
    was, now = (json.dumps(rendered({"form": form, **more})) for more in ({}, {name: CHOSEN[name]}))
    default, chosen = json.dumps(values()[name]), json.dumps(CHOSEN[name])
    assert now != was and now == was.replace(default, chosen)


def test_values_that_no_cluster_takes_are_refused() -> None:
    jsonschema.validate(values(), schema())
    jsonschema.validate({**values(), **CHOSEN}, schema())
    for wrong in (
        {"imagee": IMAGE},
        {"form": "tiny"},
        {"layout": "together"},
        {"image": "a b"},
        {"image": f"muster@{DIGEST[:-1]}"},
        {"natsStorage": "9"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**values(), **wrong}, schema())


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
            text = text.replace(f"image: {image}\n", f"image: {image}@{digest}\n")
        assert every(pinned) == every(text)
    said = yaml.safe_load((made / "deploy" / "chart" / "values.yaml").read_text())
    assert said == {**values(), "image": f"{IMAGE}@{digest}", "natsImage": f"{NATS_IMAGE}@{digest}"}
