"""The `Agent` protocol and the registry of agent names."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from agents.chat.model import ChatModel, Decoding, open_model
from agents.registry import look_up
from parallel_envs import Observation

__all__ = ["Agent", "AgentError", "ModelOptions", "ModelReply", "View", "agent_names", "make_agent"]


class AgentError(Exception):
    """An agent could not choose in one episode, for example because its model did not answer."""


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a language model said in one turn, as it is kept with the results.

    Attributes:
        texts: The reply, word for word; one for each replica where each was asked on its own, with
            ``""`` for those that had ended.
        issues: What was wrong with its form, as `agents.reply` names it; empty when nothing was.
        tokens_in: Tokens of the prompt.
        tokens_out: Tokens of the reply.
        tokens_cached: Tokens of the prompt that were not computed again, None when not known.
        truncated: The model was cut off at its limit of tokens.
        dropped: Pairs of action and observation that the prompt had no room for.
    """

    texts: tuple[str, ...]
    issues: tuple[str, ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int | None = None
    truncated: bool = False
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
        max_turns: The turn limit of the episode.
        memory: The agent's own notes on this episode.
        replies: What the agent's model said, turn by turn; agents without a model leave it empty.
    """

    observation: Observation
    info: dict[str, Any]
    rng: np.random.Generator
    expert_plan: Callable[[int, str | None], tuple[str, ...]]
    max_turns: int
    memory: dict[str, Any] = field(default_factory=dict)
    replies: list[ModelReply] = field(default_factory=list)

    @property
    def n(self) -> int:
        """Number of replicas."""
        return len(self.observation["observations"])


class Agent(Protocol):
    """Chooses joint actions for a batch of episodes, so that a model can serve all at once.

    Subclass it for what most agents have in common: no settings, nothing to free.
    """

    @property
    def settings(self) -> Mapping[str, Any]:
        """What else decides the agent's play (model, decoding, prompt), for the protocol."""
        return {}

    @property
    def overlaps(self) -> bool:
        """Whether `act` may run in a thread of its own, while engines step other episodes."""
        return False

    def act(self, views: Sequence[View]) -> list[tuple[str, ...] | AgentError]:
        """Return a joint action for each episode: n strings, ``""`` leaves a replica alone.

        An `AgentError` in the place of an action makes that episode an error; the others go on.
        """
        ...

    def close(self) -> None:
        """Free what the agent holds. Closing twice is fine."""
        return


@dataclass(frozen=True)
class ModelOptions:
    """What an agent with a model needs to know.

    Attributes:
        model: What `agents.chat.open_model` opens, or a model that is open already.
        style: Name of the prompt style; None takes the agent's own.
        decoding: How replies are drawn.
        budget: Greatest number of tokens of a prompt, None for what the model can read.
        back_end: Options of the model's back end, such as ``{"dtype": "bfloat16"}``.
    """

    model: str | ChatModel
    style: str | None = None
    decoding: Decoding = field(default_factory=Decoding)
    budget: int | None = None
    back_end: Mapping[str, Any] = field(default_factory=dict)

    def open(self) -> ChatModel:
        """Return the model."""
        if isinstance(self.model, str):
            return open_model(self.model, **self.back_end)
        return self.model


# Where each agent is made, imported when it is asked for.
_AGENTS = {
    "random": "agents.random:RandomAgent",
    "expert": "agents.expert:ExpertAgent",
    "handcoded": "agents.expert:handcoded",
    "searcher": "agents.searcher:SearcherAgent",
    "loophole": "agents.loophole:LoopholeAgent",
}
_AGENTS_WITH_MODEL = {
    "react": "agents.chat_agent:react",
    "parallel": "agents.chat_agent:parallel",
    "best-of": "agents.chat_agent:best_of",
}
# With a model of their own, unless they are given another.
_TRAINED_AGENTS = {name: f"agents.trained:{name}" for name in ("sft", "grpo", "gigpo", "dpepo")}
_SEQUENTIAL = {"react"}


def agent_names() -> tuple[str, ...]:
    """Return the names that `make_agent` knows."""
    return (*_AGENTS, *_AGENTS_WITH_MODEL, *_TRAINED_AGENTS)


def make_agent(name: str, options: ModelOptions | None = None, n: int = 1) -> Agent:
    """Return a new agent.

    Args:
        name: One of `agent_names`.
        options: Model, decoding and prompt, for the agents that need a model. Trained agents have
            their own, and play with another if it is given.
        n: Number of replicas that it is to play.

    Raises:
        ValueError: There is no agent of that name, it needs a model, or it plays one replica only.
        ModelError: The model cannot be opened.

    Example:
        >>> make_agent("random")
        RandomAgent()
    """
    makers = {**_AGENTS, **_AGENTS_WITH_MODEL, **_TRAINED_AGENTS}
    module, _, attribute = look_up(name, makers, "agent").partition(":")
    if name in _SEQUENTIAL and n != 1:
        raise ValueError(
            f"agent {name!r} plays one replica, not {n}: give --n 1, or use best-of for attempts "
            "beside one another"
        )
    maker = getattr(importlib.import_module(module), attribute)
    if name in _AGENTS:
        agent: Agent = maker()
    elif options is None and name in _AGENTS_WITH_MODEL:
        raise ValueError(f"agent {name!r} needs a model, for example --model smollm2")
    else:
        agent = maker(options)
    return agent
