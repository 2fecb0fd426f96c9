# Two commands do everything: `make demo` and `make test`. Each makes .venv by itself.
PYTHON ?= python3
BIN := .venv/bin

# Packages are installed without compiling them, so Python must be allowed to cache bytecode:
# otherwise every process of the tests compiles JAX again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-more smoke slow campaign bench bench-stitching bench-runtime bench-actions bench-pixels bench-logs lint format docs clean

demo: .venv/.installed
	$(BIN)/python examples/demo.py

test: .venv/.installed-dev
	$(BIN)/pytest -n 2 --dist loadfile --durations 25 --durations-min 5

# What takes longer: kills and resumes, Ray, a browser, all tasks, release sizes.
test-more: .venv/.installed-dev
	$(BIN)/pytest -m more -n 2 --durations 15 --durations-min 10

# Wheel, sdist and run-only wheel: built, installed into empty environments and used.
smoke: .venv/.installed-dev
	$(BIN)/python tools/smoke.py

slow: .venv/.installed-dev
	$(BIN)/pytest -m slow

# Kills, damaged and hostile files, full disks; MINUTES=30 for the whole of it.
MINUTES ?= 10
campaign: .venv/.installed-dev
	$(BIN)/python tests/campaign --minutes $(MINUTES)

bench: .venv/.installed-dev
	$(BIN)/python benchmarks/throughput.py
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/evaluation.py
	$(BIN)/python benchmarks/collection.py
	$(BIN)/python benchmarks/grid.py
	$(BIN)/python benchmarks/walls.py
	$(BIN)/python benchmarks/reverse_models.py

bench-stitching: .venv/.installed-dev
	$(BIN)/python benchmarks/stitching.py

# Also draws docs/images/timing.png; Decision Diffuser alone takes minutes.
bench-actions: .venv/.installed-dev
	$(BIN)/python benchmarks/actions.py

# Writes 8 GB to the temporary folder, and deletes them.
bench-pixels: .venv/.installed-dev
	$(BIN)/python benchmarks/pixels.py

# Writes 341 MB to the temporary folder, and deletes them.
bench-logs: .venv/.installed-dev
	$(BIN)/python benchmarks/logs.py

# Compares with PyTorch, which nothing else here needs.
bench-runtime: .venv/.installed-bench
	$(BIN)/python benchmarks/runtime.py

lint: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf .venv site runs

.venv/bin/python:
	$(PYTHON) -m venv .venv

# Python compiles what is imported; compiling everything takes longer than the rest of the install.
PIP = $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e ".[plots]"
	touch $@

.venv/.installed-dev: .venv/.installed
	$(PIP) -e ".[all,dev,docs]"
	touch $@

.venv/.installed-bench: .venv/.installed
	$(PIP) -e ".[plots,robotics,export,bench]"
	touch $@
