"""`GeneratedTasks`: an endless supply of verified ALFWorld games, with no download."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from parallel_envs.alfworld.generator import VERSION, GameData, build, task_type
from parallel_envs.errors import EngineError
from parallel_envs.game import Task, select_tasks
from parallel_envs.versions import installed, not_usable

if TYPE_CHECKING:
    from parallel_envs.alfworld.game import AlfworldGame

__all__ = ["SIZES", "GeneratedTasks", "verified_game"]

SIZES: Mapping[str, int] = {"train": 20_000, "test": 1_000}

_ATTEMPTS = 50


class GeneratedTasks:
    """Generated games of one split; ids are ``generated-v1/SPLIT/NUMBER``.

    Each game was solved by the planner, and won in the game itself, before it is played.

    Args:
        split: ``"generated:train"`` (20,000 games), also called ``"generated"``, or
            ``"generated:test"`` (1,000); they have no game in common.
        wanted: Task ids or task types to restrict to; None for all.

    Example:
        >>> GeneratedTasks("generated:test").tasks[7].id
        'generated-v1/test/00007'
    """

    engine = "alfworld"
    experts = ("planner", "handcoded")

    def __init__(self, split: str, wanted: Sequence[str] | None = None) -> None:
        name = "train" if split == "generated" else split.removeprefix("generated:")
        if name not in SIZES or not split.startswith("generated"):
            raise ValueError(f"split must be generated:train or generated:test, not {split!r}")
        self.split = f"generated:{name}"
        self._name = name
        self.tasks = select_tasks(_tasks(name), wanted)

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of the generator and of the packages that decide what the games do and say."""
        packages = installed("alfworld", "alfworld", "textworld", "fast-downward-textworld")
        return {**packages, "generated-games": str(VERSION)}

    def open(self, task: Task, n: int) -> AlfworldGame:
        """Build n replicas of a game."""
        try:
            from parallel_envs.alfworld.blueprint import blueprint
            from parallel_envs.alfworld.game import AlfworldGame

            data, _ = verified_game(self._name, int(task.id.rsplit("/", 1)[1]))
        except ImportError as error:
            raise not_usable("alfworld", error) from error
        shared = blueprint(data.domain, data.problem, data.grammar)
        return AlfworldGame(shared, n, lambda: data.trajectory)

    def share(self) -> GeneratedTasks:
        """Return itself: games hold all there is to close."""
        return self

    def close(self) -> None:
        """Nothing to free: games hold all there is."""


@lru_cache
def _tasks(name: str) -> tuple[Task, ...]:
    return tuple(
        Task(f"generated-v{VERSION}/{name}/{number:05}", task_type(name, number))
        for number in range(SIZES[name])
    )


@lru_cache(maxsize=64)
def verified_game(split: str, number: int) -> tuple[GameData, tuple[str, ...]]:
    """Return a game that can be won and is not won at its start, and a plan that wins it.

    Args:
        split: ``"train"`` or ``"test"``.
        number: Which game of the split, 0 or more.

    Raises:
        EngineError: No attempt gave such a game.
    """
    from parallel_envs.alfworld.blueprint import blueprint
    from parallel_envs.alfworld.game import AlfworldGame

    for attempt in range(_ATTEMPTS):
        data = build(split, number, attempt)
        if data is None:
            continue
        try:
            game = AlfworldGame(blueprint(data.domain, data.problem, data.grammar), 1, dict)
        except EngineError:  # the goal is out of reach
            continue
        (state,) = game.start()
        plan = () if state.won else game.expert_plan(0, "planner")
        for command in plan:
            state = game.step(0, command)
        game.close()
        if plan and state.won:
            return data, plan
    raise EngineError(f"no playable game number {number} in {split} after {_ATTEMPTS} attempts")
