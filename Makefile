# Needs Python 3.11 or newer (with venv) and make; everything else goes into .venv, from the locks.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

# Two locks, one environment: `demo` installs the first only; the second is a superset of it.
RUN_STAMP := $(VENV)/.installed-run
DEV_STAMP := $(VENV)/.installed-dev
RUN_EXTRAS := --extra serve --extra broker
DEV_EXTRAS := $(RUN_EXTRAS) --extra faust --extra parquet --extra protobuf --extra export --extra frames --extra plot --extra otel --extra dev
PEERS := .venv-peers
DOCS := .venv-docs
PURCHASES := $(VENV)/purchases
FLINK := .venv-flink
BENCHES := engine export flat gaussian_counter kafka_source ledger live_series monitor noise router user_guard wide  # those that compare, not judge
COMPILE := $(BIN)/uv pip compile --quiet pyproject.toml --group build --universal \
	--python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# One worker more than processors: some tests wait for others (Kafka, Chromium, processes that are killed).
WORKERS ?= $(shell expr $$(nproc 2>/dev/null || echo 2) + 1)
PYTEST := python -m pytest
PARALLEL = -n $(WORKERS) --dist loadscope --no-loadscope-reorder
MYPY_SAID := $(VENV)/.mypy-said
RESULTS := $(VENV)/results.xml
# Else each worker compiles all tests anew in every run (12 CPU seconds for tests/unit), and each process that is started.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo install dist test test-all test-fast test-slow flink test-flink bench bench-peers journals docs lint format lock clean python

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile
	@echo '  ARGS="..." is handed on, for instance: make demo ARGS="--headless --until-end"'

demo: $(RUN_STAMP)  ## Real flights through a local Kafka to a private live page (Ctrl-C stops it)
	@exec $(BIN)/stream-dp demo $(ARGS)

install: $(RUN_STAMP)  ## Only the environment of the demo, with .venv/bin/stream-dp

dist: $(DEV_STAMP)  ## Wheels, sdist and SBOM of the last commit in dist/, the same bytes from every build
	@$(BIN)/python deploy/dist.py

# --- checks -----------------------------------------------------------------------------------

# Runs one tool; says which it was, and stops there, when it fails.
define check
@echo "== $(1)"
@$(BIN)/$(1) || { code=$$?; echo "make $@: FAILED: $(1)" >&2; exit $$code; }
endef

# Lint, types and the tests that a marker chooses. mypy takes a minute on a fresh clone, on one processor: it runs beside
# the tests, and speaks after them.
define suite
$(call check,ruff check)
$(call check,ruff format --check)
@echo "== mypy (beside pytest)"
@$(BIN)/mypy >$(MYPY_SAID) 2>&1 & mypy=$$!; code=0; \
echo "== $(PYTEST) $(PARALLEL) -m \"$(1)\" $(ARGS)"; \
$(BIN)/$(PYTEST) $(PARALLEL) -m "$(1)" --junitxml=$(RESULTS) $(ARGS) || code=$$?; \
wait $$mypy; typed=$$?; echo "== mypy"; cat $(MYPY_SAID); \
[ $$typed -eq 0 ] || echo "make $@: FAILED: mypy" >&2; \
[ $$code -eq 0 ] || echo "make $@: FAILED: pytest" >&2; \
exit $$(( code ? code : typed ))
@echo "make $@: all passed"
endef

test: $(DEV_STAMP) $(PURCHASES)/.installed  ## The tests of every part: ruff, mypy, pytest (with the import contracts)
	$(call suite,not slow and not full)

test-all: $(DEV_STAMP) $(PURCHASES)/.installed  ## Those and the long ones: certificates, chaos, every kill, every page (what CI runs)
	$(call suite,not slow)

test-fast: $(DEV_STAMP) $(PURCHASES)/.installed  ## The unit tests alone: no Kafka, no browser
	$(call check,$(PYTEST) $(PARALLEL) -m "not slow and not long and not full" tests/unit stream_dp $(ARGS))

test-slow: $(DEV_STAMP)  ## The tests that take minutes
	$(call check,$(PYTEST) -m slow $(ARGS))

flink: $(FLINK)/.installed  ## Only the environment of the tests with PyFlink (.venv-flink: 1.2 GB, once)

test-flink: $(FLINK)/.installed  ## The tests with PyFlink alone, which `make test-all` runs too where it is there; need Java 17
	STREAM_DP_REQUIRE=flink $(BIN)/$(PYTEST) tests/kafka/test_flink.py $(ARGS)

bench: $(DEV_STAMP) $(PEERS)/.installed  ## The benchmarks, HSS beside other forms, counters beside peers (.venv-peers: a gigabyte)
	$(call check,$(PYTEST) tests/benchmarks -s --timeout=0 --override-ini python_files=bench_*.py $(ARGS))
	@for each in $(BENCHES); do \
		echo "== bench_$$each"; PYTHONPATH=tests $(BIN)/python tests/benchmarks/bench_$$each.py || exit $$?; \
	done
	@$(MAKE) --no-print-directory bench-peers ARGS=

bench-peers: $(PEERS)/.installed  ## Bands and counters beside dpcrpy, jax-privacy and OpenDP alone; bench_engine.py uses its confluent-kafka
	PYTHONPATH=tests $(PEERS)/bin/python tests/benchmarks/bench_bands.py
	PYTHONPATH=tests $(PEERS)/bin/python tests/benchmarks/bench_peers.py $(ARGS)

