# Two commands to know: `make run` and `make test`. Everything lands in .venv and node_modules, nothing elsewhere
# (but a browser for the tests, which the system's package manager installs when it may).

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Most tests wait for real processes, so a few at once halve the time; a file stays whole, for its fixtures' sake.
PYTEST_PROCESSES ?= 4
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: run test check format bench soak docs parts clean requirements audit

run: $(VENV)/.demo          ## start the demo: server, platform stand-in, real workers
	$(BIN)/stallscope demo

test: $(VENV)/.test parts   ## fetch what the tests need, then run them
	$(BIN)/python -m pytest -n $(PYTEST_PROCESSES) --dist loadfile $(PYTEST_ARGS)

check: $(VENV)/.test        ## formatting, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.test       ## write the formatting that `check` wants
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

soak: $(VENV)/.bench parts  ## kills, absent stores, overload and hours of load in small: nothing lost (about 80 minutes)
	SOAK_KILLS=1000 $(BIN)/python -m pytest tests/recorder/test_death_matrix.py -k "random or shipped" $(PYTEST_ARGS)
	SOAK_ROUNDS=50 SOAK_AWAY_SECONDS=60 $(BIN)/python -m pytest tests/collector/test_loss.py $(PYTEST_ARGS)
	$(BIN)/python benchmarks/ingest_soak.py
	for part in detection healthy month; do $(BIN)/python benchmarks/watch.py $$part || exit 1; done

bench: $(VENV)/.bench parts ## what exporter and collector cost, side by side with others: see docs/benchmarks.md
	$(BIN)/python benchmarks/exporter.py
	$(BIN)/python benchmarks/ingest.py

docs: $(VENV)/.test         ## write the pages that are made from code
	$(BIN)/python -m collector.diagnosis.verdicts_page > docs/verdicts.md
	$(BIN)/python helm/generate.py

requirements: $(VENV)/.test ## write down the versions that the server's image installs: those that the tests ran with
	$(BIN)/python docker/dependencies.py requirements > docker/requirements.new
	mv docker/requirements.new docker/requirements.txt

audit: $(VENV)/.audit       ## licences, known weaknesses, and a bill of materials (var/sbom.json) of the server's image
	sh docker/audit.sh $(BIN)

parts: $(VENV)/.test        ## the real ClickHouse server library and a browser; says what it could not have
	sh tests/fetch_parts.sh

clean:
	rm -rf $(VENV) node_modules .parts .mypy_cache .ruff_cache .pytest_cache

$(BIN)/python:
	sh tests/make_venv.sh $(PYTHON) $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml sdk_exporter/pyproject.toml
	$(BIN)/python -m pip install -q -e ./sdk_exporter -e '.[embedded,demo]'
	touch $@

$(VENV)/.test: $(BIN)/python pyproject.toml sdk_exporter/pyproject.toml
	$(BIN)/python -m pip install -q -e './sdk_exporter[auto]' -e '.[test]'
	touch $@ $(VENV)/.demo

$(VENV)/.audit: $(VENV)/.test
	$(BIN)/python -m pip install -q -e '.[audit]'
	touch $@

$(VENV)/.bench: $(VENV)/.test
	$(BIN)/python -m pip install -q -e '.[bench]'
	touch $@
