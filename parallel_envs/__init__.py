"""Parallel exploration of text games: n replicas of one task as one Gymnasium environment.

Importing this package registers ``ParallelALFWorld-v0``, ``ParallelScienceWorld-v0`` and
``ParallelToy-v0``; neither engine is imported before an environment is made.
"""

from __future__ import annotations

from gymnasium.envs.registration import register

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
]

# Strings, not classes, so that `import parallel_envs` pulls in neither engine. The environment
# counts turns itself, hence no max_episode_steps here.
for _id, _entry_point in {
    "ParallelALFWorld-v0": "parallel_envs.alfworld.env:ParallelALFWorldEnv",
    "ParallelScienceWorld-v0": "parallel_envs.scienceworld.env:ParallelScienceWorldEnv",
    "ParallelToy-v0": "parallel_envs.toy:ParallelToyEnv",
}.items():
    register(_id, entry_point=_entry_point)
