"""New ALFWorld games from a number, built with what the alfworld package ships.

A game is a room of the package's floor plans with its receptacles, objects put where ALFWorld
allows them, and a goal of one of the six task types; frequencies follow the official train split.
Games are in the official format. The four rooms of the official valid_unseen split are never
used, so that they stay unseen to whoever trains on generated games.

The same split and number give the same game for ever: change what is generated only together with
`VERSION`. Hence all draws come from `random.Random.random`, whose stream Python guarantees.
"""

from __future__ import annotations

import importlib.util
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from parallel_envs.alfworld.package import import_alfworld

__all__ = ["ROOMS", "TASK_TYPES", "VERSION", "GameData", "build", "task_type"]

T = TypeVar("T")

VERSION = 1

# Official train games of each type, by kind of room.
TASK_TYPES: Mapping[str, Mapping[str, int]] = {
    "look_at_obj_in_light": {"Bedroom": 257, "LivingRoom": 51},
    "pick_and_place_simple": {"Bathroom": 264, "Bedroom": 237, "Kitchen": 79, "LivingRoom": 210},
    "pick_clean_then_place_in_recep": {"Bathroom": 149, "Kitchen": 501},
    "pick_cool_then_place_in_recep": {"Kitchen": 533},
    "pick_heat_then_place_in_recep": {"Kitchen": 459},
    "pick_two_obj_and_place": {"Bathroom": 233, "Bedroom": 240, "Kitchen": 124, "LivingRoom": 216},
}

# Floor plans of each kind of room, without those of valid_unseen (10, 219, 308, 424).
ROOMS: Mapping[str, Sequence[int]] = {
    "Kitchen": [n for n in range(1, 31) if n != 10],
    "LivingRoom": [n for n in range(201, 231) if n != 219],
    "Bedroom": [n for n in range(301, 331) if n != 308],
    "Bathroom": [n for n in range(401, 431) if n != 424],
}

# What can be done with objects of a type, as in the official games.
_PICKUPABLE = frozenset(
    "AlarmClock Apple BaseballBat BasketBall Book Boots Bowl Box Bread ButterKnife CD Candle "
    "CellPhone Cloth CreditCard Cup DishSponge Egg Fork Glassbottle HandTowel Kettle KeyChain "
    "Knife Ladle Laptop Lettuce Mug Newspaper Pan PaperTowelRoll Pen Pencil PepperShaker Pillow "
    "Plate Plunger Pot Potato RemoteControl SaltShaker ScrubBrush SoapBar SoapBottle Spatula "
    "Spoon SprayBottle Statue TeddyBear TennisRacket TissueBox ToiletPaper Tomato Towel Vase "
    "Watch WateringCan WineBottle".split()
)
_PROPERTIES: Mapping[str, frozenset[str]] = {
    "cleanable": frozenset(
        "Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Kettle Knife Ladle Lettuce Mug Pan "
        "Plate Pot Potato SoapBar Spatula Spoon Tomato".split()
    ),
    "heatable": frozenset("Apple Bread Cup Egg Mug Plate Potato Tomato".split()),
    "coolable": frozenset(
        "Apple Bowl Bread Cup Egg Lettuce Mug Pan Plate Pot Potato Tomato WineBottle".split()
    ),
    "sliceable": frozenset("Apple Bread Egg Lettuce Potato Tomato".split()),
    "isReceptacleObject": frozenset("Bowl Box Cup Mug Pan Plate Pot".split()),
}
_LOOKED_AT = frozenset(
    "AlarmClock Book Bowl Box CD CellPhone CreditCard KeyChain Laptop Mug Newspaper Pen Pencil "
    "Pillow Plate RemoteControl Statue TissueBox Vase Watch WateringCan".split()
)
_RECEPTACLES = (
    "ArmChair BathtubBasin Bed Cabinet Cart CoffeeMachine CoffeeTable CounterTop Desk DiningTable "
    "Drawer Dresser Fridge GarbageCan HandTowelHolder LaundryHamper Microwave Ottoman Safe Shelf "
    "SideTable SinkBasin Sofa StoveBurner TVStand Toaster Toilet ToiletPaperHanger TowelHolder"
).split()
_OPENABLE = frozenset("Cabinet Drawer Fridge Microwave Safe".split())
_LAMP_STANDS = ("SideTable", "Dresser", "Desk", "Shelf")

