"""The chart of ``deploy/chart`` as helm renders it: a renderer of the little that its templates use, and helm itself.

``python -m kit.chart HELM`` compares what that program makes of the chart with the install files.
"""

import json
import re
import subprocess
import sys
from typing import Any

import yaml

from kit.compose import REPOSITORY
from kit.deployed import every

CHART = REPOSITORY / "deploy" / "chart"
FORMS = {"production": "install.yaml", "small": "install-small.yaml"}
KUBERNETES = "1.30.0"

Object = dict[str, Any]


def values() -> Object:
    found: Object = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


def rendered(chosen: Object) -> list[Object]:
    """Every object of the chart. AssertionError where a template uses more than is known here."""
    said, found = {**values(), **chosen}, []
    for path in sorted((CHART / "templates").iterdir()):
        text = path.read_text()
        only = re.fullmatch(r"\{\{- if (.*?) }}\n(.*)\{\{- end }}\n", text, re.DOTALL)
        if only:
            asked = dict(re.findall(r'eq \.Values\.(\w+) "(\w+)"', only[1]))
            both = [f'eq .Values.{name} "{value}"' for name, value in asked.items()]
            assert only[1] == (both[0] if len(both) == 1 else f"and ({both[0]}) ({both[1]})"), path.name
            if any(said[name] != value for name, value in asked.items()):
                continue
            text = only[2]
        text = re.sub(r"\{\{ \.Values\.(\w+) }}", lambda each: said[each[1]], text)
        text = re.sub(r"\{\{ toJson \.Values\.(\w+) }}", lambda each: json.dumps(said[each[1]]), text)
        assert "{{" not in text, f"{path.name} uses what this renderer does not know"
        found += every(text)
    return found


def by_name(objects: list[Object]) -> dict[tuple[str, str, str], Object]:
    """Helm sorts objects by its own order of kinds."""
    found = {(o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]): o for o in objects}
    assert len(found) == len(objects)
    return found


def shipped(form: str) -> list[Object]:
    return every((REPOSITORY / "deploy" / FORMS[form]).read_text())


def main(helm: str) -> None:
    for form, file in FORMS.items():
        argv = [helm, "template", "muster", str(CHART), "--kube-version", KUBERNETES, "--set", f"form={form}"]
        made = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        assert by_name(every(made)) == by_name(shipped(form)), f"{form} is not {file}"
        sys.stdout.write(f"{form}: {len(shipped(form))} objects, as in deploy/{file}\n")
    wrong = [helm, "template", "muster", str(CHART), "--kube-version", KUBERNETES, "--set", "imagee=x"]
    assert subprocess.run(wrong, capture_output=True, check=False).returncode, "a value that is not known is taken"


if __name__ == "__main__":
    main(sys.argv[1])
