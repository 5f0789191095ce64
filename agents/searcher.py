"""The searcher: a hand-written parallel player of ALFWorld that reads nothing but the text.

Its replicas look in different places; what one of them sees, all of them know. It is the teacher of
the cold start, and a baseline of its own: what sharing observations is worth without any learning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agents.agent import Agent, AgentError, View
from agents.notebook import VERBS, Notebook, kind

__all__ = ["SearcherAgent", "choose", "reason"]


@dataclass(frozen=True)
class SearcherAgent(Agent):
    """Searches with all replicas, then does the task in those that hold what it takes."""

    def act(self, views: Sequence[View]) -> list[tuple[str, ...] | AgentError]:
        """Return a joint action for each episode."""
        return [self._next(view) for view in views]

    def _next(self, view: View) -> tuple[str, ...] | AgentError:
        texts = view.observation["observations"]
        try:
            if "notebook" not in view.memory:
                task = view.observation["task"]
                view.memory["notebook"] = Notebook.start(task, texts[0], view.n)
        except ValueError as error:
            return AgentError(str(error))
        notebook: Notebook = view.memory["notebook"]
        sent = view.memory.get("sent", ("",) * view.n)
        for replica, action in enumerate(sent):
            if action and view.info["acted"][replica]:
                notebook.note(replica, action, texts[replica])
        view.memory["sent"] = choose(notebook, view.info["admissible_actions"])
        joint: tuple[str, ...] = view.memory["sent"]
        return joint


def choose(
    notebook: Notebook,
    admissible: Sequence[Sequence[str]],
    rng: np.random.Generator | None = None,
) -> tuple[str, ...]:
    """Return the next action of every replica.

    Args:
        notebook: What is known.
        admissible: The admissible actions of each replica.
        rng: Draws among places and things that serve as well, where none of them is at hand;
            without it places are searched in the order of the start, and replica i takes the i-th
            thing.
            Who learns from draws has no habit to unlearn, and something to try.
    """
    claimed: set[str] = set()
    joint = []
    for replica, actions in enumerate(admissible):
        action, place = _errand(notebook, replica, rng) or (
            "",
            _search(notebook, replica, claimed, rng),
        )
        claimed |= {place} if not action else set()
        # Two receptacles can stand in one place: then there is no going from one to the other.
        steps = (action, f"open {place}", f"go to {place}", f"examine {place}")
        joint.append(next((step for step in steps if step in actions), ""))
    return tuple(joint)


def reason(notebook: Notebook) -> str:
    """Return in a few words what the replica that has come furthest is up to.

    Example:
        >>> reason(Notebook.start("put a hot potato in fridge.", "a fridge 1, a microwave 1", 4))
        'find potato'
    """
    goal = notebook.goal
    holding = [hand for hand in notebook.hands if hand.held]
    if ready := next(
        (hand for hand in holding if not goal.tool or hand.held in hand.treated), None
    ):
        return f"{'look at' if goal.look else 'put'} {ready.held}"
    if holding:
        return f"{VERBS[goal.tool or '']} {holding[0].held}"
    moved = {item for hand in notebook.hands for item in hand.moved}
    loose = [item for item in notebook.seen_of(goal.item) if item not in moved]
    return f"take {loose[0]}" if loose else f"find {goal.item}"


def _errand(
    notebook: Notebook, replica: int, rng: np.random.Generator | None
) -> tuple[str, str] | None:
    """Return the action that a replica is to work towards and where, None if it has to search."""
    goal, hand = notebook.goal, notebook.hands[replica]

    def pick(things: Sequence[str]) -> tuple[str, str] | None:
        """Choose a thing, and return it with its place."""
        places = [(thing, notebook.where(replica, thing) or thing) for thing in things]
        if not places:
            return None
        if rng is None:
            return places[replica % len(places)]
        here = [pair for pair in places if pair[1] == hand.place]
        return here[0] if here else places[rng.integers(len(places))]

    if hand.held and kind(hand.held) != goal.item:  # Taken by mistake.
        return f"move {hand.held} to {hand.place}", hand.place
    if hand.held and goal.tool and hand.held not in hand.treated:
        tool = pick(notebook.places_of(goal.tool))
        return (f"{VERBS[goal.tool]} {hand.held} with {tool[0]}", tool[1]) if tool else None
    if hand.held and goal.look:
        lamp = pick(notebook.seen_of(goal.target))
        return (f"use {lamp[0]}", lamp[1]) if lamp else None
    if hand.held:
        put = sorted({place for item, place in hand.moved.items() if kind(item) == goal.item})
        target = pick(put or notebook.places_of(goal.target))
        return (f"move {hand.held} to {target[0]}", target[1]) if target else None
    item = pick([item for item in notebook.seen_of(goal.item) if item not in hand.moved])
    return (f"take {item[0]} from {item[1]}", item[1]) if item else None


def _search(
    notebook: Notebook, replica: int, claimed: set[str], rng: np.random.Generator | None
) -> str:
    """Return a place to look into that no other replica is on its way to."""
    unseen = [place for place in notebook.unseen() if place not in claimed]
    here = notebook.hands[replica].place
    if here in unseen:
        return here
    if rng is not None:
        rng.shuffle(unseen)
    taken = {hand.place for hand in notebook.hands}
    return next((place for place in unseen if place not in taken), unseen[0] if unseen else "")
