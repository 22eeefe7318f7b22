# `make` says what there is. Everything lives in .venv; nothing is installed elsewhere.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
COMPUTING := tests/unit tests/property tests/simulation
SOURCES := pyproject.toml setup.py $(shell find streamlog -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi')

LOCKED := --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate

# The tests start hundreds of programs, which would compile their modules each time.
unexport PYTHONDONTWRITEBYTECODE
# A simulated story depends on the order of mappings of names: with one hash seed it is the same each time.
export PYTHONHASHSEED := 0

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-keep test test-slow nightly mutation lint bench bench-kafka bench-clusters compatibility docs lock clean

help: ## Say what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(INSTALLED) ## Make .venv, build the compiled parts, install streamlog in place

# The .pth line lets Spark, which walks sys.path, find pyspark_streamlog in a checkout.
$(INSTALLED): $(SOURCES)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "streamlog needs Python 3.11 or later; name one: make PYTHON=python3.12" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
		|| { echo "no virtual environment: on Debian, apt-get install python3-venv" >&2; exit 2; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,spark]'
	@echo "$(CURDIR)/spark" > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/streamlog_spark.pth"
	@touch $@

demo: setup ## The main job on 336,776 real flights, every answer checked, nothing left running
	$(BIN)/python -m demo

demo-keep: setup ## The same, but the servers stay up
	$(BIN)/python -m demo --keep

# Tests without servers fill what tests with servers leave of the processors, for these wait most of the time. More workers
# than two cores, for the same reason. Long files come first.
test: setup ## Lint, types and all tests but the slow ones
	@report=$$(mktemp) && trap 'rm -f "$$report"' EXIT; \
	echo "tests without servers run in the background; their report comes last"; \
	nice -n 10 $(BIN)/pytest -q --numprocesses 3 --dist worksteal $(COMPUTING) > "$$report" 2>&1 & computing=$$!; \
	status=0; \
	$(MAKE) --no-print-directory lint || status=1; \
	$(BIN)/pytest -q --numprocesses 4 --dist loadfile --no-loadscope-reorder $(COMPUTING:%=--ignore=%) || status=1; \
	wait $$computing || status=1; \
	cat "$$report"; exit $$status

test-slow: setup ## The tests that take minutes
	$(BIN)/pytest -q -m slow

HOURS ?= 8
nightly: setup ## New seeds of all simulated worlds, for 8 hours; `make nightly HOURS=1`
	nice $(BIN)/python -m tests.simulation.nightly --hours $(HOURS)

mutation: setup ## Small mistakes planted into the pure cores: which do the tests not find? Hours; Ctrl-C loses nothing
	nice $(BIN)/python -m tests.mutation

lint: setup ## Style, types, layers, words
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.lint
	$(BIN)/python -m documentation --check

bench: setup ## One node beside others, five rounds: table, chart, benchmarks/README.md
	$(BIN)/python -m benchmarks

bench-kafka: setup ## One node beside Apache Kafka, which Maven brings: the same clients on both
	$(BIN)/python -m benchmarks --kafka --name kafka

bench-clusters: setup ## Three nodes beside three JetStream servers
	$(BIN)/python -m benchmarks.clusters

compatibility: setup ## Kafka clients of several languages against three nodes: docs/compatibility.md
	$(BIN)/python -m compatibility

docs: setup ## The pages made out of the code, and the site in site/
	$(BIN)/python -m documentation
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	test -e build/mermaid.min.js || { mkdir -p build && cd build \
		&& tar -xzf "$$(npm pack --silent mermaid@11)" --strip-components=2 package/dist/mermaid.min.js && rm mermaid-*.tgz; } \
		|| echo "no npm here: the site shows the source of its diagrams" >&2
	$(BIN)/mkdocs build --strict --quiet

lock: setup ## Name the dependencies of the image with their checksums
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip compile pyproject.toml --extra tier $(LOCKED) --output-file deploy/requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra spark $(LOCKED) --output-file deploy/spark/requirements.lock
	printf 'setuptools>=77\nCython>=3.1\n' | $(BIN)/uv pip compile - $(LOCKED) --output-file deploy/build.lock

clean: ## Remove what was built, not the environment
	rm -rf build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find streamlog -name '*.so' -delete
	find streamlog -name '*.c' -delete
	rm -f $(INSTALLED)
