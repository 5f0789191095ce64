"""What there is to discover for the goal of an ALFWorld game, as bit masks over its facts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from parallel_envs.alfworld.downward import parse_pddl
from parallel_envs.alfworld.facts import Fact, FactTable

__all__ = ["Checkpoints"]


class Checkpoints:
    """The checkpoints of a game; a state has reached one when all bits of one of its masks are set.

    From the goal and the domain alone:

    - ``place: R``: the agent is at a receptacle of a type that the goal names, or of one that an
      action needs which the goal asks for (to heat: a microwave).
    - ``object: O``: an object of a type that the goal names is in sight or in hand.
    - ``state: O held``, ``state: O hot`` (…), ``state: O in T``: it is in hand, in a condition that
      the goal asks for, in a receptacle of the goal's type.

    Args:
        domain: PDDL domain of the game.
        problem: PDDL problem of the game.
        table: Numbers the game's facts.
        initial: The facts that the problem states.
        names: What the player reads for each object.
    """

    def __init__(
        self, domain: str, problem: str, table: FactTable, initial: int, names: Mapping[str, str]
    ) -> None:
        static: dict[str, list[tuple[str, ...]]] = defaultdict(list)
        for fact in table.facts(initial):
            static[fact.predicate].append(fact.arguments)
        (agent,) = {arguments[0] for arguments in static["atlocation"]}
        sections = {part[0]: part for part in parse_pddl(problem)[1:]}
        goal = list(_atoms(sections[":goal"]))
        kinds = {atom[0]: {a[2] for a in goal if a[0] == atom[0]} for atom in goal if len(atom) > 2}
        conditions = {atom[0] for atom in goal if len(atom) == 2 and atom[0].startswith("is")}
        targets = kinds.get("receptacletype", set())
        tools = _tools(domain, conditions)
        location = {fact[0]: fact[1] for fact in static["receptacleatlocation"]}
        openable = {arguments[0] for arguments in static["openable"]}
        pickupable = {arguments[0] for arguments in static["pickupable"]}
        kind_of = {fact[0]: fact[1] for fact in static["receptacletype"]}
        fits = set(static["cancontain"])

        def bit(predicate: str, *arguments: str) -> int:
            return table.bit(Fact(predicate, arguments))

        # By the place they need the agent at, None for none: few places have to be looked at.
        self._masks: dict[int | None, list[tuple[str, int]]] = defaultdict(list)
        for receptacle, kind in kind_of.items():
            if kind in targets | tools and receptacle in location:
                here = bit("atlocation", agent, location[receptacle])
                self._masks[here].append((f"place: {names[receptacle]}", 0))
        for item, kind in static["objecttype"]:
            if kind not in kinds.get("objecttype", set()):
                continue
            name = names[item]
            if item in pickupable:
                held = bit("holds", agent, item)
                self._masks[None] += [(f"state: {name} held", held), (f"object: {name}", held)]
            for condition in conditions:
                if (item,) in static[_ABLE.get(condition, "")]:
                    mask = bit(condition, item)
                    self._masks[None].append((f"state: {name} {condition[2:]}", mask))
            for receptacle, place in location.items():
                inside, holder = (item, receptacle), kind_of.get(receptacle, "")
                if (holder, kind) not in fits and inside not in static["inreceptacle"]:
                    continue
                mask = bit("inreceptacle", *inside)
                if holder in targets and item in pickupable:
                    target = holder.removesuffix("type")
                    self._masks[None].append((f"state: {name} in {target}", mask))
                if receptacle in openable:
                    mask |= bit("opened", receptacle)
                self._masks[bit("atlocation", agent, place)].append((f"object: {name}", mask))
        self.names = tuple(sorted({name for group in self._masks.values() for name, _ in group}))

    def reached(self, state: int) -> frozenset[str]:
        """Return the names of the checkpoints that hold in a state."""
        return frozenset(
            name
            for place, group in self._masks.items()
            if place is None or state & place
            for name, mask in group
            if state & mask == mask
        )


# What an object must be for a condition to be within reach.
_ABLE = {
    "isclean": "cleanable",
    "ishot": "heatable",
    "iscool": "coolable",
    "istoggled": "toggleable",
    "issliced": "sliceable",
}


def _tools(domain: str, conditions: set[str]) -> set[str]:
    """Return the types of receptacles that actions with one of the effects ask for."""
    found = set()
    for part in parse_pddl(domain)[1:]:
        if part[0] != ":action":
            continue
        section = dict(zip(part[2::2], part[3::2], strict=False))
        effects = {atom[0] for atom in _atoms(section[":effect"], negated=False)}
        if effects & conditions:
            needs = _atoms(section[":precondition"])
            found |= {atom[2] for atom in needs if atom[0] == "receptacletype"}
    return found


def _atoms(tree: Any, negated: bool = True) -> Iterator[list[str]]:
    """Yield the atoms of a condition or an effect."""
    if not isinstance(tree, list) or not tree or (tree[0] == "not" and not negated):
        return
    if all(isinstance(word, str) for word in tree) and not str(tree[0]).startswith((":", "?")):
        yield tree
    for part in tree:
        yield from _atoms(part, negated)
