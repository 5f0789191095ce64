"""Where each environment is registered: Gymnasium (single and vector) and PettingZoo."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import gymnasium
import pettingzoo
from gymnasium.envs.registration import load_env_creator

from parallel_envs.env import ParallelTextEnv

__all__ = ["ENTRY_POINTS", "constructor", "register_all"]

# Short name -> (id, class). Strings, so that importing the package pulls in neither engine.
ENTRY_POINTS = {
    "alfworld": ("ParallelALFWorld-v0", "parallel_envs.alfworld.env:ParallelALFWorldEnv"),
    "scienceworld": (
        "ParallelScienceWorld-v0",
        "parallel_envs.scienceworld.env:ParallelScienceWorldEnv",
    ),
    "toy": ("ParallelToy-v0", "parallel_envs.toy:ParallelToyEnv"),
}


def constructor(name: str) -> Callable[..., ParallelTextEnv]:
    """Import and return the class of an environment.

    Raises:
        ValueError: No environment has this short name.

    Example:
        >>> constructor("toy")(n=2).n
        2
    """
    if name not in ENTRY_POINTS:
        raise ValueError(f"--env must be one of {', '.join(ENTRY_POINTS)}, not {name!r}")
    return cast("Callable[..., ParallelTextEnv]", load_env_creator(ENTRY_POINTS[name][1]))


def register_all() -> None:
    """Register every environment under its id in all three registries."""
    for name, (env_id, entry_point) in ENTRY_POINTS.items():
        # The environment counts turns itself, hence no max_episode_steps.
        gymnasium.register(
            env_id, entry_point=entry_point, vector_entry_point=f"parallel_envs.vector:{name}"
        )
        pettingzoo.register("parallel", env_id, entry_point=f"parallel_envs.pettingzoo:{name}")
