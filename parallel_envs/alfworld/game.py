"""`AlfworldGame`: n replicas of one ALFWorld game on one loaded copy of the planner library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from textworld.logic import Proposition, Variable

from parallel_envs.alfworld.blueprint import Blueprint
from parallel_envs.alfworld.downward import Downward, Operator
from parallel_envs.alfworld.planner import plan
from parallel_envs.game import GameState

__all__ = ["AlfworldGame"]


class _Position(NamedTuple):
    """What depends on the library's state alone, shared by all replicas that are in it."""

    operators: dict[str, Operator]  # by command
    admissible: tuple[str, ...]
    won: bool


@dataclass(slots=True)
class _Replica:
    state_id: int  # in the library
    facts: int  # in the blueprint's table
    key: int


class AlfworldGame:
    """n replicas of one game; text, commands, win and facts equal the stock engine's.

    The library holds one state at a time. A replica is a state's number in the library and a set
    of facts; to step it, its state is made the current one, which takes microseconds.
    """

    def __init__(self, blueprint: Blueprint, n: int) -> None:
        self._blueprint = blueprint
        self._downward = Downward(blueprint.sas)
        self._n = n
        self._positions: dict[int, _Position] = {}
        self._start = _Replica(self._downward.state_id(), blueprint.initial, 0)
        for atom in self._downward.atoms():
            if atom.startswith("Atom "):
                self._start.facts |= blueprint.table.change(atom)[0]
        self._start.key = blueprint.table.key(self._start.facts)
        self._replicas: list[_Replica] = []
        self.objective = blueprint.text("#task#", {}, self._start.facts)

    def start(self) -> tuple[GameState, ...]:
        """Put every replica into the start state."""
        start = self._start
        self._replicas = [
            _Replica(start.state_id, start.facts, start.key) for _ in range(self._n)
        ]
        intro = self._blueprint.text("#intro#", {}, start.facts)
        return tuple(self._state(replica, intro) for replica in self._replicas)

    def step(self, replica: int, action: str) -> GameState:
        """Send one command to one replica; an inadmissible one does nothing."""
        current = self._replicas[replica]
        operator = self._position(current.state_id).operators.get(action.strip())
        if operator is None:
            return self._state(current, "Nothing happens.")
        self._downward.go_to(current.state_id)
        before = current.facts
        for effect in self._downward.apply(operator):
            sets, clears = self._blueprint.table.change(effect)
            current.facts = current.facts & ~clears | sets
        current.state_id = self._downward.state_id()
        current.key ^= self._blueprint.table.key(before ^ current.facts)
        feedback = self._blueprint.text(
            self._blueprint.action(operator.name).feedback,
            self._blueprint.binding(operator.name),
            current.facts,
        )
        return self._state(current, feedback)

    def expert_plan(self, replica: int) -> tuple[str, ...]:
        """Plan with Fast Downward from where `replica` stands; empty when there is no plan."""
        current = self._replicas[replica]
        return plan(self._blueprint, current.facts)

    def facts(self, replica: int) -> list[Proposition]:
        """Return the facts that hold in a replica, with the names that the player reads."""
        entities = self._blueprint.entities
        return [
            Proposition(
                fact.name, [Variable(entities[var.name].name, var.type) for var in fact.arguments]
            )
            for fact in self._blueprint.table.propositions(self._replicas[replica].facts)
        ]

    def close(self) -> None:
        """Give the library back for the next game."""
        self._downward.close()

    def _position(self, state_id: int) -> _Position:
        position = self._positions.get(state_id)
        if position is None:
            self._downward.go_to(state_id)
            operators: dict[str, Operator] = {}
            for operator in self._downward.applicable():
                # The first of several ground actions with one command is the one that runs.
                operators.setdefault(self._blueprint.command(operator.name), operator)
            position = _Position(
                operators, tuple(sorted(operators)), self._downward.goal_reached()
            )
            self._positions[state_id] = position
        return position

    def _state(self, replica: _Replica, observation: str) -> GameState:
        _, admissible, won = self._position(replica.state_id)
        return GameState(
            observation=observation,
            admissible_actions=admissible,
            score=float(won),
            raw_score=float(won),
            won=won,
            lost=False,
            state_key=f"{replica.key:024x}",
        )
