# Everything a person runs here. Nothing has to be installed before: the first target that needs
# Python sets up .venv by itself, from the lock, with pip alone.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
# Under LC_ALL=C a Python of 3.11 reads no path that is not ASCII, and does not start where .venv has one.
ifneq ($(filter C POSIX,$(LC_ALL)),)
export LC_ALL := C.UTF-8
endif

# Without bytecode on disk, each of the hundred processes of a run compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

LOCK := requirements.lock
VENV := .venv
BIN := $(VENV)/bin
CODE := contracts services spark_jobs src tests

# A network may fail for a moment, and whatever was fetched before is kept.
twice = { $(1) || { echo "That failed. Trying once more." >&2; sleep 5; $(1); }; }

# The first Python that really starts, is not too old or too new, and can make an environment.
FITS := import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	$$python -c '$(FITS)' 2>/dev/null && echo $$python && break; done)

# A stamp's name is the hash of what it stands for, so a changed lock, and a moved checkout, are
# set up anew and nothing else is.
hash = $(shell { pwd; cat $(1); } | cksum | cut -d ' ' -f 1)
LOCKED := $(VENV)/.locked-$(call hash,$(LOCK))
INSTALLED := $(VENV)/.installed-$(call hash,pyproject.toml)
CONNECTED := $(VENV)/.connected-$(call hash,spark_jobs/connectors.py spark_jobs/home.py)

.PHONY: help
help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' \
		| while IFS='|' read -r target line; do printf '  make %-19s %s\n' "$$target" "$$line"; done

.PHONY: setup
setup: $(INSTALLED) ## Python environment in .venv (all other targets call it)
	@:

# Java and Maven are asked for only by what runs a broker.
.PHONY: broker
broker: setup ## what the embedded Kafka needs: its jars, fetched once
	@$(BIN)/python -m tests.kafka || { { [ $$? -ne 2 ] \
		|| docker/install.sh maven "openjdk-17-jre-headless|openjdk-21-jre-headless"; } \
		&& $(call twice,$(BIN)/python -m tests.kafka); }

$(INSTALLED): $(LOCKED)
	@rm -f $(VENV)/.installed-*
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --no-build-isolation --editable .
	@touch $@

$(LOCKED):
	@if [ -z "$(PYTHON)" ]; then \
		echo "headrace needs Python 3.11, 3.12 or 3.13 with its venv module; here python3 is" \
			"$$(python3 --version 2>/dev/null || echo missing)." >&2; \
		echo "Install one (on Debian and Ubuntu: python3 and python3-venv), or name it:" \
			"make PYTHON=/path/to/python3.12 ..." >&2; \
		exit 1; \
	fi
	@"$(PYTHON)" -c '$(FITS)' 2>/dev/null || { \
		echo "$(PYTHON) is not Python 3.11, 3.12 or 3.13 with its venv module." >&2; exit 1; }
	@echo "Setting up $(VENV) with $$("$(PYTHON)" --version); the first time takes a minute or two."
	@"$(PYTHON)" -m venv --clear $(VENV)
	@$(call twice,$(BIN)/python tests/machines/packages.py $(LOCK))
	@touch $@

# Who changes how Spark is prepared has it prepared again.
PREPARES := $(addprefix spark_jobs/,__main__.py connectors.py first_run.py home.py java.py)
.PHONY: spark
spark: broker $(CONNECTED) ## what Spark needs: its connectors and an archive of classes, made once
	@:

$(CONNECTED): $(INSTALLED) $(PREPARES)
	@rm -f $(VENV)/.connected-*
	@log=$$(mktemp); $(call twice,$(BIN)/python -m headrace.spark_jobs --iceberg 2>"$$log") \
		|| { cat "$$log" >&2; exit 1; }
	@touch $@

.PHONY: images
images: spark ## the images of sidecar, Spark and broker, where Docker is
	@if docker info >/dev/null 2>&1; then docker/build.sh; \
		else echo "Docker does not answer here, so no image is built." >&2; fi

.PHONY: image-of-kafka
image-of-kafka: broker ## the image of the broker alone, where Docker is
	@docker/build.sh kafka

# The demo's page is looked at in a real browser, where there is one.
.PHONY: browser
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
		|| command -v google-chrome >/dev/null || docker/install.sh chromium \
		|| echo "No Chromium here, so nobody looks at the demo's page; install chromium." >&2

