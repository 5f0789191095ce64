"""Playing one episode: from a task to a `Result`."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import numpy as np

from agents import Agent, View
from leaderboard.store import Result
from parallel_envs import DataError, DependencyError, ParallelTextEnv, Task

__all__ = ["play"]


def play(env: ParallelTextEnv, agent: Agent, task: Task, seed: int) -> Result:
    """Play one task. A failure of the engine or the agent is a result with an error, not a zero.

    Raises:
        DataError, DependencyError: Nothing can be played before the user has installed something.
    """
    start = time.perf_counter()
    actions: list[tuple[str, ...]] = []
    steps = inadmissible = 0
    outcome: dict[str, Any]
    try:
        observation, info = env.reset(options={"task_id": task.id})
        view = View(observation, info, _episode_rng(seed, task), env.expert_plan)
        best = 0.0
        terminated = truncated = False
        while not (terminated or truncated):
            (action,) = agent.act([view])
            observation, reward, terminated, truncated, info = env.step(action)
            view.observation, view.info = observation, info
            actions.append(tuple(action))
            best += reward
            steps = info["steps"]
            inadmissible += int((info["acted"] & ~info["admissible"]).sum())
        won = bool(info["won"].any())
        outcome = {
            "won": won,
            "score": best,
            "raw_score": float(info["raw_score"].max()),
            "ended": "won" if won else "lost" if terminated else "turn_limit",
        }
    except (DataError, DependencyError):
        raise
    except Exception as error:
        outcome = {
            **dict.fromkeys(("won", "score", "raw_score", "ended")),
            "error": f"{type(error).__name__}: {error}",
        }
    return Result(
        task_id=task.id,
        task_type=task.type,
        turns=len(actions),
        steps=steps,
        inadmissible=inadmissible,
        seconds=round(time.perf_counter() - start, 3),
        actions=tuple(actions),
        **outcome,
    )


def _episode_rng(seed: int, task: Task) -> np.random.Generator:
    """Return random numbers that depend on nothing but the run's seed and the task."""
    digest = hashlib.sha256(task.id.encode()).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:8], "big")])
