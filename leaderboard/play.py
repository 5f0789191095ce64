"""Playing: from tasks to results, many episodes at a time."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from agents import Agent, AgentError, View
from leaderboard.result import Result, Texts
from parallel_envs import DataError, DependencyError, ParallelTextEnv, Task

__all__ = ["play"]


_Thought = tuple[list[tuple[str, ...] | AgentError], float]  # and seconds for each episode


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
    envs: Sequence[ParallelTextEnv], agent: Agent, tasks: Iterable[Task | None], seed: int
) -> Iterator[Result]:
    """Play every task once, one in each environment at a time, and yield results as they come.

    The agent chooses for many episodes at once; a finished one makes room for the next task. While
    an agent that `overlaps` thinks about one half of the episodes, the other half is stepped. What
    an episode comes to depends on the task and the seed, not on its neighbours. A failure of the
    engine or the agent is a result with an error, never a zero, and ends no other episode.

    Args:
        envs: Environments of one task set.
        agent: Who plays.
        tasks: What to play; None among them says that there is nothing to start for the moment.
        seed: Seed of the run.

    Raises:
        DataError, DependencyError: Nothing can be played before the user has installed something.
    """
    waiting = iter(tasks)
    halves = 2 if agent.overlaps and len(envs) > 1 else 1
    free = [list(envs[half::halves]) for half in range(halves)]
    running: list[list[_Running]] = [[] for _ in range(halves)]
    thought: list[Future[_Thought] | None] = [None] * halves
    with ThreadPoolExecutor(1) as thread:
        while True:
            for half in range(halves):
                future = thought[half]
                if future is not None:
                    running[half], results = _step(running[half], future.result(), free[half])
                    yield from results
                while free[half] and (task := next(waiting, None)):
                    started = _start(free[half][-1], task, seed)
                    if isinstance(started, Result):
                        yield started
                    else:
                        free[half].pop()
                        running[half].append(started)
                thought[half] = None
                if running[half]:
                    views = [episode.view for episode in running[half]]
                    if halves == 1:  # in this thread, for engines and Ctrl-C
                        thought[half] = future = Future()
                        future.set_result(_think(agent, views))
                    else:
                        thought[half] = thread.submit(_think, agent, views)
            if not any(running):
                return


def _think(agent: Agent, views: Sequence[View]) -> _Thought:
    """Let the agent choose; return what it chose and each episode's share of the time."""
    begin = time.perf_counter()
    try:
        actions = agent.act(views)
    except (DataError, DependencyError):
        raise
    except Exception as error:
        actions = [AgentError(f"{type(error).__name__}: {error}")] * len(views)
    return actions, (time.perf_counter() - begin) / len(views)


def _step(
    running: Sequence[_Running], thought: _Thought, free: list[ParallelTextEnv]
) -> tuple[list[_Running], list[Result]]:
    """Play one turn of each episode; return those that go on and the results of the others."""
    actions, share = thought
    still, results = [], []
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
            results.append(result)
    return still, results


def _start(env: ParallelTextEnv, task: Task, seed: int) -> _Running | Result:
    started = time.perf_counter()
    try:
        observation, info = env.reset(options={"task_id": task.id})
    except (DataError, DependencyError):
        raise
    except Exception as error:
        return _failed(task, error)
    view = View(observation, info, _episode_rng(seed, task), env.expert_plan, env.max_turns)
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
