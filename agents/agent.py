"""The `Agent` protocol and the registry of agent names."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from parallel_envs import Observation

__all__ = ["Agent", "AgentError", "ModelReply", "View", "agent_names", "make_agent"]


class AgentError(Exception):
    """An agent could not choose in one episode, for example because its model did not answer."""


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a language model said in one turn, as it is kept with the results.

    Attributes:
        text: The reply, word for word.
        issues: What was wrong with its form, as `agents.reply` names it; empty when nothing was.
        tokens_in: Tokens of the prompt.
        tokens_out: Tokens of the reply.
        tokens_cached: Tokens of the prompt that were not computed again, None when not known.
        finish_reason: Why the model stopped, as its back end says (``"stop"``, ``"length"``).
        dropped: Pairs of action and observation that the prompt had no room for.
    """

    text: str
    issues: tuple[str, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int | None = None
    finish_reason: str = "stop"
    dropped: int = 0


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
        replies: What the agent's model said, turn by turn; agents without a model leave it empty.
    """

    observation: Observation
    info: dict[str, Any]
    rng: np.random.Generator
    expert_plan: Callable[[int, str | None], tuple[str, ...]]
    memory: dict[str, Any] = field(default_factory=dict)
    replies: list[ModelReply] = field(default_factory=list)

    @property
    def n(self) -> int:
        """Number of replicas."""
        return len(self.observation["observations"])


class Agent(Protocol):
    """Chooses joint actions for a batch of episodes, so that a model can serve all at once."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What else decides the agent's play (model, decoding, prompt), for the protocol."""
        ...

    def act(self, views: Sequence[View]) -> list[tuple[str, ...] | AgentError]:
        """Return a joint action for each episode: n strings, ``""`` leaves a replica alone.

        An `AgentError` in the place of an action makes that episode an error; the others go on.
        """
        ...


# Where each agent is made, imported when it is asked for.
_AGENTS = {
    "random": "agents.random:RandomAgent",
    "expert": "agents.expert:ExpertAgent",
    "handcoded": "agents.expert:handcoded",
    "loophole": "agents.loophole:LoopholeAgent",
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