# Records of others are written by its client as well, where it is there.
.PHONY: kcat
kcat:
	@command -v kcat >/dev/null || docker/install.sh kcat \
		|| echo "No kcat here, so nobody writes with it; install kcat." >&2

# A file's tests stay together, for some share a session of Spark or a broker. A process that was
# ended over a test that waits for ever is replaced once, and begins with that test.
SPREAD := -n auto --dist loadfile --no-loadscope-reorder --max-worker-restart 1
# Where a broker answers in earnest.
OF_BROKERS := tests/clusters/test_records.py tests/clusters/test_rights.py tests/runtime \
	tests/kafka/test_broker_command.py
.PHONY: test
test: spark browser kcat ## what must hold at every commit: lint, types, import rules, tests (minutes)
	@! docker info >/dev/null 2>&1 || $(MAKE) image-of-kafka \
		|| echo "Kafka's image could not be built, so no broker will run in a container." >&2
	@$(MAKE) --jobs 2 --output-sync lint types bytecode
	@$(BIN)/python -m pytest $(SPREAD)

# Otherwise each process of the tests would rewrite the asserts of all modules for itself. What
# cannot be imported is told by the tests.
.PHONY: bytecode
bytecode: setup
	@$(BIN)/python -m pytest --collect-only --quiet >/dev/null || true

.PHONY: test-long
test-long: spark kcat browser ## what takes long or draws by chance (hours; ONLY="kill spark" for some sections)
	@$(BIN)/python -m tests.long $(ONLY)

RUNS ?= 20
ON ?= full-speed
.PHONY: test-certain
test-certain: spark kcat browser ## make test's tests RUNS=20 times in random order (ON=one-core, half-core, slow-disk)
	@$(BIN)/python -m tests.long.certain --runs $(RUNS) --on $(ON)

.PHONY: test-containers
test-containers: images ## images, compose and Spark's cluster, in containers
	@HEADRACE_KAFKA=docker $(BIN)/python -m pytest $(SPREAD) --long containers

.PHONY: tiers
tiers: setup ## each test, whether make test or a section of make test-long runs it, and why
	@$(BIN)/python -m pytest --quiet --tiers

.PHONY: test-brokers
test-brokers: broker kcat ## what speaks to a broker, through the oldest Kafka that docs/running.md names (minutes)
	@oldest=$$($(BIN)/python -c 'from headrace.services.broker.jars import VERSIONS; print(VERSIONS[-1])') \
		&& export HEADRACE_KAFKA_VERSION=$$oldest \
		&& $(BIN)/python -m tests.kafka \
		&& $(BIN)/python -m tests.conformance --through sidecar \
		&& $(BIN)/python -m pytest $(SPREAD) $(OF_BROKERS)

.PHONY: test-pythons
test-pythons: broker ## lint, types, and what needs no Spark, on every Python here (minutes each)
	@$(BIN)/python -m tests.machines pythons

.PHONY: test-libraries
test-libraries: spark ## the wheel with the newest and the lowest libraries, and with few extras (minutes)
	@$(BIN)/python -m tests.machines libraries

.PHONY: test-bare
test-bare: setup ## README's commands on a bare Debian, by root (BARE="space noexec"; an hour for all)
	@$(BIN)/python -m tests.machines bare $(BARE)

.PHONY: thorough
thorough: spark ## the property tests with many more random examples (minutes)
	@$(BIN)/python -m pytest $(SPREAD) -m hypothesis --hypothesis-profile thorough

.PHONY: lint
lint: setup ## style and import rules
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/lint-imports --no-logo

.PHONY: types
types: setup ## mypy, strict
	@$(BIN)/mypy

.PHONY: format
format: setup ## put the code into the house's form
	@$(BIN)/ruff check --fix --quiet $(CODE) || true
	@$(BIN)/ruff format $(CODE)

.PHONY: conformance
conformance: setup ## replay Kafka Streams' own results, record by record
	@$(BIN)/python -m tests.conformance

.PHONY: conformance-sidecar
conformance-sidecar: broker ## the same through a real broker and the sidecar (minutes)
	@$(BIN)/python -m tests.conformance --through sidecar

.PHONY: conformance-spark
conformance-spark: setup ## the same through Spark's streaming queries (minutes)
	@$(BIN)/python -m tests.conformance --through spark

