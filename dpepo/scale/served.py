"""A policy whose replies come from an engine that all processes of a training run ask together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accelerate.utils import gather_object

from agents.chat.hf import TransformersModel
from agents.chat.model import Decoding, Generation, ModelError, Request

__all__ = ["Served"]


class Served(TransformersModel):
    """The prompts and tokens of a policy, with the answers of an engine.

    All processes ask at once and with equally many prompts, as engines demand that are shared by
    them. Episodes end at different turns, so a process with fewer adds prompts whose answers it
    forgets.
    """

    _engine: Any

    @classmethod
    def by(cls, engine: Any, policy: TransformersModel) -> Served:
        """Return the policy with the answers of an engine.

        Args:
            engine: TRL's ``VLLMGeneration``, which has temperature and greatest length.
            policy: The policy.
        """
        made = cls.of(policy.model, policy.tokenizer, batch_size=policy.batch_size)
        assert isinstance(made, cls)
        made._engine = engine
        return made

    def finish(self) -> None:
        """Take part until no process asks any more."""
        while self._answers([]) is not None:
            pass

    def _generate(
        self, prompts: Sequence[Sequence[int]], requests: Sequence[Request], decoding: Decoding
    ) -> list[Generation | ModelError]:
        answers = self._answers([list(prompt) for prompt in prompts]) or []
        return [self._reply(len(p), answer) for p, answer in zip(prompts, answers, strict=True)]

    def _answers(self, prompts: list[list[int]]) -> list[list[int]] | None:
        """Return the tokens of the replies; None if no process asks for any."""
        most = max(gather_object([len(prompts)]))
        if most == 0:
            return None
        filled = prompts + [[self._ends[0]]] * (most - len(prompts))
        _, answers, *_ = self._engine.generate(prompts=filled, images=None, num_generations=1)
        return [list(answer) for answer in answers[: len(prompts)]]
