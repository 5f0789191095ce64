"""Collecting what a policy does: the agents and environments of the leaderboard, in tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agents import View
from agents.chat.hf import TransformersModel
from agents.chat.model import Decoding, Generation, Message, ModelError, Request
from agents.chat_agent import ChatAgent
from dpepo.weights import WeightConfig, episode_weights
from parallel_envs import ParallelTextEnv, Task
from parallel_envs.episode import Episode

__all__ = ["Played", "TurnSample", "attempt", "rollout"]


@dataclass(frozen=True)
class TurnSample:
    """One turn of a trajectory, as the policy took it.

    Attributes:
        prompt: Tokens of the prompt.
        reply: Tokens of the reply, its end included.
        allowed: For each token of the reply the tokens that could have come, None where any could.
        reward: What the turn paid.
        weight: W of the turn.
        anchor: The states that it started from.
    """

    prompt: tuple[int, ...]
    reply: tuple[int, ...]
    allowed: tuple[tuple[int, ...] | None, ...]
    reward: float
    weight: float
    anchor: str


@dataclass(frozen=True)
class Played:
    """One trajectory: its task, its turns, and its record."""

    task_id: str
    turns: tuple[TurnSample, ...]
    episode: Episode


@dataclass
class _Recorder:
    """A chat model that remembers what it was last asked and what it said."""

    model: TransformersModel
    last: list[tuple[Request, Generation]] = field(default_factory=list)

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.model.settings

    @property
    def context(self) -> int | None:
        return self.model.context

    def generate(
        self, requests: Sequence[Request], decoding: Decoding
    ) -> list[Generation | ModelError]:
        replies = self.model.generate(requests, decoding)
        for reply in replies:
            if isinstance(reply, ModelError):
                raise reply
        said = [reply for reply in replies if isinstance(reply, Generation)]
        self.last = list(zip(requests, said, strict=True))
        return replies

    def count(self, messages: Sequence[Message]) -> int:
        return self.model.count(messages)

    def close(self) -> None:
        self.model.close()


def rollout(
    envs: Sequence[ParallelTextEnv],
    agent: ChatAgent,
    tasks: Sequence[Task],
    rng: np.random.Generator,
    weights: WeightConfig,
) -> list[Played]:
    """Play each of the tasks once, one in each environment at a time, and return what was done.

    Args:
        envs: Environments of one task set.
        agent: A chat agent of a `TransformersModel`, one reply a turn.
        tasks: What to play; a task that occurs several times is a group.
        rng: Seeds each trajectory.
        weights: Of the step weight.

    Returns:
        A trajectory for each task, in the order of `tasks`. A failing engine raises: unlike an
        evaluation, training has nothing to say about an episode that it cannot finish.
    """
    return attempt(envs, agent, tasks, rng.integers(1 << 62, size=len(tasks)).tolist(), weights)


def attempt(
    envs: Sequence[ParallelTextEnv],
    agent: ChatAgent,
    tasks: Sequence[Task],
    seeds: Sequence[int],
    weights: WeightConfig,
) -> list[Played]:
    """Do as `rollout` does, with the seed of each trajectory given."""
    recorder = _Recorder(agent.model)  # type: ignore[arg-type]
    player = ChatAgent(recorder, agent.style, agent.decoding, agent.budget)
    waiting = iter(range(len(tasks)))
    free = list(envs)
    running: list[tuple[int, ParallelTextEnv, View, list[Any]]] = []
    found: dict[int, Played] = {}
    while True:
        while free and (number := next(waiting, None)) is not None:
            env = free.pop()
            observation, info = env.reset(options={"task_id": tasks[number].id})
            own = np.random.default_rng(seeds[number])
            view = View(observation, info, own, env.expert_plan, env.max_turns)
            running.append((number, env, view, []))
        if not running:
            return [found[number] for number in range(len(tasks))]
        actions = player.act([view for _, _, view, _ in running])
        still = []
        for (number, env, view, said), action, pair in zip(
            running, actions, recorder.last, strict=True
        ):
            assert isinstance(action, tuple)
            said.append((*pair, "|".join(view.info["state_key"])))
            view.observation, _, terminated, truncated, view.info = env.step(action)
            if terminated or truncated:
                found[number] = _played(view.info["record"], said, recorder.model, weights)
                free.append(env)
            else:
                still.append((number, env, view, said))
        running = still


def _played(
    episode: Episode,
    said: Sequence[tuple[Request, Generation, str]],
    model: TransformersModel,
    weights: WeightConfig,
) -> Played:
    turns = []
    weighed = zip(said, episode.turns, episode_weights(episode, weights), strict=True)
    for (request, reply, anchor), turn, weight in weighed:
        tokens = reply.tokens or ()
        turns.append(
            TurnSample(
                prompt=tuple(model.prompt(request.messages)),
                reply=tokens,
                allowed=_allowed(model, request, tokens),
                reward=turn.reward,
                weight=weight,
                anchor=anchor,
            )
        )
    return Played(episode.task_id, tuple(turns), episode)


def _allowed(
    model: TransformersModel, request: Request, tokens: Sequence[int]
) -> tuple[tuple[int, ...] | None, ...]:
    """Return which tokens the grammar let through at each place of a reply."""
    walker = model.grammar(request)
    if walker is None:
        return (None,) * len(tokens)
    found = []
    for token in tokens:
        found.append(tuple(walker.allowed()))
        walker.advance(token)
    return tuple(found)
