"""`Notebook`: what the texts of all replicas of an ALFWorld game have told, in one place."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["VERBS", "Goal", "Hand", "Notebook", "kind", "read_goal"]

_TASKS = [
    (r"(?:look at|examine the) (\w+) (?:under|with) the (\w+)", "look"),
    (r"(clean|heat|cool) some (\w+) and put it in (\w+)", "treat"),
    (r"put a (clean|hot|cool) (\w+) in (\w+)", "treat"),
    (r"(?:find two|put two) (\w+) (?:and put them )?in (\w+)", "two"),
    (r"put (?:a|some) (\w+) (?:in|on) (\w+)", "one"),
]
_TOOLS = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge", "hot": "microwave"}
# What is done with the tool.
VERBS = {"sinkbasin": "clean", "microwave": "heat", "fridge": "cool"}
_THING = re.compile(r"\ban? (\w+ \d+)")


@dataclass(frozen=True, slots=True)
class Goal:
    """What a task sentence asks for.

    Attributes:
        item: Kind of the object, ``"potato"``.
        target: Kind of the receptacle that it goes to; of the lamp, where it is to be looked at.
        tool: Kind of the receptacle that it is cleaned, heated or cooled with, None if it is not.
        count: How many of them.
        look: Whether it is to be looked at under a lamp.
    """

    item: str
    target: str
    tool: str | None = None
    count: int = 1
    look: bool = False


def read_goal(task: str) -> Goal:
    """Read a task sentence of ALFWorld.

    Raises:
        ValueError: It is of another game.

    Example:
        >>> read_goal("Your task is to: put a hot potato in garbagecan.")
        Goal(item='potato', target='garbagecan', tool='microwave', count=1, look=False)
    """
    for pattern, form in _TASKS:
        match = re.search(pattern, task)
        if match is None:
            continue
        words = match.groups()
        if form == "look":
            return Goal(words[0], words[1], look=True)
        if form == "treat":
            return Goal(words[1], words[2], tool=_TOOLS[words[0]])
        return Goal(words[0], words[1], count=2 if form == "two" else 1)
    raise ValueError(f"not a task of ALFWorld: {task!r}")


@dataclass
class Hand:
    """What is known of one replica alone.

    Attributes:
        place: The receptacle where the player is, ``""`` at the start.
        held: The object in hand, ``""`` for none.
        treated: Objects that were cleaned, heated or cooled.
        moved: Where objects were put.
        opened: Receptacles that were opened.
    """

    place: str = ""
    held: str = ""
    treated: set[str] = field(default_factory=set)
    moved: dict[str, str] = field(default_factory=dict)
    opened: set[str] = field(default_factory=set)


@dataclass
class Notebook:
    """What the texts of all replicas have told so far.

    Attributes:
        goal: What the task asks for.
        places: All receptacles, in the order in which the start names them.
        seen: Where each object is at the start, as far as it was seen.
        looked: The receptacles whose content was seen.
        closed: Receptacles that were found closed.
        hands: The replicas.
    """

    goal: Goal
    places: tuple[str, ...]
    seen: dict[str, str] = field(default_factory=dict)
    looked: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)
    hands: list[Hand] = field(default_factory=list)

    @classmethod
    def start(cls, task: str, text: str, n: int) -> Notebook:
        """Open a notebook on what every replica shows at the start."""
        return cls(read_goal(task), tuple(_THING.findall(text)), hands=[Hand() for _ in range(n)])

    def note(self, replica: int, action: str, text: str) -> None:
        """Take note of an action of a replica and what it showed then."""
        hand = self.hands[replica]
        if text.startswith("Nothing happens"):
            return
        words = action.split()
        match words[:1]:
            case ["open"]:
                hand.opened.add(hand.place)
            case ["close"]:
                hand.opened.discard(hand.place)
            case ["go"]:
                hand.place = " ".join(words[2:])
            case ["take"]:
                hand.held = " ".join(words[1:3])
            case ["move"]:
                hand.moved[hand.held] = " ".join(words[4:])
                hand.held = ""
            case ["clean" | "heat" | "cool"]:
                hand.treated.add(hand.held)
        if words[:1] == ["examine"]:
            self._look(hand, " ".join(words[1:]), text)
        elif words[0] in ("go", "open"):
            self._look(hand, hand.place, text)

    def is_closed(self, replica: int) -> bool:
        """Whether a replica stands before something that it would have to open."""
        hand = self.hands[replica]
        return hand.place in self.closed and hand.place not in hand.opened

    def where(self, replica: int, item: str) -> str:
        """Return where an object is in a replica, ``""`` in hand or unknown."""
        hand = self.hands[replica]
        return "" if item == hand.held else hand.moved.get(item, self.seen.get(item, ""))

    def places_of(self, wanted: str) -> list[str]:
        """Return the receptacles of a kind, in the order of the start."""
        return [place for place in self.places if kind(place) == wanted]

    def seen_of(self, *kinds: str) -> list[str]:
        """Return the objects of some kinds that were seen, by name."""
        return [item for item in sorted(self.seen) if kind(item) in kinds]

    def unseen(self) -> list[str]:
        """Return the receptacles that nobody has looked into, in the order of the start."""
        return [place for place in self.places if place not in self.looked]

    def _look(self, hand: Hand, place: str, text: str) -> None:
        if f"The {place} is closed" in text:
            self.closed.add(place)
            return
        if "you see" not in text:
            return
        self.looked.add(place)
        for item in _THING.findall(text.partition("you see")[2]):
            if item not in hand.moved:
                self.seen.setdefault(item, place)


def kind(thing: str) -> str:
    """Return the kind of a thing.

    Example:
        >>> kind("cabinet 6")
        'cabinet'
    """
    return thing.split()[0]
