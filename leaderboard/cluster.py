"""`ClusterPlayer`: a run's episodes, played by the workers of a Ray cluster."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from dpepo.scale.cluster import ClusterError, same_everywhere
from dpepo.scale.pool import Pool
from leaderboard.play import play
from leaderboard.player import Player, Setup
from leaderboard.protocol import Protocol, differences
from leaderboard.result import Result
from parallel_envs import Task

__all__ = ["ClusterPlayer", "Evaluator"]


class ClusterPlayer:
    """What `Player` is, on a cluster: each worker is a `Player` with environments of its own.

    What an episode comes to depends on the task and the seed alone, so the results are those of one
    process. An episode whose worker is lost is played again by another; each is returned once.

    Args:
        setup: What each worker needs to play. Its model is opened where the workers are.
        address: Of the cluster; see `dpepo.scale.cluster.connect`.
        workers: How many; None takes one for each CPU, or with a model of its own for each GPU.

    Raises:
        ClusterError: There is no cluster.
        ParallelEnvsError, ModelError, ValueError: The setup cannot be played.
    """

    def __init__(self, setup: Setup, address: str, workers: int | None = None) -> None:
        self.env = setup.make_env()
        local = False
        if setup.options is not None and isinstance(setup.options.model, str):
            model = same_everywhere(setup.options.model)
            local = not model.startswith(("http://", "https://"))
            setup = replace(setup, options=replace(setup.options, model=model))
        self._pool = Pool(address, partial(Evaluator, setup), workers, on_gpu=local)
        try:
            self.settings, self.batch = self._pool.ask("describe")
        except BaseException:
            self.close()
            raise

    def play(self, protocol: Protocol, tasks: Sequence[Task]) -> Iterator[Result]:
        """Play tasks with the agent of a protocol, and yield results as they come.

        Raises:
            ClusterError: Workers play by other rules than the protocol's, or all are lost.
            DataError, DependencyError: A worker's machine lacks what the user has to install.
        """
        at_once = max(1, min(self.batch, math.ceil(len(tasks) / self._pool.size)))
        items = {task.id: task for task in tasks}
        for _, result in self._pool.run((protocol, at_once), items, at_once):
            yield result

    def close(self) -> None:
        """Leave the cluster. Closing twice is fine."""
        self._pool.close()
        self.env.close()


class Evaluator:
    """A worker of `ClusterPlayer`, which plays on as long as it is given tasks."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._made: Player | None = None
        self._tasks: deque[Task] = deque()
        self._results: Iterator[Result] = iter(())

    def describe(self) -> tuple[Mapping[str, Mapping[str, Any]], int]:
        """Return the agents' settings, and how many episodes are played beside one another."""
        return self._player.settings, self._player.batch

    def begin(self, order: tuple[Protocol, int]) -> None:
        """Get ready to play under a protocol, so many episodes at once.

        Raises:
            ClusterError: Software, data or weights on this machine are not the protocol's.
        """
        protocol, at_once = order
        player, wanted = self._player, set(protocol.task_ids)
        tasks = [task for task in player.env.task_set.tasks if task.id in wanted]
        settings = player.settings[protocol.agent]
        mine = Protocol.of(protocol.agent, protocol.env, player.env, protocol.seed, tasks, settings)
        changed = differences(mine, protocol)
        if changed:
            raise ClusterError(
                f"a worker's machine is not like the others ({'; '.join(changed)}); "
                "install the same versions, data and models on all of them"
            )
        self._tasks.clear()
        self._results = self._play(protocol, at_once)

    def work(self, new: Mapping[str, Task]) -> Mapping[str, Result]:
        """Take these tasks as well, and return the next result."""
        self._tasks.extend(new.values())
        result = next(self._results)
        return {result.task_id: result}

    @property
    def _player(self) -> Player:
        # Made when it is asked for, so that what fails is an answer.
        if self._made is None:
            self._made = Player(self._setup)
        return self._made

    def _play(self, protocol: Protocol, at_once: int) -> Iterator[Result]:
        envs, agent = self._player.room(at_once), self._player.agents[protocol.agent]
        while True:  # who asks for a result has given a task
            yield from play(envs, agent, self._given(), protocol.seed)

    def _given(self) -> Iterator[Task | None]:
        while True:
            yield self._tasks.popleft() if self._tasks else None
