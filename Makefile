# The environment lives in .venv and builds itself; Python 3.11 or newer and make are all it needs.

PYTHON ?= python3
UV_VERSION := 0.13.9
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv
UV_STAMP := $(VENV)/.uv-$(UV_VERSION)
ENV_STAMP := $(VENV)/.installed
COMPILE := $(UV) pip compile --quiet --universal --generate-hashes --no-annotate \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	--python $(BIN)/python
SOURCES := core shards gateway loadtest tests

export TOKENIZERS_PARALLELISM := false
export HF_HUB_OFFLINE := 1
export VLLM_NO_USAGE_STATS := 1
export DO_NOT_TRACK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test coverage check bench docs lock env clean

help: ## Show the targets.
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

env: $(ENV_STAMP) ## Build the environment in .venv.

demo: $(ENV_STAMP) ## Serve the demo model and run both round trips (ONCE=1: then stop).
	$(BIN)/python -m loadtest.demo $(if $(ONCE),--once)

test: $(ENV_STAMP) ## Run the tests.
	$(BIN)/python -m pytest -q

coverage: $(ENV_STAMP) ## Run the tests of core in one process and count what they reach.
	$(BIN)/coverage run -m pytest -q tests/core tests/equivalence tests/contracts
	$(BIN)/coverage report

check: $(ENV_STAMP) ## Check format, lint and types.
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(ENV_STAMP) ## Measure against the reference server (ARGS="--only stream --rounds 50").
	$(BIN)/python -m loadtest.bench $(ARGS) --model-dir \
		"$${MODEL_DIR:-$$($(BIN)/python -c 'from tests.models import folder; print(folder("qwen"))')}"

docs: $(ENV_STAMP) ## Write the flag tables of the documentation.
	$(BIN)/python -m gateway.cli.flags_table docs/operations.md

lock: $(UV_STAMP) ## Resolve both requirements files anew from pyproject.toml.
	$(COMPILE) --upgrade --extra test --output-file requirements.txt pyproject.toml
	# What is in the file is preferred, so what is served has the versions that are tested.
	cp requirements.txt requirements-serve.txt
	$(COMPILE) --extra build --output-file requirements-serve.txt pyproject.toml

clean: ## Remove the environment and everything built.
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis .coverage
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(UV_STAMP):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/it" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv==$(UV_VERSION)
	@touch $@

$(ENV_STAMP): $(UV_STAMP) requirements.txt pyproject.toml
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes --requirement requirements.txt
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@
