"""The `Agent` protocol and the registry of agent names."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from parallel_envs import Observation

__all__ = ["Agent", "View", "agent_names", "make_agent"]


@dataclass
class View:
    """One running episode, as its agent may see it.

    Attributes:
        observation: What the replicas last showed.
        info: The environment's ``info`` of the last reset or step.
        rng: Random numbers of this episode alone: they depend on the run's seed and the task, not
            on which other episodes run beside it.
        expert_plan: The environment's `expert_plan`, for agents that are experts.
        memory: The agent's own notes on this episode.
    """

    observation: Observation
    info: dict[str, Any]
    rng: np.random.Generator
    expert_plan: Callable[[int, str | None], tuple[str, ...]]
    memory: dict[str, Any] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """Number of replicas."""
        return len(self.observation["observations"])


class Agent(Protocol):
    """Chooses joint actions for a batch of episodes, so that a model can serve all at once."""

    def act(self, views: Sequence[View]) -> list[tuple[str, ...]]:
        """Return a joint action for each episode: n strings, ``""`` leaves a replica alone."""
        ...


# Where each agent is made, imported when it is asked for.
_AGENTS = {
    "random": "agents.random:RandomAgent",
    "expert": "agents.expert:ExpertAgent",
    "handcoded": "agents.expert:handcoded",
}


def agent_names() -> tuple[str, ...]:
    """Return the names that `make_agent` knows."""
    return tuple(_AGENTS)


def make_agent(name: str) -> Agent:
    """Return a new agent.

    Raises:
        ValueError: There is no agent of that name.

    Example:
        >>> make_agent("random")
        RandomAgent()
    """
    if name not in _AGENTS:
        near = difflib.get_close_matches(name, _AGENTS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ValueError(f"no agent is called {name!r}{hint} There are: {', '.join(_AGENTS)}.")
    module, _, maker = _AGENTS[name].partition(":")
    agent: Agent = getattr(importlib.import_module(module), maker)()
    return agent
