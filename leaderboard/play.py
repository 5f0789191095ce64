"""Playing: from tasks to results, many episodes at a time."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from agents import Agent, AgentError, View
from leaderboard.result import Result, Texts
from parallel_envs import DataError, DependencyError, ParallelTextEnv, Task

__all__ = ["play"]


@dataclass
class _Running:
    """An episode that is being played."""

    env: ParallelTextEnv
    task: Task
    started: float
    view: View
    start_text: str
    texts: list[tuple[str, ...]] = field(default_factory=list)
    env_seconds: float = 0.0
    agent_seconds: float = 0.0

    def step(self, action: tuple[str, ...]) -> Result | None:
        """Play one turn; return the result if it was the last."""
        begin = time.perf_counter()
        observation, _, terminated, truncated, info = self.env.step(action)
        self.env_seconds += time.perf_counter() - begin
        self.view.observation, self.view.info = observation, info
        shown = zip(observation["observations"], info["acted"], strict=True)
        self.texts.append(tuple(text if acted else "" for text, acted in shown))
        if not (terminated or truncated):
            return None
        seconds = {
            "total": time.perf_counter() - self.started,
            "env": self.env_seconds,
            "agent": self.agent_seconds,
        }
        return Result.of(
            info["record"],
            Texts(observation["task"], self.start_text, tuple(self.texts)),
            tuple(self.view.replies),
            {name: round(value, 3) for name, value in seconds.items()},
        )


def play(
    envs: Sequence[ParallelTextEnv], agent: Agent, tasks: Iterable[Task], seed: int
) -> Iterator[Result]:
    """Play every task once, one in each environment at a time, and yield results as they come.

    The agent chooses for all running episodes at once; a finished one makes room for the next task.
    What an episode comes to depends on the task and the seed, not on its neighbours. A failure of
    the engine or the agent is a result with an error, never a zero, and ends no other episode.

    Raises:
        DataError, DependencyError: Nothing can be played before the user has installed something.
    """
    waiting, free = iter(tasks), list(envs)
    running: list[_Running] = []
    while True:
        while free:
            task = next(waiting, None)
            if task is None:
                break
            try:
                running.append(_start(free[-1], task, seed))
                free.pop()
            except (DataError, DependencyError):
                raise
            except Exception as error:
                yield _failed(task, error)
        if not running:
            return
        begin = time.perf_counter()
        try:
            actions = agent.act([episode.view for episode in running])
        except (DataError, DependencyError):
            raise
        except Exception as error:
            actions = [AgentError(f"{type(error).__name__}: {error}")] * len(running)
        share = (time.perf_counter() - begin) / len(running)
        still: list[_Running] = []
        for episode, action in zip(running, actions, strict=True):
            episode.agent_seconds += share
            result: Result | None
            try:
                if isinstance(action, AgentError):
                    raise action
                result = episode.step(action)
            except Exception as error:
                result = _failed(episode.task, error)
            if result is None:
                still.append(episode)
            else:
                free.append(episode.env)
                yield result
        running = still


def _start(env: ParallelTextEnv, task: Task, seed: int) -> _Running:
    started = time.perf_counter()
    observation, info = env.reset(options={"task_id": task.id})
    view = View(observation, info, _episode_rng(seed, task), env.expert_plan)
    now = time.perf_counter()
    return _Running(
        env, task, started, view, observation["observations"][0], env_seconds=now - started
    )


def _failed(task: Task, error: Exception) -> Result:
    reason = str(error) if isinstance(error, AgentError) else f"{type(error).__name__}: {error}"
    return Result.failed(task.id, task.type, reason)


def _episode_rng(seed: int, task: Task) -> np.random.Generator:
    """Return random numbers that depend on nothing but the run's seed and the task."""
    digest = hashlib.sha256(task.id.encode()).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:8], "big")])
