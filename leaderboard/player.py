"""`Player`: the environments and the agents of a run, in one process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents import Agent, ModelOptions, make_agent
from leaderboard.play import play
from leaderboard.protocol import Protocol, make_env
from leaderboard.result import Result
from parallel_envs import ParallelTextEnv, Task

__all__ = ["Player", "Setup"]


@dataclass(frozen=True)
class Setup:
    """What a run needs to play.

    Attributes:
        env: Short name of the environment.
        split: Split of the tasks, None for that of evaluations.
        n: Number of replicas.
        max_turns: Turn limit of an episode.
        agents: Names of the agents.
        options: Model, decoding and prompt of agents with a model.
        batch: Episodes that are played beside one another; None is 16 with a model, else 1.
    """

    env: str
    split: str | None
    n: int
    max_turns: int
    agents: tuple[str, ...]
    options: ModelOptions | None = None
    batch: int | None = None

    def make_env(self) -> ParallelTextEnv:
        """Return a new environment."""
        return make_env(self.env, self.split, self.n, self.max_turns)


class Player:
    """Plays in this process.

    Attributes:
        env: The first environment, whose tasks are the split's.
        agents: The agents by name.
        batch: Episodes that are played beside one another.

    Raises:
        ParallelEnvsError, ModelError, ValueError: The setup cannot be played.
    """

    def __init__(self, setup: Setup) -> None:
        self.env = setup.make_env()
        self.agents = {name: _agent(name, setup.options, self.env) for name in setup.agents}
        asks = any(agent.overlaps for agent in self.agents.values())
        self.batch = setup.batch or (16 if asks else 1)
        self._envs = [self.env]

    @property
    def settings(self) -> Mapping[str, Mapping[str, Any]]:
        """The settings of each agent."""
        return {name: agent.settings for name, agent in self.agents.items()}

    def room(self, number: int) -> Sequence[ParallelTextEnv]:
        """Return as many environments of one task set."""
        while len(self._envs) < number:
            self._envs.append(self.env.sibling())
        return self._envs[:number]

    def play(self, protocol: Protocol, tasks: Sequence[Task]) -> Iterator[Result]:
        """Play tasks with the agent of a protocol; see `leaderboard.play.play`."""
        envs = self.room(min(self.batch, len(tasks)))
        return play(envs, self.agents[protocol.agent], tasks, protocol.seed)

    def close(self) -> None:
        """Free environments and agents. Closing twice is fine."""
        for agent in self.agents.values():
            agent.close()
        for env in self._envs:
            env.close()


def _agent(name: str, options: ModelOptions | None, env: ParallelTextEnv) -> Agent:
    agent = make_agent(name, options, env.n)
    wanted = getattr(agent, "expert", None)
    if wanted is not None and wanted not in env.task_set.experts:
        raise ValueError(f"agent {name!r} needs the expert {wanted!r}, which this engine lacks")
    return agent
