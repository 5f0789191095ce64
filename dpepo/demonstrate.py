"""Write demonstrations of parallel play for the cold start: ``python -m dpepo.demonstrate --help``.

A line is one turn: the chat that a model is shown, and the reply that it is to learn. The teacher
of ALFWorld is the agent `searcher`, whose replicas look in different places and share what they
see. In ScienceWorld replica 1 does what the engine's expert does, and the others explore.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from tqdm import tqdm

from agents.compact import notebook_of
from agents.history import History
from agents.prompt import Style, render, style
from agents.registry import look_up
from agents.reply import render_reply
from agents.searcher import choose, reason
from parallel_envs import ParallelEnvsError, ParallelTextEnv, Task
from parallel_envs.registration import constructor

__all__ = ["COURSES", "Course", "Teacher", "demonstrate", "demonstrations", "expert_plan"]

# From what is known to the next action of each replica, and the reason in a few words.
Teacher = Callable[[History], tuple[tuple[str, ...], str]]


@dataclass(frozen=True)
class Course:
    """How a game is taught.

    Attributes:
        teacher: Returns the teacher of a task, None where that one knows no way to win.
        undisturbed: How many replicas, from the first, are never made to stray.
    """

    teacher: Callable[[ParallelTextEnv, Task, np.random.Generator], Teacher | None]
    undisturbed: int = 0


# ALFWorld.


def _searcher(env: ParallelTextEnv, task: Task, rng: np.random.Generator) -> Teacher:
    def teach(history: History) -> tuple[tuple[str, ...], str]:
        notebook = notebook_of(history)
        return choose(notebook, history.admissible, rng), reason(notebook)

    return teach


# ScienceWorld.

_TRIES = 8  # Actions that are tried in the place of one; each takes about a fifth of a second.
_ON_THE_WAY = ("go", "open", "close", "look")


def _expert(env: ParallelTextEnv, task: Task, rng: np.random.Generator) -> Teacher | None:
    plan = expert_plan(env, task)

    def teach(history: History) -> tuple[tuple[str, ...], str]:
        # A plan leads from the start and cannot be resumed: replica 1 is where its turn is.
        ahead = plan[history.turn :] or ("",)
        joint = [ahead[0]]
        for replica in range(1, history.n):
            joint.append(_exploring(history, replica, joint, rng))
        return tuple(joint), _next_deed(ahead)

    return teach if plan else None


def expert_plan(env: ParallelTextEnv, task: Task) -> tuple[str, ...]:
    """Return the expert's plan in admissible actions, none where it does not win in time.

    Things of ScienceWorld have several names, of which the admissible actions hold one, and an
    expert opens doors that are open: nearly every plan has actions that can be run but are not
    listed. A listed one that does the same stands in their place; where none does, such as for a
    door that is open, the action is left out. Only a plan that still wins is returned.

    Args:
        env: Has the tasks and the turn limit; it is not played in.
        task: The task.
    """
    alone = env.sibling(1)
    _, info = alone.reset(options={"task_id": task.id})
    original, plan = alone.expert_plan(), []
    for action in original if _wins(alone, original) else ():
        same = _listed(alone, action, info["admissible_actions"][0])
        if same:
            plan.append(same)
            *_, terminated, truncated, info = alone.step((same,))
            if terminated or truncated:
                break
    alone.close()
    return tuple(plan) if info["won"].any() else ()


def _wins(env: ParallelTextEnv, plan: Sequence[str]) -> bool:
    twin, won = env.fork(), False
    for action in plan:
        *_, terminated, truncated, info = twin.step((action,))
        if terminated or truncated:
            won = bool(info["won"].any())
            break
    twin.close()
    return won


def _listed(env: ParallelTextEnv, action: str, admissible: Sequence[str]) -> str | None:
    """Return the admissible action that does what an action does, None if none is found."""
    if action in admissible and _can_be_said(action):
        return action
    words, effect = set(action.split()), _effect(env, action)
    likely = sorted(admissible, key=lambda other: len(words.symmetric_difference(other.split())))
    tried = filter(_can_be_said, likely[:_TRIES])
    return next((other for other in tried if _effect(env, other) == effect), None)


def _effect(env: ParallelTextEnv, action: str) -> tuple[str, str]:
    """Return what an action of replica 1 shows and the state it leads to."""
    twin = env.fork()
    observation, *_, info = twin.step((action,))
    twin.close()
    # Both, as the key does not tell whether a door is open.
    return observation["observations"][0], info["state_key"][0]


def _exploring(
    history: History, replica: int, taken: Collection[str], rng: np.random.Generator
) -> str:
    """Return an action that nobody takes now and, if there is one, that was not taken here before.

    The kind is drawn first, since thousands of actions are of one kind, such as connect. What is
    never drawn is focus: it says what the answer is, and on a wrong thing it ends the game.
    """
    free = [
        action
        for action in ([] if history.closed[replica] else history.admissible[replica])
        if action not in taken and not action.startswith("focus ")
    ]
    done = {step.action for step in history.steps[replica]}
    left = [action for action in free if action not in done] or free
    while left:
        kind = rng.choice(sorted({action.split()[0] for action in left}))
        action = str(rng.choice([action for action in left if action.split()[0] == kind]))
        if _can_be_said(action):
            return action
        left.remove(action)
    return ""


def _can_be_said(action: str) -> bool:
    try:
        render_reply({1: action})
    except ValueError:
        return False
    return True


def _next_deed(plan: Sequence[str]) -> str:
    """Return what a plan does next, apart from going there and looking around.

    Example:
        >>> _next_deed(["open door to kitchen", "go to kitchen", "pick up thermometer"])
        'pick up thermometer'
    """
    deeds = (action for action in plan if action.split(" ")[0] not in _ON_THE_WAY)
    return " ".join(next(deeds, plan[0]).split()[:8])


# Any game.

COURSES = {
    "alfworld": Course(_searcher),
    "scienceworld": Course(_expert, undisturbed=1),
}


def demonstrate(
    env: ParallelTextEnv,
    task: Task,
    course: Course,
    prompt: Style,
    noise: float,
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    """Play one task as the teacher does, and return its turns; none if it does not win.

    Args:
        env: Plays it, with as many replicas as are to be demonstrated.
        task: The task.
        course: Who teaches it.
        prompt: How the history is put into words.
        noise: Chance that a replica does something else, drawn from its admissible actions, than
            the reply says: so the teacher also shows the way back from mistakes. It does not apply
            to replica 1 of ScienceWorld, whose plan cannot be resumed after a stray.
        rng: Draws them.
    """
    observation, info = env.reset(options={"task_id": task.id})
    teacher = course.teacher(env, task, rng)
    if teacher is None:
        return []
    history = History.start(observation, info, env.max_turns)
    turns: list[dict[str, Any]] = []
    while True:
        wanted, why = teacher(history)
        messages = [m for m in render(history, prompt).messages if m["content"]]
        reply = render_reply({i: action for i, action in enumerate(wanted, start=1) if action}, why)
        turns.append(
            {
                "task_id": task.id,
                "n": env.n,
                "turn": len(turns),
                "messages": messages,
                "reply": reply,
            }
        )
        strays = (
            replica >= course.undisturbed and bool(actions) and rng.random() < noise
            for replica, actions in enumerate(history.admissible)
        )
        joint = tuple(
            actions[int(rng.integers(len(actions)))] if astray else action
            for action, actions, astray in zip(wanted, history.admissible, strays, strict=True)
        )
        observation, _, terminated, truncated, info = env.step(joint)
        if terminated or truncated:
            return turns if info["won"].any() else []
        history = history.after(joint, observation, info)


def demonstrations(
    env: ParallelTextEnv, games: int, course: Course, prompt: Style, noise: float, seed: int
) -> Iterator[dict[str, Any]]:
    """Yield the turns of demonstrations of games drawn without repeats."""
    rng = np.random.default_rng(seed)
    tasks = env.task_set.tasks
    drawn = rng.permutation(len(tasks))[:games]
    for index in tqdm(drawn, desc=f"n={env.n}", unit="game", disable=None):
        yield from demonstrate(env, tasks[index], course, prompt, noise, rng)


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    out: Annotated[Path, typer.Argument(help="File to write, a turn a line.")],
    env: Annotated[str, typer.Option(help=f"Environment: {' or '.join(COURSES)}.")] = "alfworld",
    split: Annotated[str, typer.Option(help="Split of the games.")] = "train",
    games: Annotated[int, typer.Option(help="Number of games, for each n.", min=1)] = 1000,
    n: Annotated[list[int], typer.Option(help="Number of replicas; may be repeated.")] = [4],  # noqa: B006
    max_turns: Annotated[int, typer.Option(help="Turn limit of a game.", min=1)] = 50,
    prompt: Annotated[str, typer.Option(help="Prompt style.")] = "compact",
    noise: Annotated[
        float,
        typer.Option(help="Chance of a random action instead; not in an expert's replica."),
    ] = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the draw of games and of the noise.")] = 0,
) -> None:
    """Play games as the teacher does, and write what a model is to learn.

    Example: python -m dpepo.demonstrate demonstrations.jsonl --games 1000 --n 1 --n 4
    """
    try:
        course = look_up(env, COURSES, "environment")
        look = style(prompt)
        worlds = [constructor(env)(n=each, split=split, max_turns=max_turns) for each in n]
    except (ValueError, ParallelEnvsError) as error:
        raise typer.BadParameter(str(error)) from error
    count, part = 0, out.with_name(f"{out.name}.part")  # a stopped run leaves no half file
    with part.open("w", encoding="utf-8") as file:
        for world in worlds:
            for turn in demonstrations(world, games, course, look, noise, seed):
                file.write(json.dumps(turn) + "\n")
                count += 1
            world.close()
    part.replace(out)
    typer.echo(f"Written: {out}, {count} turns.")


if __name__ == "__main__":
    app()
