"""The policy in training: its weights, its reference, and the probability of what it said."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Iterator, Sequence
from typing import Any, Literal

# Threads that spin while they wait make a busy machine several times slower.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoModelForCausalLM, AutoTokenizer

from dpepo.losses import entropy
from dpepo.rollout import TurnSample

__all__ = ["Policy", "Precision", "arithmetic", "padded", "token_logps"]

Precision = Literal["float32", "bfloat16"]


@contextlib.contextmanager
def arithmetic(device: str, precision: Precision) -> Iterator[None]:
    """Compute in a precision, with weights that stay in fp32."""
    kind = torch.device(device).type
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            torch.autocast(kind, dtype=torch.bfloat16, enabled=precision == "bfloat16")
        )
        if kind == "cpu" and torch.is_grad_enabled():
            # On CPUs fused attention is the faster way forward, and by far the slower way back.
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        yield


class Policy:
    """A causal language model that learns, whole or by a LoRA adapter.

    Args:
        name: Folder or hub id.
        lora: Rank of the adapter on all linear layers; 0 trains all weights.
        precision: What passes compute in; weights, gradients and optimiser stay in fp32.

    Attributes:
        model: The model, in evaluation mode; there is no dropout to switch on.
        tokenizer: Its tokenizer.
    """

    def __init__(self, name: str, lora: int = 0, precision: Precision = "bfloat16") -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.precision: Precision = precision
        self.tokenizer: Any = AutoTokenizer.from_pretrained(name)
        model: Any = AutoModelForCausalLM.from_pretrained(name, dtype="float32")
        model.to(self.device).eval()
        self.model: Any = model
        self._reference: Any = None
        if lora:
            from peft import LoraConfig, get_peft_model

            adapter = LoraConfig(
                r=lora, lora_alpha=lora, target_modules="all-linear", task_type="CAUSAL_LM"
            )
            self.model = get_peft_model(model, adapter).eval()
        else:
            self._reference = copy.deepcopy(model).requires_grad_(False)

    @property
    def learning(self) -> dict[str, Tensor]:
        """The weights that are trained, by name."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def load(self, weights: dict[str, Tensor]) -> None:
        """Take over trained weights."""
        with torch.no_grad():
            for name, weight in self.learning.items():
                weight.copy_(weights[name])

    def logps(
        self, samples: Sequence[TurnSample], temperature: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return `token_logps` under the policy."""
        with arithmetic(self.device, self.precision):
            return token_logps(self.model, samples, temperature)

    @torch.no_grad()
    def reference_logps(self, samples: Sequence[TurnSample], temperature: float) -> Tensor:
        """Return log π of the tokens under the weights that training began with."""
        unchanged = contextlib.nullcontext() if self._reference else self.model.disable_adapter()
        with unchanged, arithmetic(self.device, self.precision):
            return token_logps(self._reference or self.model, samples, temperature)[0]


def padded(length: int) -> int:
    """Return the length that rows are padded to: few shapes, for which kernels are made once.

    Example:
        >>> padded(97), padded(112)
        (112, 112)
    """
    return -(-length // 16) * 16


def token_logps(
    model: Any, samples: Sequence[TurnSample], temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log π of the replies' tokens among those that could have come.

    Where the grammar left one token only, log π is 0 and there is nothing to learn.

    Args:
        model: The policy.
        samples: B turns.
        temperature: Of the rollout.

    Returns:
        log π, which places hold tokens, and the entropies in nats (without gradient): three
        tensors of the shape (B, T), T the longest reply.
    """
    width = padded(max(len(s.prompt) + len(s.reply) for s in samples))
    longest = max(len(s.reply) for s in samples)
    tokens = torch.zeros(len(samples), width, dtype=torch.long)
    attention = torch.zeros(len(samples), width, dtype=torch.long)
    places = torch.zeros(len(samples), longest, dtype=torch.long)
    mask = torch.zeros(len(samples), longest, dtype=torch.bool)
    for row, s in enumerate(samples):
        size, begin = len(s.prompt) + len(s.reply), len(s.prompt)
        tokens[row, :size] = torch.tensor((*s.prompt, *s.reply))
        attention[row, :size] = 1
        places[row, : len(s.reply)] = torch.arange(begin, size)
        mask[row, : len(s.reply)] = True
    tokens, attention, places, mask = (
        t.to(model.device) for t in (tokens, attention, places, mask)
    )
    logits = model(input_ids=tokens, attention_mask=attention).logits
    before = (places - 1).clamp(min=0)[..., None].expand(-1, -1, logits.shape[-1])
    chosen = logits.gather(1, before).float() / temperature
    barred = torch.zeros(chosen.shape, dtype=torch.bool)
    for row, s in enumerate(samples):
        for place, allowed in enumerate(s.allowed):
            if allowed is not None:
                barred[row, place] = True
                barred[row, place, list(allowed)] = False
    chosen = chosen.masked_fill(barred.to(chosen.device), -torch.inf)
    picked = chosen.log_softmax(-1).gather(-1, tokens.gather(1, places)[..., None])[..., 0]
    return torch.where(mask, picked, 0.0), mask, entropy(chosen.detach(), mask)
