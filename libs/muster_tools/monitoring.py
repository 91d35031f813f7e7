"""``python -m muster_tools.monitoring``: writes the files for operators: the page of the metrics, the rules of
Prometheus, a page on what to do about each alert, and dashboards for Grafana.

With ``--check`` the command writes nothing and fails when a file is not up to date.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

from muster.telemetry.instruments import COUNTERS, GAUGES, HISTOGRAMS
from muster_tools.alerts import ALERTS, BOARDS, QUESTIONS, Alert

NOTICE = "<!-- Written by `python -m muster_tools.monitoring` from libs/muster_tools/alerts.py. -->"
RUNBOOK = "docs/howto/alerts.md"


def files() -> dict[str, str]:
    """Path in the repository -> text of every file."""
    boards = {f"deploy/monitoring/{name}.json": dashboard(name) for name in BOARDS}
    return {
        "docs/reference/metrics.md": metrics_page(),
        RUNBOOK: runbook(),
        "deploy/monitoring/rules.yaml": rules(),
        **boards,
    }


def metrics_page() -> str:
    """Questions with their queries, then every metric."""
    parts = [
        NOTICE,
        "",
        "# Metrics",
        "",
        "Every process serves `/metrics` beside `/livez` and `/readyz`. What is about queues and jobs is served by the "
        "publisher that leads,\nso each number is there once. Labels are bounded: stages, queues, resources, causes; "
        "never jobs. A queue is named by its path;\namounts are cores, bytes and devices.",
        "",
        "## Questions on call",
        "",
        "| Question | Query | An answer |",
        "| --- | --- | --- |",
        *(f"| {question.text} | `{question.query}` | `{question.answer}` |" for question in QUESTIONS),
        "",
        "Alerts and what to do about each: [alerts](../howto/alerts.md). Rules and dashboards: `deploy/monitoring`.",
        "",
        "## All of them",
        "",
        "| Metric | Type | Meaning |",
        "| --- | --- | --- |",
        *(f"| `{name}_total` | counter | {text} |" for name, text in COUNTERS.items()),
        *(f"| `{name}` | gauge | {text} |" for name, text in GAUGES.items()),
        *(f"| `{name}` | histogram | {row.help} |" for name, row in HISTOGRAMS.items()),
    ]
    return "\n".join(parts) + "\n"


def runbook() -> str:
    """The meaning of each alert, and the way out."""
    parts = [
        NOTICE,
        "",
        "# What to do about an alert",
        "",
        "The rules are in `deploy/monitoring/rules.yaml`: a file for Prometheus, or the `spec` of a "
        "PrometheusRule.\n`muster doctor` asks most of the same questions at once.",
    ]
    for alert in ALERTS:
        parts += [
            "",
            f"## {alert.name}",
            "",
            f"{alert.means} Severity: {alert.severity}.",
            "",
            f"```promql\n{alert.query}\n```",
            "",
            *(f"{number}. {step}" for number, step in enumerate(alert.steps, start=1)),
        ]
    return "\n".join(parts) + "\n"


def rules() -> str:
    """The file of rules."""
    body = {"groups": [{"name": "muster", "rules": [_rule(alert) for alert in ALERTS]}]}
    text = yaml.safe_dump(body, sort_keys=False, width=120)
    return f"# Written by `python -m muster_tools.monitoring`.\n{text}"


def _rule(alert: Alert) -> dict[str, object]:
    return {
        "alert": f"Muster{alert.name}",
        "expr": alert.query,
        "for": f"{alert.seconds}s",
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.says, "runbook": f"{RUNBOOK}#{alert.name.lower()}"},
    }


def dashboard(name: str) -> str:
    """One dashboard of Grafana, its panels two in a row."""
    title, panels = BOARDS[name]
    made = [
        {
            "id": number + 1,
            "type": "timeseries",
            "title": panel.title,
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
            "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
            "targets": [{"refId": "A", "expr": panel.query, "legendFormat": panel.legend}],
        }
        for number, panel in enumerate(panels)
    ]
    source = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    body = {
        "uid": f"muster-{name}",
        "title": f"Muster: {title}",
        "schemaVersion": 39,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [source]},
        "panels": made,
    }
    return json.dumps(body, indent=2) + "\n"


def main() -> int:
    """Write the files, or compare them."""
    stale = [path for path, text in files().items() if not Path(path).exists() or Path(path).read_text() != text]
    if "--check" in sys.argv:
        if stale:
            print(f"{', '.join(stale)}: run `python -m muster_tools.monitoring`", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(files()[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
