# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
TOOLS := $(VENV)/.tools
# most of what is installed is never imported: a module is compiled when it first is, and kept
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
export PYTHONDONTWRITEBYTECODE :=
JOBS ?= 2

.PHONY: demo test lint slow fuzz docs pages results release-check clean

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("certiformer needs Python 3.10 or newer: make PYTHON=..." if sys.version_info < (3, 10) else 0)'
	@echo "Setting up $(VENV), once; this takes a minute or two."
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) torch
	@$(PIP) --editable .
	@touch $@

$(TOOLS): $(STAMP)
	@$(PIP) --editable '.[dev]' --editable ./reproduction --editable ./checker
	@touch $@

# a small model gains nothing from threads, and on a busy machine they wait for each other; memory that one evaluation
# leaves is kept for the next (glibc would give it back each time)
KEEP := MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=2000000000 MALLOC_TOP_PAD_=67108864
demo: $(STAMP)
	@OMP_NUM_THREADS=1 $(KEEP) $(BIN)/python examples/demo.py

lint: $(TOOLS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# one thread a process
test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(JOBS)

slow: $(TOOLS)
	$(BIN)/python -m pytest -q -m slow

# random models against exact arithmetic; make fuzz MINUTES=60
MINUTES ?= 10
fuzz: $(TOOLS)
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m fuzz --minutes $(MINUTES)

# the site, into build/site; a warning or a link that leads nowhere is an error
docs: $(TOOLS)
	$(BIN)/python tools/build_site.py build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# what is generated in docs/: the table of operations, what snippets print, the notebook, the tables of measurements
pages: $(TOOLS)
	$(BIN)/python -m certiformer.core.lowering > docs/supported-ops.md
	OMP_NUM_THREADS=1 $(BIN)/python tools/snippets.py
	OMP_NUM_THREADS=1 $(BIN)/python tools/tutorial_notebook.py
	$(BIN)/python tools/pictures.py
	$(BIN)/python -m certiformer_reproduction performance --page docs/notebook/performance.md

# the paper's tables, as far as results/ holds them, into docs/notebook/results.md; make results FROM=folder
FROM ?= results
results: $(TOOLS)
	$(BIN)/python -m certiformer_reproduction plots --out $(FROM)
	$(BIN)/python -m certiformer_reproduction results --from $(FROM)

# all that must hold before a release; nothing is uploaded
release-check: $(TOOLS)
	$(BIN)/python tools/release.py

clean:
	rm -rf $(VENV) build dist demo