.PHONY: bench
bench: broker ## the race: headrace beside Kafka Streams, Quix and Faust (hours; RACE="--rounds 1 --guarantees exactly-once")
	@$(BIN)/python -m tests.bench.race --results tests/bench/results $(RACE)

.PHONY: bench-spark
bench-spark: spark ## the shipped Spark join, as a query in JSON and Avro too, beside Kafka Streams (three rounds, 40 minutes; SPARK=--jobs also has the other jobs, SPARK=--peers the join alone)
	@$(BIN)/python -m tests.bench.spark --results tests/bench/results $(SPARK)

.PHONY: bench-tables
bench-tables: spark ## the shipped Spark join over tables of ever more keys (an hour; TABLES="--keys 1000000 --orders 40000")
	@$(BIN)/python -m tests.bench.tables --results tests/bench/results $(TABLES)

.PHONY: bench-whole
bench-whole: spark ## raw topics to priced orders, beside Flink SQL and Kafka Streams (WHOLE="--orders 4000000", or --delay)
	@$(BIN)/python -m tests.bench.whole --results tests/bench/results $(WHOLE)

.PHONY: bench-operators
bench-operators: setup ## how fast the operators are without Kafka, on this machine
	@$(BIN)/python -m tests.bench

.PHONY: bench-rebalance
bench-rebalance: broker ## how long partitions stand still when a worker joins or dies, beside Faust
	@$(BIN)/python -m tests.bench.rebalance --results tests/bench/results

.PHONY: bench-partitions
bench-partitions: broker ## few records each over 4, 64 and 256 partitions, beside Kafka Streams
	@$(BIN)/python -m tests.bench.partitions --results tests/bench/results

KILLS ?= 20
MINUTES ?= 60
.PHONY: kill-test
kill-test: broker ## kill sidecars at random (KILLS=n times), and judge what they wrote
	@$(BIN)/python -m tests.kill --kills $(KILLS)

.PHONY: kill-farm
kill-farm: broker ## runs of fresh seeds until KILLS=n workers and brokers were struck; goes on where it ended
	@$(BIN)/python -m tests.kill.farm --kills $(KILLS)

.PHONY: soak
soak: broker ## an hour of load and kills, all of it accounted for (MINUTES=n)
	@$(BIN)/python -m tests.soak --minutes $(MINUTES) --results tests/soak/results

.PHONY: demo
demo: spark ## see it work
	@$(BIN)/headrace demo

.PHONY: wheel
wheel: setup ## what is published, in dist/
	@$(BIN)/python -m hatchling build --target wheel

.PHONY: schema
schema: setup ## the JSON Schemas of pipelines and queries, after a change of their models
	@$(BIN)/python -m headrace.contracts.schemas > contracts/schemas/pipeline.schema.json
	@$(BIN)/python -m headrace.spark_jobs.queries.file > contracts/schemas/query.schema.json

.PHONY: metrics
metrics: setup ## the page of metrics, after a change of their table
	@$(BIN)/python -m headrace.services.observe > services/observe/METRICS.md

# Who builds the site has an environment for it; who tests headrace needs none.
DOCUMENTED := .venvs/docs/.installed-$(call hash,pyproject.toml)
.PHONY: docs
docs: setup $(DOCUMENTED) ## the site of the pages in docs/, strictly, in build/docs/site
	@rm -rf build/docs
	@$(BIN)/python -m tests.docs build/docs/pages
	@NO_MKDOCS_2_WARNING=1 .venvs/docs/bin/mkdocs build --quiet --strict --config-file docs/mkdocs.yml

$(DOCUMENTED): $(LOCKED)
	@rm -rf .venvs/docs
	@$(BIN)/python -m venv .venvs/docs
	@.venvs/docs/bin/python -m pip install --quiet --disable-pip-version-check '.[docs]'
	@touch $@

.PHONY: lock
lock: ## newest versions that pyproject.toml allows, with hashes (needs uv)
	@command -v uv >/dev/null || { echo "make lock needs uv: pip install uv" >&2; exit 1; }
	@{ echo "# Written by \`make lock\`: what the tests of every target run with, on any Python we support."; \
		uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
			--no-emit-index-url --no-emit-find-links --no-header --no-annotate \
			--extra sidecar --extra spark --extra dev pyproject.toml; } > $(LOCK).new
	@mv $(LOCK).new $(LOCK)

.PHONY: clean
clean: ## remove what was made here, the environment included
	@rm -rf $(VENV) .venvs build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
