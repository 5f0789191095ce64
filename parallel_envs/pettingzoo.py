"""The same environment as a PettingZoo `ParallelEnv` whose agents are the replicas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import gymnasium
import numpy as np
from pettingzoo import ParallelEnv

from parallel_envs.env import ParallelTextEnv
from parallel_envs.registration import constructor

__all__ = [
    "ReplicaAgents",
    "alfworld",
    "scienceworld",
    "toy",
]

# Entries of the environment's info that are about the whole episode.
_OF_THE_EPISODE = frozenset(
    "task_id task_type split turn steps state_coverage checkpoint_coverage record diversity".split()
)


class ReplicaAgents(ParallelEnv[str, dict[str, str], str]):  # type: ignore[misc]
    """Agents ``replica_0`` … ``replica_{n-1}`` play one task, each in a replica of its own.

    An agent observes the task and what its replica last showed, and is paid for the rise of its
    own replica's best score. It is terminated when its replica has ended or the stop rule of the
    environment is met, and truncated at the turn limit. Its info has the entries of
    `ParallelTextEnv`, those that hold one value for each replica reduced to its own.

    Args:
        env: The environment to show in this way.

    Example:
        >>> import parallel_envs
        >>> from pettingzoo import make
        >>> env = make("parallel", "ParallelToy-v0", n=2)
        >>> observations, infos = env.reset(seed=0)
        >>> env.agents
        ['replica_0', 'replica_1']
        >>> infos["replica_1"]["admissible_actions"]
        ('go east', 'go west', 'look', 'ring bell')
    """

    def __init__(self, env: ParallelTextEnv) -> None:
        self.env = env
        self.render_mode = env.render_mode
        self.metadata = {
            "name": f"parallel_{env.task_set.engine}_v0",
            "render_modes": env.metadata["render_modes"],
            "is_parallelizable": True,
        }
        self.possible_agents = [f"replica_{i}" for i in range(env.n)]
        self.agents: list[str] = []
        actions = cast("gymnasium.spaces.Tuple[Any]", env.action_space)
        seen = cast("gymnasium.spaces.Dict[Any]", env.observation_space)
        texts = cast("gymnasium.spaces.Tuple[Any]", seen["observations"])
        self._action_spaces: dict[str, gymnasium.Space[Any]] = dict(
            zip(self.possible_agents, actions.spaces, strict=True)
        )
        self._observation_spaces: dict[str, gymnasium.Space[Any]] = {
            agent: gymnasium.spaces.Dict({"task": seen["task"], "observation": text})
            for agent, text in zip(self.possible_agents, texts.spaces, strict=True)
        }

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        """Return the space of an agent's observations: its task and its text."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        """Return the space of an agent's actions: any text."""
        return self._action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, Any]]]:
        """Start an episode; arguments as for `ParallelTextEnv.reset`."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        self._best = np.zeros(self.env.n)
        return self._observations(observation), self._infos(info)

    def step(
        self, actions: dict[str, str]
    ) -> tuple[
        dict[str, dict[str, str]],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """Play one turn; an agent that is left out does nothing.

        Raises:
            ValueError: An action is for an agent that has ended or that there never was.
        """
        strangers = [agent for agent in actions if agent not in self.agents]
        if strangers:
            raise ValueError(
                f"actions for {', '.join(map(repr, strangers))}, but the agents are now "
                f"{', '.join(self.agents) or 'none: call reset()'}"
            )
        joint = tuple(actions.get(agent, "") for agent in self.possible_agents)
        observation, _, terminated, truncated, info = self.env.step(joint)
        best = np.maximum(self._best, info["score"])
        rewards = dict(zip(self.possible_agents, (best - self._best).tolist(), strict=True))
        self._best = best
        ended = dict(zip(self.possible_agents, info["closed"].tolist(), strict=True))
        live = self.agents
        self.agents = [agent for agent in live if not (ended[agent] or terminated or truncated)]
        observations, infos = self._observations(observation), self._infos(info)
        return (
            {agent: observations[agent] for agent in live},
            {agent: rewards[agent] for agent in live},
            {agent: ended[agent] or terminated for agent in live},
            {agent: truncated and not ended[agent] for agent in live},
            {agent: infos[agent] for agent in live},
        )

    def render(self) -> str | None:
        """Return all replicas side by side."""
        return self.env.render()

    def close(self) -> None:
        """Free the environment."""
        self.agents = []
        self.env.close()

    def _observations(self, observation: Any) -> dict[str, dict[str, str]]:
        return {
            agent: {"task": observation["task"], "observation": text}
            for agent, text in zip(self.possible_agents, observation["observations"], strict=True)
        }

    def _infos(self, info: dict[str, Any]) -> dict[str, dict[str, Any]]:
        return {
            agent: {
                key: value if key in _OF_THE_EPISODE else value[replica]
                for key, value in info.items()
            }
            for replica, agent in enumerate(self.possible_agents)
        }


def _maker(name: str) -> Callable[..., ReplicaAgents]:
    def make(**arguments: Any) -> ReplicaAgents:
        return ReplicaAgents(constructor(name)(**arguments))

    return make


# What pettingzoo.make calls; each takes the arguments of its environment.
alfworld = _maker("alfworld")
scienceworld = _maker("scienceworld")
toy = _maker("toy")
