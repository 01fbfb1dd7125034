# lastgood — `make help` lists what can be done here.
SHELL := /bin/bash
BIN := .venv/bin
SHARD ?= 1/1
SEED ?= $(shell date +%s)
# A folder in memory with room for all that tests write, if there is one: they write hundreds of thousands of small files.
MEMORY := $(shell [ "$$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 8000000 ] 2>/dev/null && echo /dev/shm)
PYTEST := folder=$$($(MEMORY:%=TMPDIR=%) mktemp -d -t pytest-XXXXXX) && trap 'rm -rf "$$folder"' EXIT && \
	$(BIN)/pytest --basetemp="$$folder/tmp"
# What check has run is not even collected again. More workers than cores: for a third of its time a test waits, for half
# of it where it has a broker or a Spark.
BEYOND := --ignore=tests/unit --ignore=tests/style
UNIT := unit-a-to-h unit-i-to-p unit-q-to-z
# Nothing may depend on what the calling shell exports.
unexport PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON SPARK_HOME SPARK_CONF_DIR PYTHONPATH PYTHONDONTWRITEBYTECODE \
	PYTHONUNBUFFERED

.DEFAULT_GOAL := help
.PHONY: help setup demo test check types layers $(UNIT) proof docs format constraints clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

setup: ## virtual environment with every extra in .venv (Java too, if it is missing and you are root)
	@tools/setup

demo: setup ## the main job on real input: Kafka, Spark, Delta, broken in six ways, an audit
	@$(BIN)/lastgood demo

test: check ## everything a change must pass: check, then corpus, properties, real brokers and real Sparks
	@$(PYTEST) -q -n 3 $(BEYOND) -m "not spark and not services and not proof"
	@$(PYTEST) -n 4 $(BEYOND) --dist loadfile --no-loadscope-reorder --durations=15 -m "(spark or services) and not proof"

check: setup ## format, lint, types, layering, unit tests
	$(BIN)/ruff format --check -q .
	$(BIN)/ruff check -q .
	@minutes=$$(mktemp) && trap 'rm -f "$$minutes"' EXIT && \
		MINUTES=$$minutes $(MAKE) --no-print-directory -j 6 -O types layers $(UNIT)

# Each uses one core, and a test waits for a part of its time. To hand single tests to workers, and to hear of each,
# takes a fifth more of the processor than parts that are told before.
types:
	$(BIN)/mypy

layers:
	$(BIN)/lint-imports --no-logo

unit-a-to-h: BEGIN := [a-h]
unit-i-to-p: BEGIN := [i-p]
unit-q-to-z: BEGIN := [q-z]
unit-a-to-h: ALSO := tests/style

$(UNIT):
	@$(PYTEST) -q $(ALSO) tests/unit/$(BEGIN)*

proof: setup ## the large matrices; SHARD=i/n runs one part, SEED=s repeats a run
	@echo "proof: shard $(SHARD), seed $(SEED), commit $$(git rev-parse --short HEAD)"
	LASTGOOD_SHARD=$(SHARD) LASTGOOD_SEED=$(SEED) $(BIN)/pytest -n 2 -m proof --durations=15

docs: setup ## write the generated pages of docs/reference
	@$(BIN)/python tools/reference

format: setup ## format the code, mend what the linter can mend
	$(BIN)/ruff format -q .
	$(BIN)/ruff check -q --fix .

constraints: ## write the newest versions that fit together into constraints/dev.txt
	$(BIN)/pip install -q --upgrade --upgrade-strategy eager -e '.[all]' --group dev
	@{ echo '# What lastgood is developed and tested with; written by `make constraints`.'; \
	   $(BIN)/pip list --format=freeze | grep -viE '^(lastgood|pip|setuptools)='; } > constraints/dev.txt

clean: ## remove the virtual environment and all caches of this checkout
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
