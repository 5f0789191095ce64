# make demo   the leaderboard with two agents that need no model, from nothing
# make test   the tests, from nothing
# make check  linter and type checker

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Building ALFWorld's planner takes two to three minutes, the first time.
READY := $(VENV)/.ready

.PHONY: demo test check clean

demo: $(READY)
	$(BIN)/python -m leaderboard.run --agent random --agent expert --env scienceworld --episodes 20
	$(BIN)/python -m leaderboard.run --agent random --agent expert --env alfworld --episodes 20

test: $(READY)
	$(BIN)/python -m pytest -n 2

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# jericho and fast-downward-textworld call `python` while they are built, hence the PATH.
$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pip install -e '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
