"""SparkApplication (sparkoperator.k8s.io/v1beta2): suspended by ``spec.suspend``, or by an annotation.

Operators without the field know the annotation. The driver is the SparkApplication's own pod, and the driver owns the
executors. A SparkApplication counts as over only when the operator will not start the application again.
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.objects.meta import GANG, SCHEDULING_GROUP, SUSPEND, Meta, decode
from muster.core.workloads.common import (
    Life,
    Needs,
    Program,
    check_version,
    count,
    has_no_spec,
    marked_suspended,
    workload,
)
from muster.core.workloads.spark import Role, SparkSettings, number, request_of, template_of
from muster.core.workloads.steering import OURS
from muster.model.workload import Outcome, Phase, Switch, Template, Workload

KIND = "SparkApplication"
GROUP = "sparkoperator.k8s.io"
RUNNING = ("RUNNING", "SUCCEEDING", "FAILING", "UNKNOWN")
AT_REST = ("", "SUSPENDED")
OVER: dict[str, Outcome] = {"COMPLETED": "succeeded", "FAILED": "failed"}


class DynamicAllocation(Struct, frozen=True, rename="camel"):
    enabled: bool = False
    initial_executors: int | None = None
    min_executors: int | None = None
    max_executors: int | None = None


class SparkSpec(Struct, frozen=True, rename="camel"):
    suspend: bool | None = None
    type: str = ""
    image: object = None
    main_class: object = None
    main_application_file: object = None
    arguments: object = None
    driver: Role = field(default_factory=Role)
    executor: Role = field(default_factory=Role)
    spark_conf: dict[str, str] | None = None
    memory_overhead_factor: str | None = None
    node_selector: dict[str, str] | None = None
    dynamic_allocation: DynamicAllocation | None = None
    batch_scheduler: str | None = None


class ApplicationState(Struct, frozen=True):
    state: str = ""


class SparkStatus(Struct, frozen=True, rename="camel"):
    application_state: ApplicationState | None = None


class SparkApplication(Struct, frozen=True, rename="camel"):
    metadata: Meta
    api_version: str = "sparkoperator.k8s.io/v1beta2"
    spec: SparkSpec | None = None
    status: SparkStatus | None = None


def read(raw: bytes) -> Workload:
    """The workload of a SparkApplication, whatever controller the SparkApplication names."""
    app: SparkApplication = decode(raw, SparkApplication)
    spec, meta = app.spec, app.metadata
    if spec is None:
        raise has_no_spec()
    check_version(app.api_version, GROUP)
    state = app.status.application_state if app.status is not None else None
    life = _life(bool(spec.suspend) or marked_suspended(meta), state.state if state is not None else "")
    switch = Switch(annotation=SUSPEND in meta.annotations)
    return workload(KIND, app.api_version, meta, life, _needs(spec), switch=switch)


def _life(suspended: bool, word: str) -> Life:
    phase: Phase
    if word in OVER:
        return Life(phase="finished", suspended=suspended, outcome=OVER[word], detail=word)
    if suspended:
        phase = "waiting" if word in AT_REST else "suspending"
    else:
        phase = "running" if word in RUNNING else "starting"
    return Life(phase=phase, suspended=suspended, detail=word, settled=word == "SUSPENDED")


def _needs(spec: SparkSpec) -> Needs:
    """Driver and executors: with dynamic allocation the initial executors, and in ``full`` the most allowed."""
    settings = SparkSettings(
        properties=spec.spark_conf or {},
        factor=spec.memory_overhead_factor or "",
        python=spec.type == "Python",
        bare=spec.type in ("Python", "R"),
        node_selector=spec.node_selector or {},
    )
    first, most = _executors(spec, settings)
    needs = Needs()
    needs.program = Program(spec.image).running(spec.main_class, spec.main_application_file, spec.arguments)
    if spec.batch_scheduler:
        needs.steering.leave()
    for name, role, pods in (("driver", spec.driver, 1), ("executor", spec.executor, first)):
        template, one = template_of(role, settings), request_of(role, name, settings)
        later = name == "executor"  # The driver makes them.
        needs.add(name, pods, template, f"spec.{name}", request=one, steer=False, later=later)
        inner = role.template.spec.scheduler_name if role.template is not None else ""
        scheduler = role.scheduler_name or inner or ""
        if role == Role():
            needs.steering.leave()  # It may not be there at all, and then nothing can be added to it.
        notes = role.annotations or {}
        steered = Template(
            f"/spec/{name}",
            flat=True,
            named=scheduler in OURS,
            marked=GANG in notes,
            annotations=bool(notes),
            noted=bool(notes.get(SCHEDULING_GROUP)),
        )
        needs.steering.describe(steered, scheduler)
        needs.prioritize(template.spec.priority_class_name, template.spec.priority)
    needs.reserve(one, max(most, first) - first)
    return needs


def _executors(spec: SparkSpec, settings: SparkSettings) -> tuple[int, int]:
    """(initial executors, most executors)."""
    text, path = settings.get(None, "spark.executor.instances")
    own = count(spec.executor.instances, number(text, path) if text else -1, "spec.executor.instances")
    dynamic, at = spec.dynamic_allocation, "spec.dynamicAllocation"
    if dynamic is None or not dynamic.enabled:
        return (1, 1) if own < 0 else (own, own)
    low = count(dynamic.min_executors, 0, f"{at}.minExecutors")
    first = max(own, low, count(dynamic.initial_executors, 0, f"{at}.initialExecutors"))
    return first, count(dynamic.max_executors, first, f"{at}.maxExecutors")
