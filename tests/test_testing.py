"""The checks for engines: content with ours, and each finds the fault it is made for."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import pytest

from parallel_envs import ReplicaMismatchError
from parallel_envs.alfworld.generated import GeneratedTasks
from parallel_envs.alfworld.tasks import AlfworldTasks
from parallel_envs.game import GameState, Task
from parallel_envs.scienceworld.tasks import ScienceWorldTasks
from parallel_envs.testing import check_engine
from parallel_envs.toy import ToyGame, ToyTasks
from tests.engines import ENGINES


@pytest.mark.parametrize(
    "make",
    [
        ToyTasks,
        lambda: AlfworldTasks("valid_seen"),
        lambda: GeneratedTasks("generated:test"),
        lambda: ScienceWorldTasks("L1", ENGINES["scienceworld"][1]["tasks"]),
    ],
    ids=["toy", "alfworld", "generated", "scienceworld"],
)
def test_our_engines_keep_their_promises(make: Callable) -> None:
    check_engine(make, tasks=1, turns=8)


counter = itertools.count()
shared: list[str] = []


class UnequalStart(ToyGame):
    def start(self) -> tuple[GameState, ...]:
        first, *others = super().start()
        return (first, *(dataclasses.replace(state, state_key="other") for state in others))


class UncleanStart(ToyGame):
    def start(self) -> tuple[GameState, ...]:
        return tuple(self._state(house, self._look(house)) for house in self._houses)


class Leaky(ToyGame):
    """A replica's texts tell what another one did."""

    def step(self, replica: int, action: str) -> GameState:
        shared.append(action)
        state = super().step(replica, action)
        return dataclasses.replace(state, observation=state.observation + shared[-2:][0])


class LeakyLater(ToyGame):
    """One replica walks for all, but only from the third action on."""

    def step(self, replica: int, action: str) -> GameState:
        self.count = getattr(self, "count", 0) + 1
        state = super().step(replica, action)
        if self.count > 2:
            self._houses = [self._houses[replica]] * len(self._houses)
        return state


class Random(ToyGame):
    def step(self, replica: int, action: str) -> GameState:
        state = super().step(replica, action)
        return dataclasses.replace(state, state_key=state.state_key + str(next(counter)))


class SharedFork(ToyGame):
    def fork(self) -> ToyGame:
        twin = super().fork()
        twin._houses = self._houses
        return twin


class ForgetfulFork(ToyGame):
    def fork(self) -> ToyGame:
        twin = super().fork()
        twin.start()
        return twin


class LosingExpert(ToyGame):
    def expert_plan(self, replica: int, expert: str) -> tuple[str, ...]:
        return ("look",)


class NoActions(ToyGame):
    def _actions(self, house: object) -> tuple[str, ...]:
        return ()


@pytest.mark.parametrize(
    ("game", "message"),
    [
        (UnequalStart, "replica 1 and replica 0 at the start|did not start in the same"),
        (UncleanStart, "second start and its first"),
        (Leaky, "Deterministic step"),  # found by Gymnasium's own checker
        (LeakyLater, "alone and beside others"),
        (Random, "Deterministic step"),
        (SharedFork, "the original after a fork"),
        (ForgetfulFork, "a fork, its original closed"),
        (LosingExpert, "the expert's plan does not win"),
        (NoActions, "must have an admissible action"),
    ],
)
def test_each_fault_is_found(game: type[ToyGame], message: str) -> None:
    class Tasks(ToyTasks):
        def open(self, task: Task, n: int) -> ToyGame:
            coin, trap = (part.split("-")[1] for part in task.id.split("/"))
            return game(coin, trap, n)

    with pytest.raises((AssertionError, ReplicaMismatchError), match=message):
        check_engine(Tasks, turns=15)


def test_faults_of_a_task_set_are_found() -> None:
    class Twice(ToyTasks):
        def __init__(self) -> None:
            super().__init__()
            self.tasks = (*self.tasks, self.tasks[0])

    class Nameless(ToyTasks):
        def __init__(self) -> None:
            super().__init__()
            self.versions = {}

    with pytest.raises(AssertionError, match="occurs twice"):
        check_engine(Twice)
    with pytest.raises(AssertionError, match="versions must name"):
        check_engine(Nameless)
    with pytest.raises(ValueError, match="at least 2"):
        check_engine(ToyTasks, n=1)
