"""A chat model that says what it is told to, for tests and demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.chat.model import Decoding, Generation, Message, ModelError, Request

__all__ = ["ScriptedModel"]


@dataclass
class ScriptedModel:
    """Answers each request with what a function makes of its messages.

    Attributes:
        answer: Returns the reply, a `Generation`, or an error to be put in its place.
        asked: Every request so far.

    Example:
        >>> model = ScriptedModel(lambda messages: f"You said: {messages[-1]['content']}")
        >>> (reply,) = model.generate([Request([{"role": "user", "content": "Hi"}])], Decoding())
        >>> reply.text, reply.tokens_in
        ('You said: Hi', 1)
    """

    answer: Callable[[Sequence[Message]], str | Generation | ModelError]
    asked: list[Request] = field(default_factory=list)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Only that it is scripted."""
        return {"model": "scripted", "backend": "scripted"}

    @property
    def context(self) -> int | None:
        """There is no limit."""
        return None

    def generate(
        self, requests: Sequence[Request], decoding: Decoding
    ) -> list[Generation | ModelError]:
        """Return an answer for each request; words are its tokens."""
        self.asked += requests
        replies: list[Generation | ModelError] = []
        for request in requests:
            said = self.answer(request.messages)
            if isinstance(said, str):
                words = said.split()
                cut = len(words) > decoding.max_tokens
                said = Generation(
                    " ".join(words[: decoding.max_tokens]) if cut else said,
                    "length" if cut else "stop",
                    self.count(request.messages),
                    min(len(words), decoding.max_tokens),
                )
            replies.append(said)
        return replies

    def count(self, messages: Sequence[Message]) -> int:
        """Return the number of words."""
        return sum(len(message["content"].split()) for message in messages)

    def close(self) -> None:
        """Nothing to free."""
