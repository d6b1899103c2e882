# make demo | test | lint | bench | docs. Each makes .venv from requirements.lock first where it is missing or older than the lock.

PYTHON ?= $(shell python3.11 -c 'print("python3.11")' 2>/dev/null || echo python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed-from-lock
PIPELINE_VENV := .venv-pipeline
PIPELINE_INSTALLED := $(PIPELINE_VENV)/.installed-from-lock
DOCS_VENV := .venv-docs
DOCS_INSTALLED := $(DOCS_VENV)/.installed-from-lock
SOURCES := src tests benchmarks workflows .github/scripts docs/tools

.PHONY: demo test lint bench cli-docs docs pipeline

demo: $(INSTALLED)
	$(BIN)/leech demo --force

test: $(INSTALLED)
	$(BIN)/python -m pytest

lint: $(INSTALLED)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/vermin --quiet --no-tips --target=3.10- --violations --eval-annotations src .github/scripts

# bench_psi55 needs real reads: make bench DATA=FOLDER, the one that holds ecoli_psi55.
bench: $(INSTALLED)
	set -e; for script in $(filter-out %_psi55.py,$(wildcard benchmarks/bench_*.py)); do $(BIN)/python $$script; done
	$(if $(DATA),$(BIN)/python benchmarks/bench_psi55.py $(DATA),@echo "Left out: bench_psi55, which needs DATA=FOLDER.")

# docs/cli.md is made from the commands, docs/errors.md from the source, the figures from numbers; tests compare them.
cli-docs: $(INSTALLED)
	$(BIN)/python -m leech.cli.reference > docs/cli.md.partial
	mv docs/cli.md.partial docs/cli.md
	$(BIN)/python docs/tools/errors.py src/leech > docs/errors.md.partial
	mv docs/errors.md.partial docs/errors.md
	$(BIN)/python docs/tools/figures.py docs/figures

# The pages as a site, in an environment of its own; a broken link is an error. Without it, tests of the site are skipped.
docs: $(DOCS_INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/python -m mkdocs build --strict --quiet
	@echo "The pages: site/index.html; with search: $(DOCS_VENV)/bin/python -m http.server -d site"

$(DOCS_INSTALLED): docs/requirements.lock
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --requirement docs/requirements.lock
	touch $@

# Snakemake, in an environment of its own; tests of the pipeline that need it are skipped where it is not there.
pipeline: $(INSTALLED) $(PIPELINE_INSTALLED)

$(PIPELINE_INSTALLED): workflows/requirements.lock
	$(PYTHON) -m venv $(PIPELINE_VENV)
	$(PIPELINE_VENV)/bin/python -m pip install --requirement workflows/requirements.lock
	touch $@

# The stamp is touched last, so that an installation which stopped half-way is begun again.
$(INSTALLED): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --requirement requirements.lock
	$(BIN)/python -m pip install --no-build-isolation --no-deps --editable .
	touch $@