# $(call separate,ENVIRONMENT,what is installed,its lock file,its size): in two steps, for the package itself is built here.
define separate
	@$(BIN)/python -m venv $(1)
	@echo "Installing $(2), from $(3) (about $(4), once)"
	@$(call dotted,$(1)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $(3))
	@$(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(1)/.installed
endef

$(PEERS)/.installed: requirements-peers.lock $(DEV_STAMP)
	$(call separate,$(PEERS),the libraries to compare with,requirements-peers.lock,1 GB)

# Of an older numpy and protobuf than the product's own environment.
$(FLINK)/.installed: requirements-flink.lock $(DEV_STAMP)
	$(call separate,$(FLINK),PyFlink,requirements-flink.lock,1.2 GB)

journals: $(DEV_STAMP)  ## Write the journals of this version that later ones must read (at a release)
	@PYTHONPATH=tests $(BIN)/python -m fixtures.make_journals

docs: $(DOCS)/.installed  ## The site of all pages, in build/site; fails on a warning, such as a link that leads nowhere
	@rm -rf build/site
	@$(DOCS)/bin/python -m sphinx --quiet --fail-on-warning --keep-going --fresh-env --builder html \
		--conf-dir docs/site --doctree-dir build/doctrees . build/site
	@echo "make $@: open build/site/index.html"

lint: $(DEV_STAMP)  ## ruff, mypy and the import contracts
	$(call check,ruff check)
	$(call check,ruff format --check)
	$(call check,mypy)
	$(call check,lint-imports)

format: $(DEV_STAMP)  ## Format the code and fix what ruff can fix
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

# --- environment ------------------------------------------------------------------------------

# Finds the first Python that is new enough and can make environments; else says in one line what to do.
define find_python
found=; incomplete=; \
for candidate in $(PYTHON) python3.14 python3.13 python3.12 python3.11; do \
	"$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	if "$$candidate" -c 'import venv, ensurepip' 2>/dev/null; then found=$$candidate; break; fi; \
	incomplete=$${incomplete:-$$candidate}; \
done; \
if [ -z "$$found" ] && [ -n "$$incomplete" ]; then \
	package=$$("$$incomplete" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); \
	echo "$$incomplete cannot make environments (no venv or ensurepip): apt install $$package" >&2; \
	exit 1; \
elif [ -z "$$found" ]; then \
	version=$$($(PYTHON) --version 2>&1) || version="no $(PYTHON)"; \
	echo "Python 3.11 or newer is needed, found $$version: install it (apt install python3 python3-venv) or say make PYTHON=/path/to/python" >&2; \
	exit 1; \
fi
endef

python:  ## Show which Python would make the environment
	@$(find_python); command -v "$$found"

# A dot every two seconds, for pip says nothing of how far it is that would not be a hundred lines.
define dotted
while sleep 2; do printf .; done & dots=$$!; $(1); code=$$?; kill $$dots; echo; exit $$code
endef

# --no-build-isolation: the build backend comes from the lock too, so nothing unlisted is fetched.
$(RUN_STAMP): requirements.lock pyproject.toml
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { $(find_python); \
		echo "Making $(VENV) with $$found"; rm -rf $(VENV); "$$found" -m venv $(VENV); }
	@echo "Installing what running needs, from requirements.lock (about 100 MB, once)"
	@$(call dotted,$(PIP_INSTALL) --require-hashes --no-deps -r requirements.lock)
	@$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(DEV_STAMP): requirements-dev.lock deploy/native/stream_dp_native.c deploy/native/setup.py $(RUN_STAMP)
	@echo "Installing what developing needs, from requirements-dev.lock (about 150 MB more, once)"
	@$(call dotted,$(PIP_INSTALL) --require-hashes --no-deps -r requirements-dev.lock)
	@if command -v $(CC) >/dev/null; then CC=$(CC) $(PIP_INSTALL) --no-deps --no-build-isolation ./deploy/native; \
	else echo "There is no C compiler ($(CC)): records are decoded in Python alone"; fi
	@touch $@

# Apart from the others, for no test and no user needs it.
$(DOCS)/.installed: requirements-docs.lock
	@$(find_python); "$$found" -m venv $(DOCS)
	@echo "Installing what builds the site, from requirements-docs.lock (about 150 MB, once)"
	@$(call dotted,$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-docs.lock)
	@touch $@

# In a folder of its own: nothing else finds the package, as on the machine of whoever runs the example.
$(PURCHASES)/.installed: requirements-purchases.lock | $(DEV_STAMP)
	@$(PIP_INSTALL) --require-hashes --no-deps --upgrade --target $(PURCHASES) -r requirements-purchases.lock
	@touch $@

# The developer's lock is solved first (Faust holds click back); the other is a subset of it.
lock: $(DEV_STAMP)  ## Solve the lock files anew
	@$(COMPILE) --upgrade $(DEV_EXTRAS) --output-file requirements-dev.lock
	@$(COMPILE) --upgrade $(RUN_EXTRAS) --constraint requirements-dev.lock --output-file requirements.lock
	@$(COMPILE) --upgrade --group peers --output-file requirements-peers.lock
	@$(COMPILE) --upgrade --group flink --output-file requirements-flink.lock
	@$(COMPILE) --upgrade --group docs --constraint requirements-dev.lock --output-file requirements-docs.lock

clean:  ## Remove the environment and all that was built
	rm -rf $(VENV) $(PEERS) $(FLINK) $(DOCS) build dist *.egg-info deploy/native/build deploy/native/*.egg-info .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
