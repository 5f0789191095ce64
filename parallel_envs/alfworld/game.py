"""`AlfworldGame`: n replicas of one ALFWorld game on one loaded copy of the planner library."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from textworld.logic import Proposition, Variable

from parallel_envs.alfworld.blueprint import Blueprint
from parallel_envs.alfworld.downward import Downward, Operator, exclusive
from parallel_envs.alfworld.handcoded import handcoded_plan
from parallel_envs.alfworld.planner import plan
from parallel_envs.game import GameState

__all__ = ["AlfworldGame", "Replica"]


# States that a game remembers before it forgets them at its next start: about 10 MB.
_MANY_STATES = 5_000


class _Position(NamedTuple):
    """What depends on the library's state alone, shared by all replicas that are in it."""

    operators: dict[str, Operator]  # by command
    admissible: tuple[str, ...]
    won: bool
    reached: frozenset[str]


class Replica(NamedTuple):
    """Where one replica stands."""

    state_id: int  # in the library
    facts: int  # in the blueprint's table
    key: int  # of the facts


class AlfworldGame:
    """n replicas of one game; text, commands, win and facts equal the stock engine's.

    The library holds one state at a time. A replica is a state's number in the library and a set
    of facts; to step it, its state is made the current one, which takes microseconds.

    Args:
        blueprint: The game.
        n: Number of replicas.
        trajectory: Returns what ``traj_data.json`` holds, for the hand-coded expert.
    """

    @exclusive
    def __init__(
        self, blueprint: Blueprint, n: int, trajectory: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._blueprint = blueprint
        self._trajectory = trajectory
        self._downward = Downward(blueprint.sas)  # given back by itself if what follows fails
        self._closed = False
        self._positions: dict[int, _Position] = {}  # states of the library, so forks share it
        facts = blueprint.initial
        for atom in self._downward.atoms():
            if atom.startswith("Atom "):
                facts |= blueprint.table.change(atom)[0]
        self._start = Replica(self._downward.state_id(), facts, blueprint.table.key(facts))
        self._replicas = [self._start] * n
        self.checkpoints = blueprint.checkpoints.names
        self.objective = blueprint.text("#task#", {}, facts)

    @exclusive
    def start(self) -> tuple[GameState, ...]:
        """Put every replica into the start state."""
        if len(self._positions) > _MANY_STATES and self._downward.start_over():
            self._positions = {}
        self._replicas = [self._start] * len(self._replicas)
        return tuple(self.state(replica, self.intro(replica)) for replica in self._replicas)

    @exclusive
    def step(self, replica: int, action: str) -> GameState:
        """Send one command to one replica; an inadmissible one does nothing."""
        self._replicas[replica], text = self.successor(self._replicas[replica], action)
        return self.state(self._replicas[replica], text)

    def successor(self, replica: Replica, action: str) -> tuple[Replica, str]:
        """Return what a command makes of a replica, and the game's answer to it."""
        operator = self._position(replica).operators.get(action.strip())
        if operator is None:
            return replica, "Nothing happens."
        table = self._blueprint.table
        self._downward.go_to(replica.state_id)
        facts = replica.facts
        for effect in self._downward.apply(operator):
            sets, clears = table.change(effect)
            facts = facts & ~clears | sets
        after = Replica(
            self._downward.state_id(), facts, replica.key ^ table.key(replica.facts ^ facts)
        )
        feedback = self._blueprint.action(operator.name).feedback
        return after, self._blueprint.text(feedback, self._blueprint.binding(operator.name), facts)

    @exclusive
    def expert_plan(self, replica: int, expert: str) -> tuple[str, ...]:
        """Plan from where `replica` stands; empty when the expert finds no way."""
        if expert == "planner":
            return plan(self._blueprint, self._replicas[replica].facts)
        return handcoded_plan(self, self._replicas[replica], self._trajectory())

    def facts(self, replica: Replica) -> list[Proposition]:
        """Return the facts that hold for a replica, with the names that the player reads."""
        entities = self._blueprint.entities
        return [
            Proposition(
                fact.name, [Variable(entities[var.name].name, var.type) for var in fact.arguments]
            )
            for fact in self._blueprint.table.propositions(replica.facts)
        ]

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """Where the replicas stand."""
        return tuple(self._replicas)

    @exclusive
    def fork(self) -> AlfworldGame:
        """Copy the replicas' states, which takes microseconds; the library is shared."""
        twin = copy.copy(self)
        twin._replicas = list(self._replicas)
        twin._downward = self._downward.share()
        return twin

    @exclusive
    def close(self) -> None:
        """Give the library back for the next game."""
        if not self._closed:
            self._closed = True
            self._downward.close()

    def intro(self, replica: Replica) -> str:
        """Return the text that opens a game."""
        return self._blueprint.text("#intro#", {}, replica.facts)

    def state(self, replica: Replica, observation: str) -> GameState:
        """Return what a replica shows."""
        position = self._position(replica)
        return GameState(
            observation=observation,
            admissible_actions=position.admissible,
            score=float(position.won),
            raw_score=float(position.won),
            won=position.won,
            lost=False,
            state_key=f"{replica.key:024x}",
            reached=position.reached,
            engine_done=position.won,
        )

    def _position(self, replica: Replica) -> _Position:
        position = self._positions.get(replica.state_id)
        if position is None:
            self._downward.go_to(replica.state_id)
            operators: dict[str, Operator] = {}
            for operator in self._downward.applicable():
                # The first of several ground actions with one command is the one that runs.
                operators.setdefault(self._blueprint.command(operator.name), operator)
            position = _Position(
                operators,
                tuple(sorted(operators)),
                self._downward.goal_reached(),
                self._blueprint.checkpoints.reached(replica.facts),
            )
            self._positions[replica.state_id] = position
        return position
