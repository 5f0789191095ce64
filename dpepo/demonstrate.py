"""Write demonstrations of parallel play for the cold start: ``python -m dpepo.demonstrate --help``.

A line is one turn: the chat that a model is shown, and the reply that it is to learn. The teacher
is the agent `searcher`, whose replicas look in different places and share what they see.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np
import typer
from tqdm import tqdm

from agents.compact import notebook_of
from agents.history import History
from agents.prompt import Style, render, style
from agents.reply import render_reply
from agents.searcher import choose
from parallel_envs import ParallelTextEnv, Task

__all__ = ["demonstrate"]


def demonstrate(
    env: ParallelTextEnv, task: Task, prompt: Style, noise: float, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Play one task as the teacher does, and return its turns; none if it does not win.

    Args:
        env: Plays it, with as many replicas as are to be demonstrated.
        task: The task.
        prompt: How the history is put into words.
        noise: Chance that a replica does something else, drawn from its admissible actions, than
            the reply says: so the teacher also shows the way back from mistakes.
        rng: Draws them.
    """
    observation, info = env.reset(options={"task_id": task.id})
    history = History.start(observation, info, env.max_turns)
    turns: list[dict[str, Any]] = []
    while True:
        wanted = choose(notebook_of(history), history.admissible)
        messages = [m for m in render(history, prompt).messages if m["content"]]
        reply = render_reply({i: action for i, action in enumerate(wanted, start=1) if action})
        turns.append(
            {
                "task_id": task.id,
                "n": env.n,
                "turn": len(turns),
                "messages": messages,
                "reply": reply,
            }
        )
        joint = tuple(
            actions[int(rng.integers(len(actions)))] if actions and rng.random() < noise else action
            for action, actions in zip(wanted, history.admissible, strict=True)
        )
        observation, _, terminated, truncated, info = env.step(joint)
        if terminated or truncated:
            return turns if info["won"].any() else []
        history = history.after(joint, observation, info)


def demonstrations(
    split: str, games: int, n: int, prompt: Style, noise: float, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield the turns of demonstrations of games drawn without repeats."""
    made = gymnasium.make(
        "ParallelALFWorld-v0", n=n, split=split, max_turns=50, disable_env_checker=True
    ).unwrapped
    assert isinstance(made, ParallelTextEnv)
    rng = np.random.default_rng(seed)
    tasks = made.task_set.tasks
    for index in tqdm(
        rng.permutation(len(tasks))[:games], desc=f"n={n}", unit="game", disable=None
    ):
        yield from demonstrate(made, tasks[index], prompt, noise, rng)
    made.close()


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    out: Annotated[Path, typer.Argument(help="File to write, a turn a line.")],
    split: Annotated[str, typer.Option(help="Split of the games.")] = "train",
    games: Annotated[int, typer.Option(help="Number of games, for each n.", min=1)] = 1000,
    n: Annotated[list[int], typer.Option(help="Number of replicas; may be repeated.")] = [4],  # noqa: B006
    prompt: Annotated[str, typer.Option(help="Prompt style.")] = "compact",
    noise: Annotated[float, typer.Option(help="Chance of a random action instead.")] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the draw of games and of the noise.")] = 0,
) -> None:
    """Play games as the teacher does, and write what a model is to learn.

    Example: python -m dpepo.demonstrate demonstrations.jsonl --games 1000 --n 1 --n 4
    """
    count = 0
    with out.open("w", encoding="utf-8") as file:
        for replicas in n:
            for turn in demonstrations(split, games, replicas, style(prompt), noise, seed):
                file.write(json.dumps(turn) + "\n")
                count += 1
    typer.echo(f"Written: {out}, {count} turns.")


if __name__ == "__main__":
    app()
