# make demo   profile examples/lenet.py, print its first kernels and an overview, and say how to view the profile
# make page   build the page of the viewer
# make docs   the site of the documentation, into site/
# make quick  lint, types, doctests and the quickest tests
# make test   what has to pass before a commit: ruff, mypy, pytest
# make release-check   build, install and run what a release consists of
# make matrix every command with torch 2.4 to the newest, other versions of Python, numpy and pandas
# All make .venv first, with the Python named by PYTHON; CONSTRAINTS=constraints.txt: with the versions tested last.

PYTHON ?= python3
JOBS ?= 2
CONSTRAINTS ?=
BIN := .venv/bin
STAMP := .venv/.installed
# Many processes import the same packages: each would compile them again where the variable is set.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo page docs quick test test-long test-programs test-all test-3.13 matrix release-check lint format bench clean

demo: $(STAMP)
	@PATH="$(CURDIR)/$(BIN):$$PATH" && set -ex && \
	pyprof run --quiet -o net.sqlite examples/lenet.py && \
	pyprof/parse/parse.py net.sqlite > net.dict && \
	pyprof/prof/prof.py -w 100 -c idx,dir,op,module,sil,bytes,flops net.dict > net.txt && \
	awk 'NR == 1 || $$NF && n++ < 10' net.txt && \
	pyprof save -f -o net_dldb.sqlite net.sqlite
	-@$(BIN)/python frontend/backend.py
	@$(BIN)/pyprof report net_dldb.sqlite
	@echo "pyprof is $(BIN)/pyprof here."

# The page of the viewer, built again when a source of it has changed. Node.js is a package of requirements-dev.txt.
page: $(STAMP)
	@$(BIN)/python frontend/backend.py develop

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# While editing: no browser, no torch, no other process.
quick: lint
	$(BIN)/python -m pytest -q pyprof --ignore pyprof/capture tests/core/test_intervals.py tests/core/test_marker.py \
	  tests/test_metrics.py tests/test_docs.py tests/db/test_partition.py tests/parse/test_join.py tests/costs/test_costs.py

# Where npm cannot be reached the tests in a browser are skipped, and say so.
test: lint
	-@$(BIN)/python frontend/backend.py develop
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal

# Long forms: property tests with many more examples, full counts of damaged files, and what is marked `long`.
test-long: $(STAMP)
	-@$(BIN)/python frontend/backend.py develop
	PYPROF_LONG=1 $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal -m "long or counts or hypothesis"

# Models of libraries, in an environment that has them and the CUDA build of torch: 8 GB.
test-programs: $(STAMP)
	$(BIN)/python -m uv venv -q --allow-existing --python $(BIN)/python .venv-programs
	$(BIN)/python -m uv pip install -q --python .venv-programs/bin/python -e . \
	  -r tests/programs/requirements.txt --override tests/programs/overrides.txt
	.venv-programs/bin/python -m pytest -q -n $(JOBS) --dist worksteal tests/programs

test-all: test test-programs test-long

# What depends on versions, on Python 3.13 with the torch of PyPI, a CUDA build: capture, traces and operators of torch.
# The rest is the same on every Python, and `matrix` runs every command on the oldest and the newest. So are the flight
# recorder, faults, kills, windows by options and demands from outside, whose tests start a process each, and what a
# type checker says. 6 GB.
test-3.13: $(STAMP)
	$(BIN)/python scripts/matrix.py --environment .venv313 3.13
	.venv313/bin/python -m pytest -q -n $(JOBS) --dist worksteal tests/capture --ignore tests/capture/test_flight.py \
	  --ignore tests/capture/test_faults.py --ignore tests/capture/test_demand.py --ignore tests/capture/test_crash.py \
	  --ignore tests/capture/test_windows_cli.py tests/test_api.py tests/test_estimate.py \
	  --deselect tests/test_api.py::test_a_type_checker_knows_every_public_name \
	  tests/test_examples.py tests/prof/test_replay.py tests/parse/test_kineto_torch.py tests/costs/test_costs_torch.py \
	  tests/costs/test_costs_binding.py tests/costs/test_costs_walk.py

# A table of versions; every torch is downloaded, 4 GB each, and removed again.
matrix: $(STAMP)
	$(BIN)/python scripts/matrix.py

# The sdist, and the wheel built from it, in environments of their own.
release-check: $(STAMP)
	$(BIN)/python scripts/release_check.py

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(STAMP)
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

clean:
	rm -rf site .venv .venv313 .venv-programs frontend/node_modules pyprof/server/static build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis net.sqlite net.dict net.txt net_dldb.sqlite

# A torch that PYTHON or .venv can import is used as it is: another build would not fit this machine's driver, and
# is gigabytes. PYTHON's reaches .venv through a .pth file, which works for a system Python, conda and another venv.
$(STAMP): setup.py requirements-dev.txt $(CONSTRAINTS)
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv
	@set -e; has_torch() { "$$1" -c 'import torch' 2>/dev/null; }; \
	if ! has_torch $(BIN)/python && has_torch $(PYTHON); then \
	  site=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	  $(PYTHON) -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))' > "$$site/torch.pth"; \
	fi; \
	if has_torch $(BIN)/python; then grep -v '^torch\b' requirements-dev.txt; else cat requirements-dev.txt; fi > $@.txt
	@echo "Installing into .venv, which takes minutes: about 6 GB if pip fetches the CUDA build of torch (see CONTRIBUTING.md)"
	$(BIN)/python -m pip install -q --no-compile -e '.[viewer]' -r $@.txt $(if $(CONSTRAINTS),-c $(CONSTRAINTS))
	@touch $@
