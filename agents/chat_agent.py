"""Agents that ask a chat model: `parallel`, `react` and the control `best-of`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.agent import Agent, AgentError, ModelOptions, ModelReply, View
from agents.chat.grammar import Grammar, parallel_grammar, react_grammar
from agents.chat.model import ChatModel, Decoding, Generation, ModelError, Request
from agents.history import History
from agents.prompt import Prompt, Style, render, style
from agents.reply import Reply, parse_reply

__all__ = ["ChatAgent", "best_of", "parallel", "react"]

logger = logging.getLogger(__name__)

ENOUGH = 20  # replies after which it is said that none could be read


@dataclass
class ChatAgent(Agent):
    """Shows a chat model what happened, and plays what it answers.

    What an answer says is never mended: an action that is not admissible is sent as it stands, an
    answer without any leaves all replicas alone, and both are counted.

    Args:
        model: Answers.
        style: How the history is put into words.
        decoding: How answers are drawn.
        budget: Greatest number of tokens of a prompt; None leaves as much of the model's context
            as an answer does not need.
        apart: Ask for each replica on its own, and show each only itself: n attempts that share
            nothing.
    """

    model: ChatModel
    style: Style
    decoding: Decoding
    budget: int | None = None
    apart: bool = False
    _asked: int = field(default=0, init=False)
    _read: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if self.budget is None and self.model.context is not None:
            self.budget = self.model.context - self.decoding.max_tokens

    @property
    def settings(self) -> Mapping[str, Any]:
        """Model, prompt style, budget and decoding."""
        return {
            **self.model.settings,
            "prompt": self.style.name,
            "budget": self.budget,
            "decoding": self.decoding.to_json(),
        }

    @property
    def overlaps(self) -> bool:
        """It asks a model, not an engine."""
        return True

    def close(self) -> None:
        """Close the model."""
        self.model.close()

    def act(self, views: Sequence[View]) -> list[tuple[str, ...] | AgentError]:
        """Return a joint action for each episode, asking for all of them at once."""
        talks = [self._talks(view) for view in views]
        prompts = [[self._prompt(talk) for talk in each] for each in talks]
        requests = [
            Request(prompt.messages, int(view.rng.integers(1 << 31)), self._grammar(talk))
            for view, each, shown in zip(views, talks, prompts, strict=True)
            for talk, prompt in zip(each, shown, strict=True)
        ]
        answers = iter(self.model.generate(requests, self.decoding))
        return [
            self._play(view, each, shown, [next(answers) for _ in each])
            for view, each, shown in zip(views, talks, prompts, strict=True)
        ]

    def _talks(self, view: View) -> list[History]:
        """Return what is to be asked about: the whole episode, or each open replica."""
        parts = (
            [_only(view, replica) for replica in range(view.n)]
            if self.apart
            else [(view.observation, view.info)]
        )
        if "histories" not in view.memory:
            view.memory["histories"] = [
                History.start(observation, info, view.max_turns) for observation, info in parts
            ]
        else:
            sent = view.memory["sent"]
            actions = [(action,) for action in sent] if self.apart else [sent]
            view.memory["histories"] = [
                history.after(action, observation, info)
                for history, action, (observation, info) in zip(
                    view.memory["histories"], actions, parts, strict=True
                )
            ]
        return [history for history in view.memory["histories"] if not all(history.closed)]

    def _prompt(self, history: History) -> Prompt:
        return render(history, self.style, budget=self.budget, count=self.model.count)

    def _grammar(self, history: History) -> Grammar | None:
        if self.decoding.mode == "free":
            return None
        lists = [
            () if closed else actions
            for actions, closed in zip(history.admissible, history.closed, strict=True)
        ]
        think = self.decoding.think
        if self.style.single:
            return react_grammar(lists[0], think)
        return parallel_grammar(lists, think)

    def _play(
        self,
        view: View,
        talks: Sequence[History],
        prompts: Sequence[Prompt],
        answers: Sequence[Generation | ModelError],
    ) -> tuple[str, ...] | AgentError:
        """Read the answers to one episode, note them, and return the joint action."""
        said = [answer for answer in answers if isinstance(answer, Generation)]
        if len(said) < len(answers):
            return AgentError(next(str(a) for a in answers if isinstance(a, ModelError)))
        replies = [
            parse_reply(answer.text, talk.n, talk.admissible, answer.finish_reason, lower=True)
            for talk, answer in zip(talks, said, strict=True)
        ]
        self._watch(replies)
        if self.apart:
            histories = view.memory["histories"]
            places = [i for i, history in enumerate(histories) if not all(history.closed)]
            found = {i: reply.actions.get(1, "") for i, reply in zip(places, replies, strict=True)}
            texts = {i: answer.text for i, answer in zip(places, said, strict=True)}
            kept = tuple(texts.get(i, "") for i in range(view.n))
        else:
            found = {env - 1: action for env, action in replies[0].actions.items()}
            kept = (said[0].text,)
        joint = tuple(found.get(i, "") for i in range(view.n))
        view.memory["sent"] = joint
        cached = [answer.tokens_cached for answer in said if answer.tokens_cached is not None]
        view.replies.append(
            ModelReply(
                texts=kept,
                issues=tuple(dict.fromkeys(i.code for reply in replies for i in reply.issues)),
                tokens_in=sum(answer.tokens_in for answer in said),
                tokens_out=sum(answer.tokens_out for answer in said),
                tokens_cached=sum(cached) if cached else None,
                truncated=any(answer.finish_reason == "length" for answer in said),
                dropped=sum(prompt.dropped_pairs for prompt in prompts),
            )
        )
        return joint

    def _watch(self, replies: Sequence[Reply]) -> None:
        """Say so, loudly and once, if nothing that the model writes can be read."""
        before = self._asked
        self._asked += len(replies)
        self._read += sum(bool(reply.actions) for reply in replies)
        if before < ENOUGH <= self._asked and self._read == 0:
            logger.warning(
                "NONE of the first %d replies of the model holds an action in the form that the "
                "prompt asks for, so nothing is played. Is it a chat model, and is --max-tokens "
                "(%d) enough? --decoding admissible keeps replies in form.",
                self._asked,
                self.decoding.max_tokens,
            )


def parallel(options: ModelOptions) -> ChatAgent:
    """Return the zero-shot agent that sees all replicas and acts in as many as it likes."""
    return _made(options, "paper")


def react(options: ModelOptions) -> ChatAgent:
    """Return the sequential baseline, ReAct (arXiv 2210.03629) without examples."""
    return _made(options, "react")


def best_of(options: ModelOptions) -> ChatAgent:
    """Return the control: n attempts of `react` that share nothing."""
    return _made(options, "react", apart=True)


def _made(options: ModelOptions, default: str, *, apart: bool = False) -> ChatAgent:
    chosen = style(options.style or default)
    return ChatAgent(options.open(), chosen, options.decoding, options.budget, apart)


def _only(view: View, replica: int) -> tuple[Any, dict[str, Any]]:
    """Return the observation and the info of one replica, as if it were alone."""
    observation = {
        "task": view.observation["task"],
        "observations": (view.observation["observations"][replica],),
    }
    names = ("admissible_actions", "closed", "won", "pending", "acted", "changed_nothing")
    info = {name: view.info[name][replica : replica + 1] for name in names}
    return observation, {"task_id": view.info["task_id"], "turn": view.info["turn"], **info}
