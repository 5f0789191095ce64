"""An agent loop for verl 0.9.1: it plays our episodes with the policy that verl serves.

An episode is not one growing chat. Each turn has a prompt of its own, in which the history is
written anew, so the loop returns one output a turn: the prompt as the policy saw it, and the reply,
all of whose tokens are learned from. docs/scale-verl.md says how training is started.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
    register,
)
from verl.workers.rollout.replica import TokenOutput

from agents.chat.hf import prompt_tokens
from agents.chat.model import Message
from agents.history import History
from agents.prompt import render, style
from agents.reply import parse_reply
from dpepo.scale.verl_turns import Note
from dpepo.weights import WeightConfig, episode_weights
from parallel_envs import ParallelTextEnv
from parallel_envs.episode import Episode
from parallel_envs.registration import constructor

__all__ = ["ParallelLoop"]

_Said = tuple[list[int], TokenOutput, str]  # prompt, reply, and the states that they started from


@register("parallel_text_env")
class ParallelLoop(AgentLoopBase):  # type: ignore[misc]
    """Plays n replicas of one task, as `agents.chat_agent.parallel` does.

    The section ``parallel`` of verl's configuration holds ``n``, ``max_turns``, the ``prompt``
    style, and ``weights``, the fields of `WeightConfig`. The columns ``env``, ``split`` and
    ``task_id`` of the data set say what is played.

    Raises:
        ValueError: ``data.apply_chat_template_kwargs`` is set, which no agent reads.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        play = self.config.parallel
        self.n, self.max_turns = int(play.n), int(play.max_turns)
        self.style, self.weights = style(play.prompt), WeightConfig(**play.weights)
        if self.apply_chat_template_kwargs:
            raise ValueError(
                "data.apply_chat_template_kwargs has no effect on these prompts, which are put in "
                "tokens as those of all agents; edit the chat template of the model instead"
            )

    async def run(
        self,
        sampling_params: dict[str, Any],
        *,
        env: str,
        split: str,
        task_id: str,
        uid: str,
        session_id: int,
        priority: int = 0,
        **others: Any,
    ) -> list[AgentLoopOutput]:
        """Play an episode and return its turns in their order.

        A failure of the engine or of the server raises. verl then goes on without this attempt,
        which is not a score of zero.

        Args:
            sampling_params: How verl wants replies to be drawn.
            env: Environment, such as ``alfworld``.
            split: Split of the task.
            task_id: The task.
            uid: verl's name of the group.
            session_id: Number of the attempt in its group.
            priority: verl's, for its server.
            others: What else the data set's row holds.
        """
        request_id = uuid4().hex  # of the episode, so that one server gets all that begins alike
        said: list[_Said] = []
        with _borrowed(env, split, self.n, self.max_turns) as world:
            observation, info = world.reset(options={"task_id": task_id})
            history = History.start(observation, info, world.max_turns)
            over = False
            while not over:
                prompt = self._prompt(history)
                output = await self.server_manager.generate(
                    request_id=request_id,
                    prompt_ids=prompt,
                    sampling_params=dict(sampling_params),
                    priority=int(priority),
                )
                if not output.token_ids:
                    raise RuntimeError(f"verl's server sent no token ({output.stop_reason})")
                said.append((prompt, output, "|".join(info["state_key"])))
                joint = self._joint(history, output.token_ids)
                observation, _, terminated, truncated, info = world.step(joint)
                history = history.after(joint, observation, info)
                over = terminated or truncated
        return self._outputs(info["record"], said, uid, int(session_id))

    def _prompt(self, history: History) -> list[int]:
        def count(messages: Sequence[Message]) -> int:
            return len(prompt_tokens(self.tokenizer, messages))

        limit = self.rollout_config.prompt_length
        prompt = render(history, self.style, budget=limit, count=count)
        if prompt.over_budget:
            raise ValueError(
                f"the shortest prompt of {history.task_id} has {prompt.tokens} tokens, and "
                f"data.max_prompt_length is {limit}"
            )
        return prompt_tokens(self.tokenizer, prompt.messages)

    def _joint(self, history: History, tokens: Sequence[int]) -> tuple[str, ...]:
        """Return the joint action that a reply says; what cannot be read leaves replicas alone."""
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        # verl does not tell a full stop from a cut. No action hangs on it, only a fault's name.
        reply = parse_reply(text, history.n, history.admissible, lower=True)
        return tuple(reply.actions.get(env, "") for env in range(1, history.n + 1))

    def _outputs(
        self, episode: Episode, said: Sequence[_Said], uid: str, session: int
    ) -> list[AgentLoopOutput]:
        scored = {"won": float(episode.won), "env_steps": float(episode.steps)}
        turns = zip(said, episode.turns, episode_weights(episode, self.weights), strict=True)
        outputs = []
        for number, ((prompt, reply, anchor), turn, weight) in enumerate(turns):
            note = Note(uid, session, number, turn.reward, weight, anchor)
            extra = {"reward_extra_info": scored, "turn": note.write()}
            outputs.append(
                AgentLoopOutput(
                    prompt_ids=prompt,
                    response_ids=reply.token_ids,
                    response_mask=[1] * len(reply.token_ids),
                    response_logprobs=reply.log_probs,
                    reward_score=episode.best_score,
                    num_turns=len(episode.turns),
                    metrics=AgentLoopMetrics(),
                    extra_fields={**reply.extra_fields, **extra},
                )
            )
        return outputs


@cache
def _idle(env: str, split: str, n: int, max_turns: int) -> list[ParallelTextEnv]:
    """Return this process's environments that nobody plays; the first only serves to make more."""
    return [constructor(env)(split=split, n=n, max_turns=max_turns)]


@contextmanager
def _borrowed(env: str, split: str, n: int, max_turns: int) -> Iterator[ParallelTextEnv]:
    """Lend an environment for one episode; one in which something failed is not lent again."""
    idle = _idle(env, split, n, max_turns)
    world = idle.pop() if len(idle) > 1 else idle[0].sibling()
    try:
        yield world
    except BaseException:
        world.close()
        raise
    idle.append(world)
