"""The `compact` prompt: what matters of an ALFWorld history in a few hundred tokens.

All of it is read off the texts (`agents.notebook`), and none of it is advice: the goal, where its
objects were seen, which places nobody has looked into, and where each replica stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from agents.history import History
from agents.notebook import Goal, Hand, Notebook, kind
from agents.parts import Part

__all__ = ["compact", "notebook_of"]


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

    Raises:
        ValueError: The history is not of ALFWorld.
    """
    notebook = notebook_of(history)
    goal = notebook.goal
    wanted = {goal.item, goal.target} if goal.look else {goal.item}
    seen = [
        f"{item} at {place}"
        for item, place in sorted(notebook.seen.items())
        if kind(item) in wanted
    ]
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
        lines.append(f"env {env}: {_state(hand, notebook, env - 1)}{' , failed' * failed}")
    return "", ["\n".join(lines)]


def _goal(goal: Goal) -> str:
    verb = {"sinkbasin": "clean", "microwave": "hot", "fridge": "cool"}.get(goal.tool or "", "")
    if goal.look:
        return f"look {goal.item} {goal.target}"
    return " ".join(
        filter(None, ["put", "two" if goal.count == 2 else "", verb, goal.item, "in", goal.target])
    )


def _state(hand: Hand, notebook: Notebook, replica: int) -> str:
    place = hand.place or "start"
    closed = " closed" if notebook.is_closed(replica) else ""
    held = f" , holds {hand.held}" if hand.held else ""
    treated = " done" if hand.held in hand.treated else ""
    put = "".join(f" , put {item} in {where}" for item, where in sorted(hand.moved.items()))
    return f"at {place}{closed}{held}{treated}{put}"


def _listed(notebook: Notebook, wanted: str) -> str:
    return _grouped([place for place in notebook.places if kind(place) == wanted])


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
