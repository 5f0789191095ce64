"""What a step, a turn and an episode cost, and what a large run would need.

    python benchmarks/capacity.py

Random admissible play of 25 turns (few games end before) with the paper's prompt at four replicas:
processor time of the environment, tokens of the prompts as SmolLM2's tokenizer counts them, and of
a short reply. From them the demand of the DPEPO paper's protocol is worked out. Writes
``results/capacity.json`` and ``capacity.md``.
"""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import psutil
from tqdm import tqdm
from transformers import AutoTokenizer

from agents.chat.hf import prompt_tokens
from agents.chat.smollm2 import converted
from agents.history import History
from agents.prompt import render, style
from agents.reply import render_reply
from leaderboard.protocol import make_env

OUT = Path(__file__).parent / "results" / "capacity.json"
SPLITS = {"alfworld": "valid_unseen", "scienceworld": "dev"}
N, TURNS, EPISODES = 4, 25, 12
# The DPEPO paper's run: 125 updates of 4 tasks, each attempted 8 times.
UPDATES, TASKS, ATTEMPTS, PARAMETERS = 125, 4, 32, 7.6e9
THINK = 150  # tokens of reasoning that are added to a reply: an assumption


def main() -> None:
    """Measure, and write both files."""
    tokenizer = AutoTokenizer.from_pretrained(converted())
    found = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}",
        **{env: measure(env, split, tokenizer) for env, split in SPLITS.items()},
    }
    OUT.write_text(json.dumps(found, indent=1) + "\n")
    OUT.with_suffix(".md").write_text(page(found))


def measure(env_name: str, split: str, tokenizer: Any) -> dict[str, Any]:
    """Play episodes at random, and return what they cost."""
    env = make_env(env_name, split, N, TURNS)
    rng = np.random.default_rng(0)
    tasks = env.task_set.tasks
    prompts: list[list[int]] = [[] for _ in range(TURNS)]
    replies, step_seconds, first_reset, steps = [], [], [], 0
    for index in tqdm(rng.permutation(len(tasks))[:EPISODES], env_name):
        begin = time.perf_counter()
        observation, info = env.reset(options={"task_id": tasks[index].id})
        first_reset.append(time.perf_counter() - begin)
        history = History.start(observation, info, env.max_turns)
        over = False
        while not over:
            messages = [m for m in render(history, style("paper")).messages if m["content"]]
            prompts[history.turn].append(len(prompt_tokens(tokenizer, messages)))
            joint = tuple(
                str(rng.choice(actions)) if actions else "" for actions in history.admissible
            )
            acting = {i: action for i, action in enumerate(joint, start=1) if action}
            replies.append(len(tokenizer(render_reply(acting))["input_ids"]))
            begin = time.perf_counter()
            observation, _, terminated, truncated, info = env.step(joint)
            step_seconds.append(time.perf_counter() - begin)
            steps += sum(info["acted"])
            over = terminated or truncated
            history = history.after(joint, observation, info)
    own = psutil.Process()
    memory = sum(p.memory_info().rss for p in [own, *own.children(recursive=True)])
    env.close()
    return {
        "episodes": EPISODES,
        "first_reset_s": fmean(first_reset),
        "turn_ms": 1000 * fmean(step_seconds),
        "step_ms": 1000 * sum(step_seconds) / steps,
        "process_mb": memory / 2**20,
        "prompt_tokens": [fmean(turn) if turn else None for turn in prompts],
        "reply_tokens": fmean(replies),
    }


def demand(cost: dict[str, Any], turns: int) -> dict[str, float]:
    """Return what the paper's run needs if its episodes last so many turns.

    A model of P parameters takes 2 P operations for a token that it reads or writes, and 6 P for
    one that it learns from; the log-probabilities of the reference are one more reading.
    """
    episodes = UPDATES * ATTEMPTS
    prompt = episodes * sum(cost["prompt_tokens"][:turns])
    reply = episodes * turns * (cost["reply_tokens"] + THINK)
    return {
        "steps": episodes * turns * N,
        "core_hours": (
            episodes * turns * cost["turn_ms"] / 1000 + UPDATES * TASKS * cost["first_reset_s"]
        )
        / 3600,
        "prompt_tokens": prompt,
        "reply_tokens": reply,
        "rollout_flop": 2 * PARAMETERS * (prompt + reply),
        "learning_flop": (6 + 2) * PARAMETERS * (prompt + reply),
    }


def page(found: dict[str, Any]) -> str:
    """Return the page as Markdown."""
    lines = [
        "# Capacity",
        "",
        f"`python benchmarks/capacity.py`: {found['machine']}; {EPISODES} games of each, {N} "
        f"replicas, random admissible play, the `paper` prompt in SmolLM2's tokens.",
        "",
        "| | first reset s | turn of 4 ms | step ms | process MB | prompt, turn 1 | turn 8 "
        "| turn 25 | mean of 25 | reply without reasoning |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for env in SPLITS:
        cost = found[env]
        prompts = cost["prompt_tokens"]
        chosen = (prompts[0], prompts[7], prompts[24], fmean(p for p in prompts if p))
        lines.append(
            f"| {env} | {cost['first_reset_s']:.2f} | {cost['turn_ms']:.1f} | "
            f"{cost['step_ms']:.1f} | {cost['process_mb']:.0f} | "
            + " | ".join(f"{tokens:,.0f}" for tokens in chosen)
            + f" | {cost['reply_tokens']:.0f} |"
        )
    lines += [
        "",
        f"The DPEPO paper's run ({UPDATES} updates of {ATTEMPTS} attempts, {N} replicas, a model "
        f"of {PARAMETERS / 1e9:.1f} B parameters, {THINK} tokens of reasoning a turn assumed):",
        "",
        "| | turns of an episode | steps | core hours of environments | tokens read "
        "| tokens written | 10^18 operations, rollouts | learning |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for env in SPLITS:
        for turns in (8, TURNS):
            need = demand(found[env], turns)
            lines.append(
                f"| {env} | {turns} | {need['steps']:,} | {need['core_hours']:.2f} | "
                f"{need['prompt_tokens'] / 1e6:,.0f} M | {need['reply_tokens'] / 1e6:,.0f} M | "
                f"{need['rollout_flop'] / 1e18:,.1f} | {need['learning_flop'] / 1e18:,.1f} |"
            )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