# What a task type needs done to its object, where that is done, and with which property.
_TREATMENTS = {
    "pick_clean_then_place_in_recep": ("cleanable", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("heatable", "Microwave"),
    "pick_cool_then_place_in_recep": ("coolable", "Fridge"),
}

# Receptacles that a room has but the floor plans give no place for: (type, fewest, most).
_UNPLACED = {"StoveBurner": (4, 4), "HandTowelHolder": (1, 2), "TowelHolder": (1, 2)}
_EXTRAS = {"Kitchen": {"Cabinet": (0, 5), "Drawer": (0, 2)}}

_COPIES = (0.44, 0.75, 1.0)  # cumulated: one, two or three objects of a type


@dataclass(frozen=True)
class GameData:
    """One game in the official format.

    Attributes:
        domain: PDDL domain.
        problem: PDDL problem.
        grammar: Text rules, with the task's sentence.
        trajectory: What the official ``traj_data.json`` holds of it.
    """

    domain: str
    problem: str
    grammar: str
    trajectory: Mapping[str, Any]


@dataclass(frozen=True)
class _Thing:
    """A receptacle or an object: its type, its name in PDDL and where one stands to reach it."""

    kind: str
    name: str
    place: str
    openable: bool = False


class _Draw:
    """Random draws with a stream that no version of Python changes."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def share(self) -> float:
        return self._random.random()

    def between(self, low: int, high: int) -> int:
        return low + int(self.share() * (high - low + 1))

    def one(self, items: Sequence[T]) -> T:
        return items[self.between(0, len(items) - 1)]

    def weighted(self, weights: Mapping[str, int]) -> str:
        point = self.share() * sum(weights.values())
        for name, weight in weights.items():
            point -= weight
            if point < 0:
                return name
        return name


def task_type(split: str, number: int) -> str:
    """Return the type of a task, without building it."""
    draw = _Draw(f"type/{VERSION}/{split}/{number}")
    return draw.weighted({kind: sum(rooms.values()) for kind, rooms in TASK_TYPES.items()})


def build(split: str, number: int, attempt: int = 0) -> GameData | None:
    """Build a game, or None when this attempt's room does not suit the task type.

    Args:
        split: ``"train"`` or ``"test"``; each has its own games.
        number: Which game of the split.
        attempt: Which try at it.
    """
    kind = task_type(split, number)
    draw = _Draw(f"game/{VERSION}/{split}/{number}/{attempt}")
    room = draw.weighted(TASK_TYPES[kind])
    scene = draw.one(ROOMS[room])
    plan, present = _floor_plan(scene)
    receptacles = _receptacles(draw, room, plan, present)
    kinds = {receptacle.kind for receptacle in receptacles}
    goal = _goal(draw, kind, kinds, present)
    if goal is None:
        return None
    target, parent = goal
    objects = _objects(draw, kind, target, parent, receptacles, present)
    if objects is None:
        return None
    taken = {receptacle.place for receptacle in receptacles}
    start = next(place for place in iter(lambda: _free_place(draw), "") if place not in taken)
    toggle = "DeskLamp" if kind == "look_at_obj_in_light" else ""
    words = {"obj": target, "recep": parent, "toggle": toggle, "mrecep": ""}
    library = import_alfworld("gen.goal_library").gdict[kind]
    sentence = draw.one(library["templates"]).format(
        **{name: word.lower() for name, word in words.items()}
    )
    problem = _problem(
        f"plan_generated_{VERSION}_{split}_{number}",
        receptacles,
        objects,
        start,
        library["pddl"].replace("#", "-").format(**words),
    )
    domain, grammar = _domain_and_grammar()
    trajectory = {
        "task_id": f"generated_{VERSION}_{split}_{number}",
        "task_type": kind,
        "pddl_params": {
            "mrecep_target": "",
            "object_sliced": False,
            "object_target": target,
            "parent_target": parent,
            "toggle_target": toggle,
        },
        "scene": {"floor_plan": f"FloorPlan{scene}", "scene_num": scene, "random_seed": number},
        "turk_annotations": {"anns": [{"task_desc": sentence}]},
    }
    return GameData(domain, problem, grammar.replace("UNKNOWN GOAL", sentence), trajectory)


def _package_folder() -> Path:
    # find_spec does not run the package, whose import has side effects.
    spec = importlib.util.find_spec("alfworld")
    if spec is None or spec.origin is None:
        raise ImportError("No module named 'alfworld'")
    return Path(spec.origin).parent


@lru_cache
def _domain_and_grammar() -> tuple[str, str]:
    folder = _package_folder() / "data"
    return (folder / "alfred.pddl").read_text(), (folder / "alfred.twl2").read_text()


@lru_cache(maxsize=128)
def _floor_plan(scene: int) -> tuple[Mapping[str, Sequence[float]], frozenset[str]]:
    """Return the placed receptacles with their poses, and the types that the scene has."""
    folder = _package_folder() / "gen" / "layouts"
    plan = json.loads((folder / f"FloorPlan{scene}-openable.json").read_text())
    present = json.loads((folder / f"FloorPlan{scene}-objects.json").read_text())
    return plan, frozenset(present)


@lru_cache
def _holders(kind: str) -> frozenset[str]:
    """Return the types of receptacles that may hold objects of a type."""
    allowed = import_alfworld("gen.constants").VAL_RECEPTACLE_OBJECTS
    return frozenset(holder for holder in _RECEPTACLES if kind in allowed.get(holder, ()))


def _receptacles(
    draw: _Draw, room: str, plan: Mapping[str, Sequence[float]], present: frozenset[str]
) -> list[_Thing]:
    things = []
    for id, (x, z, turn, tilt) in sorted(plan.items()):
        place = f"loc|{round(x / 0.25)}|{round(z / 0.25)}|{round(turn / 90)}|{round(tilt)}"
        # As in the official games, a cabinet without a place in the floor plans has no door.
        kind = _kind(id)
        things.append(_Thing(kind, _pddl(id), _pddl(place), openable=kind in _OPENABLE))
    placed = {thing.kind for thing in things}
    for kind in _RECEPTACLES:
        fewest, most = _EXTRAS.get(room, {}).get(kind, (0, 0))
        if kind in present and kind not in placed:
            fewest, most = _UNPLACED.get(kind, (1, 1))
        for _ in range(draw.between(fewest, most)):
            id = f"{kind}|{_coordinates(draw)}"
            if kind.endswith("Basin"):
                id = f"{kind.removesuffix('Basin')}|{_coordinates(draw)}|{kind}"
            things.append(_Thing(kind, _pddl(id), _pddl(_free_place(draw))))
    return things


def _goal(
    draw: _Draw, kind: str, receptacles: set[str], present: frozenset[str]
) -> tuple[str, str] | None:
    """Choose the object and receptacle types of the goal, None where the room has none."""
    objects = sorted(present & _PICKUPABLE)
    if kind == "look_at_obj_in_light":
        if not receptacles & set(_LAMP_STANDS):
            return None
        objects = [name for name in objects if name in _LOOKED_AT and _holders(name) & receptacles]
        return (draw.one(objects), "") if objects else None
    used = ""
    if kind in _TREATMENTS:
        ability, used = _TREATMENTS[kind]
        if used not in receptacles:
            return None
        objects = [name for name in objects if name in _PROPERTIES[ability]]
    pairs = [
        (name, parent)
        for name in objects
        for parent in sorted(_holders(name) & receptacles - {used})
        if _holders(name) & receptacles - {parent}  # somewhere else to be found
    ]
    return draw.one(pairs) if pairs else None


def _objects(
    draw: _Draw,
    kind: str,
    target: str,
    parent: str,
    receptacles: Sequence[_Thing],
    present: frozenset[str],
) -> list[tuple[_Thing, _Thing]] | None:
    """Put objects into receptacles: pairs of an object and where it is."""
    names = sorted((present & _PICKUPABLE) | {target})
    placed = []
    for name in names:
        share = draw.share()
        copies = next(number for number, up_to in enumerate(_COPIES, start=1) if share < up_to)
        holders = [thing for thing in receptacles if thing.kind in _holders(name)]
        if name == target:
            if kind == "pick_two_obj_and_place":
                copies = max(copies, 2)
            if kind in ("pick_and_place_simple", "pick_two_obj_and_place"):
                holders = [thing for thing in holders if thing.kind != parent]
            if not holders:
                return None
        for _ in range(copies if holders else 0):
            placed.append(_put(draw, name, draw.one(holders)))
    if kind == "look_at_obj_in_light":
        stands = [thing for thing in receptacles if thing.kind in _LAMP_STANDS]
        placed.append(_put(draw, "DeskLamp", draw.one(stands)))
    return placed


def _put(draw: _Draw, name: str, holder: _Thing) -> tuple[_Thing, _Thing]:
    return _Thing(name, _pddl(f"{name}|{_coordinates(draw)}"), holder.place), holder


def _problem(
    name: str,
    receptacles: Sequence[_Thing],
    objects: Sequence[tuple[_Thing, _Thing]],
    start: str,
    goal: str,
) -> str:
    """Write the PDDL problem."""
    kinds = sorted(set(import_alfworld("gen.constants").OBJECTS) - set(_RECEPTACLES))
    places = dict.fromkeys([*(thing.place for thing in receptacles), start])
    declared = [
        "agent1 - agent",
        *(f"{kind} - object" for kind in kinds),
        *(f"{kind}Type - otype" for kind in kinds),
        *(f"{kind}Type - rtype" for kind in _RECEPTACLES),
        *(f"{thing.name} - object" for thing, _ in objects),
        *(f"{thing.name} - receptacle" for thing in receptacles),
        *(f"{place} - location" for place in places),
    ]
    facts = [f"receptacleType {thing.name} {thing.kind}Type" for thing in receptacles]
    facts += [f"objectType {thing.name} {thing.kind}Type" for thing, _ in objects]
    facts += [
        f"canContain {holder}Type {kind}Type"
        for holder in sorted({thing.kind for thing in receptacles})
        for kind in sorted({thing.kind for thing, _ in objects})
        if holder in _holders(kind)
    ]
    for thing, _ in objects:
        facts.append(f"{'toggleable' if thing.kind == 'DeskLamp' else 'pickupable'} {thing.name}")
        facts += [
            f"{property} {thing.name}"
            for property, having in _PROPERTIES.items()
            if thing.kind in having
        ]
    facts += [f"openable {thing.name}" for thing in receptacles if thing.openable]
    facts.append(f"atLocation agent1 {start}")
    facts += [f"inReceptacle {thing.name} {holder.name}" for thing, holder in objects]
    facts += [f"receptacleAtLocation {thing.name} {thing.place}" for thing in receptacles]
    facts += [f"objectAtLocation {thing.name} {thing.place}" for thing, _ in objects]
    lines = "\n        ".join
    return (
        f"\n(define (problem {name})\n(:domain alfred)\n(:objects\n        {lines(declared)}\n"
        f"        )\n(:init\n        {lines(f'({fact})' for fact in facts)}\n        )\n{goal}"
    )


def _kind(id: str) -> str:
    parts = id.split("|")
    return parts[4] if len(parts) == 5 else parts[0]


def _coordinates(draw: _Draw) -> str:
    return "|".join(
        f"{low + (high - low) * draw.share():+06.2f}"
        for low, high in ((-9.0, 9.0), (0.1, 2.0), (-9.0, 9.0))
    )


def _free_place(draw: _Draw) -> str:
    """Return a place beyond those of the floor plans, which end at 40 steps from the middle."""
    x, z = draw.between(50, 99), draw.between(-99, 99)
    return _pddl(f"loc|{x}|{z}|{draw.between(0, 3)}|{draw.one((0, 30, 45, 60))}")


_ESCAPES = {"|": "_bar_", "-": "_minus_", "+": "_plus_", ".": "_dot_"}


def _pddl(id: str) -> str:
    """Escape an id as ALFWorld does: ``Mug|+00.12|…`` becomes ``Mug_bar__plus_00_dot_12…``."""
    return re.sub(r"[|.+-]", lambda match: _ESCAPES[match[0]], id)
