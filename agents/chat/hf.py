"""Chat models on transformers: batched, left padded, on CPU or GPU, with LoRA adapters."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

# Threads that spin while they wait make a busy machine several times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from agents.chat.grammar import TokenGrammar
from agents.chat.model import Decoding, Generation, Message, ModelError, Request

__all__ = ["TransformersModel", "fingerprint", "prompt_tokens"]


class TransformersModel:
    """A causal language model of a folder or the hub.

    The same seed gives the same reply whatever is generated beside it, as far as the arithmetic of
    padding allows: in fp32 it does, in half precision nearly.

    Args:
        name: Folder or hub id; a folder with ``adapter_config.json`` is a LoRA adapter, loaded onto
            the base model that it names.
        device: ``"cuda"``, ``"cpu"``; None takes a GPU where there is one.
        dtype: ``"float32"``, ``"bfloat16"``; None is fp32 on CPU and the model's own on a GPU.
        batch_size: Replies that are generated at a time.
    """

    def __init__(
        self,
        name: str,
        *,
        device: str | None = None,
        dtype: str | None = None,
        batch_size: int = 32,
    ) -> None:
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        kind = dtype or ("float32" if self.device == "cpu" else "auto")
        try:
            tokenizer = AutoTokenizer.from_pretrained(name)
            model = _load(name, kind)
        except (OSError, ValueError, KeyError) as error:
            raise ModelError(f"cannot load the model {name!r}: {error}") from error
        self._init(model.to(self.device), tokenizer, Path(name).name, batch_size)
        self._fingerprint = fingerprint(Path(name)) if Path(name).is_dir() else name

    @classmethod
    def of(
        cls, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, batch_size: int = 32
    ) -> TransformersModel:
        """Wrap a model that is already loaded, such as one that is being trained."""
        made = cls.__new__(cls)
        made.device = str(model.device)
        made._init(model, tokenizer, type(model).__name__, batch_size)
        made._fingerprint = ""
        return made

    def _init(self, model: Any, tokenizer: Any, name: str, batch_size: int) -> None:
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        tokenizer.padding_side = "left"
        self.model, self.tokenizer = model.eval(), tokenizer
        self.name, self.batch_size = name, batch_size
        # The end of a turn, which is not always the end of a text.
        ends = model.generation_config.eos_token_id
        self._ends = list(ends) if isinstance(ends, list) else [ends or tokenizer.eos_token_id]
        self._encode = lru_cache(maxsize=1 << 16)(self._spell)
        # A prompt is counted, played and, in training, learned from.
        self._tokens = lru_cache(maxsize=1 << 12)(self._tokenised)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Name, fingerprint of the weights, precision."""
        return {
            "model": self.name,
            "weights": self._fingerprint,
            "backend": "transformers",
            "dtype": str(self.model.dtype).removeprefix("torch."),
        }

    @property
    def context(self) -> int | None:
        """What the model's positions allow."""
        limit = getattr(self.model.config, "max_position_embeddings", None)
        return None if limit is None else int(limit)

    def generate(
        self, requests: Sequence[Request], decoding: Decoding
    ) -> list[Generation | ModelError]:
        """Return a reply for each request; those of like length share a batch."""
        prompts = [self.prompt(request.messages) for request in requests]
        order = sorted(range(len(requests)), key=lambda i: len(prompts[i]))
        found: list[Generation | ModelError] = [
            ModelError(
                f"the prompt has {len(prompt)} tokens and the model reads {self.context}; "
                "give a --budget"
            )
            for prompt in prompts
        ]
        order = [i for i in order if self.context is None or len(prompts[i]) < self.context]
        for start in range(0, len(order), self.batch_size):
            chosen = order[start : start + self.batch_size]
            replies = self._generate(
                [prompts[i] for i in chosen], [requests[i] for i in chosen], decoding
            )
            for i, reply in zip(chosen, replies, strict=True):
                found[i] = reply
        return found

    def count(self, messages: Sequence[Message]) -> int:
        """Return how many tokens a prompt takes."""
        return len(self.prompt(messages))

    def close(self) -> None:
        """Nothing is held but memory."""

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Return the tokens of a prompt, up to where the reply begins."""
        return list(self._tokens(tuple((m["role"], m["content"]) for m in messages)))

    @cached_property
    def _plain(self) -> list[int]:
        """The tokens of free text: no special ones, and none that could begin a tag."""
        special = set(self.tokenizer.all_special_ids) | set(self._ends)
        return [
            token
            for token in range(len(self.tokenizer))
            if token not in special and "<" not in self._decode([token])
        ]

    def grammar(self, request: Request) -> TokenGrammar | None:
        """Return a walker of a request's grammar in this model's tokens, None without one."""
        if request.grammar is None:
            return None
        return TokenGrammar(request.grammar, self._encode, self._plain, self._ends[0])

    def _tokenised(self, messages: tuple[tuple[str, str], ...]) -> tuple[int, ...]:
        chat: list[Message] = [{"role": role, "content": content} for role, content in messages]
        return tuple(prompt_tokens(self.tokenizer, chat))

    def _spell(self, text: str) -> tuple[int, ...]:
        tokens = tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        unknown = self.tokenizer.unk_token_id
        return () if unknown in tokens else tokens

    @torch.inference_mode()
    def _generate(
        self, prompts: Sequence[Sequence[int]], requests: Sequence[Request], decoding: Decoding
    ) -> list[Generation | ModelError]:
        longest = max(map(len, prompts))
        pad = self.tokenizer.pad_token_id
        ids = torch.tensor([[pad] * (longest - len(p)) + list(p) for p in prompts])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
        limit = self.context
        room = decoding.max_tokens if limit is None else min(decoding.max_tokens, limit - longest)
        processors = LogitsProcessorList()
        if any(request.grammar is not None for request in requests):
            walkers = [self.grammar(request) for request in requests]
            processors.append(_Within(walkers, longest))
        if decoding.temperature > 0:
            processors.append(_Drawn([r.seed for r in requests], decoding, longest))
        # Drawing is a processor, so what generate does is always greedy.
        output = self.model.generate(
            input_ids=ids.to(self.device),
            attention_mask=mask.to(self.device),
            do_sample=False,
            temperature=None,
            top_p=None,
            top_k=None,
            max_new_tokens=room,
            pad_token_id=pad,
            eos_token_id=self._ends,
            logits_processor=processors,
        )
        return [
            self._reply(len(prompt), row[longest:].tolist())
            for prompt, row in zip(prompts, output, strict=True)
        ]

    def _reply(self, tokens_in: int, tokens: list[int]) -> Generation:
        place = next((i for i, token in enumerate(tokens) if token in self._ends), None)
        said = tokens if place is None else tokens[:place]
        return Generation(
            text=self._decode(said),
            finish_reason="length" if place is None else "stop",
            tokens_in=tokens_in,
            tokens_out=len(said) + (place is not None),
            tokens=tuple(tokens if place is None else tokens[: place + 1]),
        )

    def _decode(self, tokens: Sequence[int]) -> str:
        text = self.tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        assert isinstance(text, str)
        return text


class _Within(LogitsProcessor):
    """Keeps every reply within its grammar."""

    def __init__(self, walkers: Sequence[TokenGrammar | None], start: int) -> None:
        self._walkers, self._start = walkers, start

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        for row, walker in enumerate(self._walkers):
            if walker is None:
                continue
            if input_ids.shape[1] > self._start:
                walker.advance(int(input_ids[row, -1]))
            allowed = torch.tensor(walker.allowed(), device=scores.device)
            kept = scores[row, allowed]
            scores[row] = -torch.inf
            scores[row, allowed] = kept
        return scores


class _Drawn(LogitsProcessor):
    """Draws a token for each row with random numbers of its own, and leaves no other choice."""

    def __init__(self, seeds: Sequence[int], decoding: Decoding, start: int) -> None:
        self._rngs = [np.random.default_rng(seed) for seed in seeds]
        self._decoding, self._start = decoding, start

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        logits = scores.double() / self._decoding.temperature
        if self._decoding.top_p < 1:
            ordered, places = logits.sort(descending=True)
            before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
            ordered[before > self._decoding.top_p] = -torch.inf
            logits = torch.full_like(logits, -torch.inf).scatter(-1, places, ordered)
        shares = logits.softmax(-1).cumsum(-1)
        points = torch.tensor([rng.random() for rng in self._rngs], device=shares.device)
        drawn = torch.searchsorted(shares, points.double()[:, None] * shares[:, -1:], right=True)
        drawn = drawn.clamp(max=scores.shape[1] - 1)
        return torch.full_like(scores, -torch.inf).scatter(-1, drawn, 0.0)


def _load(name: str, dtype: str) -> Any:
    if (Path(name) / "adapter_config.json").is_file():
        from peft import AutoPeftModelForCausalLM

        return AutoPeftModelForCausalLM.from_pretrained(name, dtype=dtype)
    return AutoModelForCausalLM.from_pretrained(name, dtype=dtype)


def prompt_tokens(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """Return a chat in tokens, up to where the reply begins."""
    if tokenizer.chat_template is None:
        text = "\n\n".join(f"{m['role']}: {m['content']}" for m in messages) + "\n\nassistant:"
        return list(tokenizer(text)["input_ids"])
    return list(
        tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_dict=False)
    )


def fingerprint(folder: Path) -> str:
    """Return what a folder's weights can be known by: a hash of their sizes and of both ends."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")) + sorted(folder.glob("*.bin")):
        size = path.stat().st_size
        digest.update(json.dumps([path.name, size]).encode())
        with path.open("rb") as file:
            digest.update(file.read(1 << 20))
            file.seek(max(0, size - (1 << 20)))
            digest.update(file.read())
    return digest.hexdigest()[:16]
