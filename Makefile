# Everything a clone needs: `make demo` and `make test` set themselves up.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Measuring processes share few cores with the test suite here: waiting threads must not spin.
TEST_ENV := OMP_WAIT_POLICY=passive AUTOTUNE_CACHE=$(CURDIR)/.make/cache HF_HUB_OFFLINE=1

.PHONY: setup demo test check audit bench-probe bench-repeat bench-peaks bench-compare bench-search bench-dataset bench-real test-oldest bench-predict bench-devices gpu-check clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/autotune run --out autotune-runs/demo --force

# Files run side by side, one per core, in their order, so that the short ones come last; up to four,
# since each holds measuring processes.
test: $(READY)
	$(TEST_ENV) $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder --durations 15

# Some 530 combinations of 32 jobs with TRL's own trainers: a quarter of an hour.
audit: $(READY)
	$(TEST_ENV) $(BIN)/python -m tests.audit

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=. $(BIN)/lint-imports

bench-probe: $(READY)
	AUTOTUNE_BENCH=1 $(BIN)/python -m pytest -m bench tests/bench/bench_probe.py --timeout=3600

# 200 probes in a row: 10 pairs of two candidates with themselves, 5 peaks of five: 7 minutes.
bench-repeat: $(READY)
	AUTOTUNE_BENCH=1 $(BIN)/python -m pytest -m bench tests/bench/bench_repeat.py --timeout=3600

# 25 + 15 peaks, and the least cap found six times: 4 minutes.
bench-peaks: $(READY)
	AUTOTUNE_BENCH=1 $(BIN)/python -m pytest -m bench tests/bench/bench_peaks.py --timeout=3600

# .ci/compare ten times in a row on an unchanged tree: 7 minutes.
bench-compare: $(READY)
	AUTOTUNE_BENCH=1 $(BIN)/python -m pytest -m bench tests/bench/bench_compare.py --timeout=3600

bench-search: $(READY)
	AUTOTUNE_BENCH=1 $(BIN)/python -m pytest -m bench tests/bench/bench_landscape.py tests/bench/bench_search.py --timeout=3600

# Predicted times: 90 candidates of the demo on this CPU, and published measurements of GPUs.
bench-devices: $(READY)
	AUTOTUNE_BENCH=1 $(BIN)/python -m pytest -m bench tests/bench/bench_predict_time.py --timeout=3600

# The oldest versions pyproject.toml admits, in an environment of their own; needs a package index.
# torch stays as in constraints.txt: OLDEST_TORCH=2.x tries another.
OLDEST := .make/oldest
OLDEST_TESTS := tests/unit tests/formats tests/integration/test_guard.py \
	tests/integration/test_repeatability.py tests/integration/test_python_api.py

test-oldest:
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python tests/oldest.py $(if $(OLDEST_TORCH),--torch $(OLDEST_TORCH)) > .make/oldest.txt
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check -c .make/oldest.txt -e '.[test]'
	$(TEST_ENV) $(OLDEST)/bin/python -m pytest $(OLDEST_TESTS)

# 176 candidates measured and traced, 20 extended depths, published peaks: 20 to 25 minutes.
bench-predict: $(READY)
	AUTOTUNE_BENCH=1 $(BIN)/python -m pytest -m bench tests/bench/bench_predict.py tests/bench/bench_trace.py --timeout=3600

# On one NVIDIA GPU, ten minutes; without one a dry run on the CPU. No network once `make setup` is done.
gpu-check: $(READY)
	$(TEST_ENV) $(BIN)/python -m tests.gpu.check

bench-real: $(READY)
	AUTOTUNE_BENCH=1 $(BIN)/python -m pytest -m bench tests/bench/bench_real_data.py --timeout=3600

bench-dataset: $(READY)
	$(BIN)/python tests/bench/bench_dataset.py

clean:
	rm -rf $(VENV) .make build dist reports/out *.egg-info .mypy_cache .ruff_cache .pytest_cache
