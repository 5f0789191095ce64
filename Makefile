# make demo   the leaderboard with and without trained models, from nothing
# make test   the tests, from nothing
# make check  linter and type checker

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Building ALFWorld's planner takes two to three minutes, the first time.
READY := $(VENV)/.ready

.PHONY: demo test check clean

demo: $(READY)
	$(BIN)/python -m leaderboard.run --agent random --agent expert --env scienceworld --episodes 20 --out results/demo
	$(BIN)/python -m leaderboard.run --agent sft --agent grpo --agent gigpo --n 1 --episodes 20 --out results/demo
	$(BIN)/python -m leaderboard.run --agent random --agent expert --agent dpepo --episodes 20 --out results/demo
	$(BIN)/python -m leaderboard.report results/demo --out results/demo

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadgroup

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
