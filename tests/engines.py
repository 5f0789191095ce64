"""The engines under test, by name, and small tasks of each."""

from __future__ import annotations

from typing import Any

import gymnasium

import parallel_envs  # noqa: F401 - registers the environments
from parallel_envs import ParallelTextEnv

# Gymnasium id and arguments of a split that is quick to play.
ENGINES: dict[str, tuple[str, dict[str, Any]]] = {
    "toy": ("ParallelToy-v0", {}),
    "alfworld": ("ParallelALFWorld-v0", {"split": "valid_unseen"}),
    "scienceworld": (
        "ParallelScienceWorld-v0",
        {"split": "L1", "tasks": ["find-animal", "find-plant", "power-component"]},
    ),
}

# One small real game of each.
SMALL = {
    "toy": "coin-attic/trap-cellar",
    "alfworld": "valid_unseen/pick_and_place_simple-SoapBottle-None-Toilet-424/"
    "trial_T20190907_004321_405868",
    "scienceworld": "power-component/15",
}


def make(engine: str, **arguments: Any) -> ParallelTextEnv:
    """Make an environment without Gymnasium's wrappers."""
    name, defaults = ENGINES[engine]
    made = gymnasium.make(name, **{**defaults, **arguments}, disable_env_checker=True).unwrapped
    assert isinstance(made, ParallelTextEnv)
    return made
