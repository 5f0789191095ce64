"""Cold start: learn from demonstrations, turn by turn: ``python -m dpepo.sft --help``."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

from agents.chat.hf import prompt_tokens
from dpepo.losses import log_probs
from dpepo.policy import arithmetic, padded
from dpepo.tiny import alfworld_words, tiny_model, tiny_tokenizer

__all__ = ["Example", "Recipe", "batches", "examples", "loss", "optimizers", "train"]


@dataclass(frozen=True)
class Recipe:
    """How to learn.

    Attributes:
        epochs: Passes over the data.
        minutes: Stop after as many minutes, with the schedule ended in time; None: no limit.
        batch: Turns of an update.
        lr: Greatest learning rate; it warms up over `warmup` updates and falls as a cosine.
        matrix_lr: Greatest learning rate of Muon for the matrices within layers; 0: they too are
            left to AdamW, as is best for a model that AdamW has trained.
        warmup: Number of updates, at most a tenth of all.
        prompt_weight: Weight of a prompt's tokens in the loss. A model from nothing learns to read
            by it.
        decay: Weight decay.
        clip: Greatest norm of the gradient.
        seed: Seed of the order and of new weights.
    """

    epochs: float = 3.0
    minutes: float | None = None
    batch: int = 32
    lr: float = 1.5e-3
    matrix_lr: float = 0.0
    warmup: int = 100
    prompt_weight: float = 0.1
    decay: float = 0.01
    clip: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class Example:
    """One turn in tokens.

    Attributes:
        tokens: Prompt, reply and end.
        prompt: How many of them are the prompt's.
    """

    tokens: tuple[int, ...]
    prompt: int


def examples(turns: Sequence[dict[str, Any]], tokenizer: Any) -> list[Example]:
    """Return demonstrated turns in tokens."""
    found = []
    for turn in turns:
        prompt = prompt_tokens(tokenizer, turn["messages"])
        reply = tokenizer(turn["reply"], add_special_tokens=False)["input_ids"]
        found.append(Example((*prompt, *reply, tokenizer.eos_token_id), len(prompt)))
    return found


def batches(
    data: Sequence[Example], size: int, rng: np.random.Generator
) -> Iterator[list[Example]]:
    """Yield the examples of one epoch in batches of like length, the batches in random order."""
    noise = rng.random(len(data)) * 4  # so that batches differ from epoch to epoch
    order = sorted(range(len(data)), key=lambda i: len(data[i].tokens) + noise[i])
    groups = [order[start : start + size] for start in range(0, len(order), size)]
    for group in rng.permutation(len(groups)):
        yield [data[i] for i in groups[group]]


def loss(model: Any, batch: Sequence[Example], prompt_weight: float) -> tuple[Tensor, Tensor]:
    """Return the loss of a batch, and its mean over the replies' tokens alone.

    Both are mean negative log-likelihoods; in the first a prompt's token weighs `prompt_weight`.
    """
    width = padded(max(len(example.tokens) for example in batch))
    tokens = torch.zeros(len(batch), width, dtype=torch.long)
    mask = torch.zeros(len(batch), width, dtype=torch.bool)
    reply = torch.zeros(len(batch), width, dtype=torch.bool)
    for row, example in enumerate(batch):
        length = len(example.tokens)
        tokens[row, :length] = torch.tensor(example.tokens)
        mask[row, :length] = True
        reply[row, example.prompt : length] = True
    tokens, mask, reply = (t.to(model.device) for t in (tokens, mask, reply))
    logits = model(input_ids=tokens, attention_mask=mask).logits[:, :-1].float()
    logp = log_probs(logits, tokens[:, 1:], mask[:, 1:])
    weight = torch.where(reply[:, 1:], 1.0, prompt_weight) * mask[:, 1:]
    replies = -(logp * reply[:, 1:]).sum() / reply.sum()
    return -(logp * weight).sum() / weight.sum(), replies.detach()


def train(model: Any, data: Sequence[Example], recipe: Recipe) -> Iterator[dict[str, float]]:
    """Train a model in place, and yield what each update came to."""
    rng = np.random.default_rng(recipe.seed)
    total = math.ceil(recipe.epochs * math.ceil(len(data) / recipe.batch))
    learners = optimizers(model, recipe)
    start = time.perf_counter()
    update, done = 0, 0.0
    model.train()
    while True:
        for batch in batches(data, recipe.batch, rng):
            begin = time.perf_counter()
            minutes = (begin - start) / 60
            done = max(update / total, minutes / recipe.minutes if recipe.minutes else 0.0)
            if done >= 1:
                model.eval()
                return
            warm = min(1.0, (update + 1) / min(recipe.warmup, 1 + total // 10))
            share = warm * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done)))
            for optimizer, rate in learners:
                for group in optimizer.param_groups:
                    group["lr"] = rate * share
            with arithmetic(model.device.type, "bfloat16"):
                value, replies = loss(model, batch, recipe.prompt_weight)
            model.zero_grad(set_to_none=True)
            value.backward()  # type: ignore[no-untyped-call]
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
            if not torch.isfinite(norm):
                raise FloatingPointError(f"update {update}: the gradient is {float(norm)}")
            for optimizer, _ in learners:
                optimizer.step()
            update += 1
            yield {
                "update": update,
                "loss": float(value.detach()),
                "reply_loss": float(replies),
                "lr": recipe.lr * share,
                "done": done,
                "seconds": time.perf_counter() - begin,
                "tokens": sum(len(example.tokens) for example in batch),
            }


def optimizers(model: Any, recipe: Recipe) -> list[tuple[torch.optim.Optimizer, float]]:
    """Return what trains the weights of a model: optimizers with their greatest learning rates."""
    inner: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, weight in model.named_parameters():
        # Muon (Jordan et al., 2024) is for matrices between activations, not for embeddings.
        matrix = weight.ndim == 2 and ".layers." in name
        (inner if matrix and recipe.matrix_lr else others).append(weight)
    adam = torch.optim.AdamW(others, lr=recipe.lr, weight_decay=recipe.decay, betas=(0.9, 0.98))
    if not inner:
        return [(adam, recipe.lr)]
    muon = torch.optim.Muon(inner, lr=recipe.matrix_lr, weight_decay=recipe.decay)
    return [(adam, recipe.lr), (muon, recipe.matrix_lr)]


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    data: Annotated[list[Path], typer.Argument(help="Files of dpepo.demonstrate.")],
    out: Annotated[Path, typer.Option(help="Folder of the model.")],
    model: Annotated[
        str, typer.Option(help='"tiny", or a folder or hub id to go on from.')
    ] = "tiny",
    layers: Annotated[int, typer.Option(help="Layers of a tiny model.")] = 4,
    width: Annotated[int, typer.Option(help="Width of a tiny model.")] = 128,
    epochs: Annotated[float, typer.Option(help="Passes over the data.")] = 3.0,
    minutes: Annotated[float | None, typer.Option(help="Time limit.")] = None,
    batch: Annotated[int, typer.Option(help="Turns of an update.")] = 32,
    lr: Annotated[float, typer.Option(help="Greatest learning rate.")] = 1.5e-3,
    matrix_lr: Annotated[
        float | None,
        typer.Option(
            help="That of Muon for matrices; 0: AdamW for all. By default 0.02 for a tiny model, "
            "else 0."
        ),
    ] = None,
    prompt_weight: Annotated[float, typer.Option(help="Weight of a prompt's tokens.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the order and of new weights.")] = 0,
) -> None:
    """Teach a model to reply as the demonstrations do.

    Example: python -m dpepo.sft demonstrations.jsonl --out sft --minutes 9
    """
    if matrix_lr is None:
        matrix_lr = 0.02 if model == "tiny" else 0.0
    recipe = Recipe(epochs, minutes, batch, lr, matrix_lr, prompt_weight=prompt_weight, seed=seed)
    lines = [line for path in data for line in path.read_text(encoding="utf-8").splitlines()]
    turns = [json.loads(line) for line in lines]
    if model == "tiny":
        texts = (
            text for turn in turns for text in (turn["messages"][-1]["content"], turn["reply"])
        )
        tokenizer: Any = tiny_tokenizer(texts, alfworld_words())
        learner = tiny_model(tokenizer, layers=layers, width=width, seed=seed)
    else:
        tokenizer = AutoTokenizer.from_pretrained(model)
        learner = AutoModelForCausalLM.from_pretrained(model, dtype="float32")
    learner.to("cuda" if torch.cuda.is_available() else "cpu")
    known = examples(turns, tokenizer)
    size = sum(parameter.numel() for parameter in learner.parameters())
    typer.echo(f"{len(known)} turns, {sum(len(e.tokens) for e in known)} tokens, {size} parameters")
    out.mkdir(parents=True, exist_ok=True)
    bar = tqdm(total=100, desc="sft", unit="%", disable=None, bar_format="{l_bar}{bar}| {postfix}")
    with (out / "metrics.jsonl").open("w", encoding="utf-8") as file:
        for row in train(learner, known, recipe):
            file.write(json.dumps(row) + "\n")
            bar.n = round(100 * row["done"], 1)
            bar.set_postfix_str(f"reply loss {row['reply_loss']:.3f}")
    bar.close()
    learner.save_pretrained(out)
    tokenizer.save_pretrained(out)
    typer.echo(f"Written: {out}")


if __name__ == "__main__":
    app()
