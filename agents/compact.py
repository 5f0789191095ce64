"""The `compact` prompt: what matters of a history in a few hundred tokens.

All of it is read off the texts, and none of it is advice. In ALFWorld (`agents.notebook`): the
goal, where its objects were seen, which places nobody has looked into, and where each replica
stands. In any other game: the task, and how the last actions of each replica ended.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from agents.history import History
from agents.notebook import Goal, Hand, Notebook, kind, read_goal
from agents.parts import Part

__all__ = ["compact", "notebook_of"]

# In other games than ALFWorld: how many words of the task (ScienceWorld's longest sentences have
# 80), of an action and of what it showed, and how many actions. 4 replicas take less than 400.
_TASK_WORDS, _ACTION_WORDS, _TEXT_WORDS, _ACTIONS = 80, 12, 24, 2
_WORD = re.compile(r"-?\w+(?:[-'.]\w+)*")  # of "-3.5 degrees (blue-green)." all but the marks


def notebook_of(history: History) -> Notebook:
    """Return the notebook of a history.

    Raises:
        ValueError: It is not of ALFWorld.
    """
    notebook = Notebook.start(history.task, history.start_text, history.n)
    steps = [
        (step.turn, replica, step)
        for replica in range(history.n)
        for step in history.steps[replica]
    ]
    for _, replica, step in sorted(steps, key=lambda item: item[:2]):
        notebook.note(replica, step.action, step.observation)
    return notebook


def compact(history: History, style: object = None) -> tuple[str, list[Part]]:
    """Write a history in few words; the system message is empty.

    A replica is named by the tag that its action is written in: a small model finds it again.

    Example:
        >>> from parallel_envs.toy import ToyTasks
        >>> from parallel_envs import ParallelTextEnv
        >>> env = ParallelTextEnv(ToyTasks(), n=2)
        >>> first = History.start(*env.reset(seed=0))
        >>> joint = ("", "ring bell")
        >>> observation, _, _, _, info = env.step(joint)
        >>> print(*compact(first.after(joint, observation, info))[1])
        task: find the coin and take it
        <env_1> start : you are in the hall
        <env_2> start : you are in the hall , ring bell : how many times 1 to 3
    """
    lines = _alfworld(history) if _is_alfworld(history.task) else _other(history)
    return "", ["\n".join(lines)]


def _is_alfworld(task: str) -> bool:
    try:
        read_goal(task)
    except ValueError:
        return False
    return True


# Any game.


def _other(history: History) -> list[str]:
    return [
        f"task: {_words(history.task, _TASK_WORDS)}",
        *(f"<env_{replica + 1}> {_lately(history, replica)}" for replica in range(history.n)),
    ]


def _lately(history: History, replica: int) -> str:
    """Return what a replica did last and how that began to look, and if it has ended."""
    steps = [(step.action, step.observation) for step in history.steps[replica]]
    shown = [
        f"{_words(action, _ACTION_WORDS)} : {_words(text, _TEXT_WORDS)}"
        for action, text in [("start", history.start_text), *steps][-_ACTIONS:]
    ]
    ended = ["won" if history.won[replica] else "lost"] if history.closed[replica] else []
    return " , ".join([*shown, *ended])


def _words(text: str, most: int) -> str:
    r"""Return the first words of a text without marks, so that no text can pass for another line.

    Example:
        >>> _words("A thermometer (blue):\n\tIt reads -5 degrees.", 6)
        'a thermometer blue it reads -5'
    """
    return " ".join(_WORD.findall(text.lower())[:most])


# ALFWorld.


def _alfworld(history: History) -> list[str]:
    notebook = notebook_of(history)
    goal = notebook.goal
    seen = [f"{item} at {notebook.seen[item]}" for item in _wanted(notebook)]
    lines = [
        f"goal: {_goal(goal)}",
        f"seen: {' , '.join(seen) or 'none'}",
        *([] if goal.look else [f"target: {_listed(notebook, goal.target)}"]),
        *([f"tool: {_listed(notebook, goal.tool)}"] if goal.tool else []),
        f"new: {_grouped(notebook.unseen())}",
    ]
    for env, hand in enumerate(notebook.hands, start=1):
        last = history.steps[env - 1][-1:]
        failed = any(step.observation.startswith("Nothing happens") for step in last)
        lines.append(f"<env_{env}> {_state(hand, notebook, env - 1)}{' , failed' * failed}")
    return lines


def _goal(goal: Goal) -> str:
    verb = {"sinkbasin": "clean", "microwave": "hot", "fridge": "cool"}.get(goal.tool or "", "")
    if goal.look:
        return f"look {goal.item} {goal.target}"
    return " ".join(
        filter(None, ["put", "two" if goal.count == 2 else "", verb, goal.item, "in", goal.target])
    )


def _state(hand: Hand, notebook: Notebook, replica: int) -> str:
    goal, place = notebook.goal, hand.place or "start"
    kinds = {goal.target: " target", goal.tool: " tool"}
    closed = " closed" if notebook.is_closed(replica) else ""
    here = [
        item
        for item in _wanted(notebook)
        if notebook.where(replica, item) == hand.place and item not in hand.moved
    ]
    near = f" , here {' '.join(here)}" if here else ""
    held = f" , holds {hand.held}" if hand.held else ""
    treated = " done" if hand.held in hand.treated else ""
    put = "".join(f" , put {item} in {where}" for item, where in sorted(hand.moved.items()))
    return f"at {place}{kinds.get(kind(place), '')}{closed}{near}{held}{treated}{put}"


def _wanted(notebook: Notebook) -> list[str]:
    """Return what was seen of the things that the goal names."""
    goal = notebook.goal
    return notebook.seen_of(goal.item, *([goal.target] if goal.look else []))


def _listed(notebook: Notebook, wanted: str) -> str:
    return _grouped(notebook.places_of(wanted))


def _grouped(places: Sequence[str]) -> str:
    """Name places with each kind once.

    Example:
        >>> _grouped(["cabinet 2", "cabinet 1", "fridge 1"])
        'cabinet 2 1 , fridge 1'
    """
    groups = groupby(places, kind)
    return (
        " , ".join(f"{name} {' '.join(p.split()[1] for p in each)}" for name, each in groups)
        or "none"
    )
