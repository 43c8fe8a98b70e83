# `make demo` shows the whole way from nothing to a tested project; `make test` runs kernelgen's own tests, but for the
# most of its corpora, which `make corpora` runs.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test corpora clean

demo: .venv/ready
	@$(BIN)/python tools/demo.py

test: .venv/ready
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check kernelgen tests benchmarks tools
	@# Hundreds of processes import it, and where PYTHONDONTWRITEBYTECODE is set each would compile it.
	@$(BIN)/python -m compileall -q -j 0 kernelgen
	@$(BIN)/python -m pytest -n auto --dist worksteal --durations=10 -m "not corpus"

# Every worker imports the tests that it is given, so it is given the files that have a corpus.
corpora: .venv/ready
	@$(BIN)/python -m pytest -n auto --dist worksteal --durations=10 -m corpus \
	    $$(grep -rlE --include='test_*.py' 'with_sample|mark\.corpus' tests)

# Everything that the two commands need, in an environment of its own.
.venv/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and \
	    f"kernelgen needs Python 3.10 or newer, and {sys.executable} is {sys.version.split()[0]}: make PYTHON=python3.12")'
	@$(PYTHON) -m venv .venv || { echo "Python has no venv module here: apt-get install python3-venv"; exit 1; }
	@echo "Installing torch and the tools into .venv (2 to 3 GB; a minute or more) ..."
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@$(BIN)/python -m pip install --no-compile --group test --editable .
	@# On all cores, which pip does not use. Without bytecode every process that imports torch takes twice as long. What
	@# cannot be compiled is some package's own template.
	@$(BIN)/python -m compileall -qq -j 0 -x '/tests?/' .venv/lib || true
	@touch $@

clean:
	rm -rf .venv build dist .pytest_cache .ruff_cache
