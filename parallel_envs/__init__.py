"""Parallel exploration of text games: n replicas of one task as one Gymnasium environment.

Importing this package registers ``ParallelALFWorld-v0``, ``ParallelScienceWorld-v0`` and
``ParallelToy-v0``; neither engine is imported before an environment is made.
"""

from __future__ import annotations

from typing import Any

import gymnasium

from parallel_envs.env import Observation, ParallelTextEnv
from parallel_envs.errors import (
    ActionError,
    DataError,
    DependencyError,
    EngineError,
    ParallelEnvsError,
    ReplicaMismatchError,
    UnknownTaskError,
)
from parallel_envs.game import GameState, Task, TaskSet, TextGame
from parallel_envs.registration import register_all
from parallel_envs.spaces import Unicode

__version__ = "0.1.0"

__all__ = [
    "ActionError",
    "DataError",
    "DependencyError",
    "EngineError",
    "GameState",
    "Observation",
    "ParallelEnvsError",
    "ParallelTextEnv",
    "ReplicaMismatchError",
    "Task",
    "TaskSet",
    "TextGame",
    "Unicode",
    "UnknownTaskError",
    "fork",
]

register_all()


def fork(env: gymnasium.Env[Any, Any]) -> ParallelTextEnv:
    """Return a second environment in the same state; see `ParallelTextEnv.fork`.

    Args:
        env: A `ParallelTextEnv`, or one inside Gymnasium's wrappers, as `gymnasium.make` returns.

    Returns:
        The fork, without the wrappers.
    """
    inner = env.unwrapped
    if not isinstance(inner, ParallelTextEnv):
        raise TypeError(f"fork() takes a ParallelTextEnv, not {type(inner).__name__}")
    return inner.fork()
