# Everything a fresh machine needs is Python >= 3.11 and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: sweep test check docs wheel readme clean
.DELETE_ON_ERROR:

$(VENV)/.created:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "simspec needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints/test.txt -e .
	touch $@

$(VENV)/.dev: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints/test.txt -e '.[dev]'
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints/test.txt -e '.[companion]' transformers || \
		echo "no torch to be had: the companion's tests will skip and say so"
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints/test.txt -e '.[docs]'
	touch $@

sweep: $(VENV)/.installed  ## the main job: sweep tau and K, write the dashboard
	$(BIN)/simspec sweep experiments/tau_vs_K.yaml

test: $(VENV)/.dev  ## all tests
	$(BIN)/python -m pytest -q -n auto

check: $(VENV)/.dev  ## lint, format, types, floors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy simspec
	$(BIN)/lint-imports

docs: $(VENV)/.docs  ## documentation, warnings are errors
	$(BIN)/mkdocs build --strict --quiet

wheel: $(VENV)/.dev  ## build wheel and sdist into dist/
	$(BIN)/pip install --quiet --disable-pip-version-check build
	$(BIN)/python -m build --outdir dist .

readme: $(VENV)/.dev  ## run every command the README shows
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/readme_commands.py README.md

clean:
	rm -rf $(VENV) dist build site .mypy_cache .ruff_cache .pytest_cache .hypothesis
