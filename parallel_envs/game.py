"""What an engine must provide: `TaskSet` → `TextGame` → `GameState`.

Nothing outside an engine's own folder knows which engine it talks to.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from parallel_envs.errors import EngineError, UnknownTaskError

__all__ = ["GameState", "Task", "TaskSet", "TextGame", "find_task", "select_tasks"]


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a split: a start state and a goal.

    Attributes:
        id: Name of the task, the same on every machine.
        type: Kind of the task, for results by type.
    """

    id: str
    type: str


@dataclass(frozen=True, slots=True)
class GameState:
    """What one replica shows after its last action.

    Attributes:
        observation: Text that the engine printed last.
        admissible_actions: Actions that the engine lists as valid now, in a fixed order.
        score: Progress in [0, 1]; 1 exactly when the task is solved.
        raw_score: The engine's own number (ALFWorld: 0 or 1; ScienceWorld: -100 to 100).
        won: The task is solved.
        lost: The replica has ended without a win and can never be solved.
        state_key: Short hash, equal exactly when two replicas are in the same state as far as
            the engine can tell; it sees more than the observation does.
        pending: An open question of the engine that the next action answers, else None.
        reached: The game's checkpoints (`TextGame.checkpoints`) that hold in this state.
        engine_done: The engine would by now have called the episode done for a reason of its own,
            such as its step limit. It ends nothing here; success rules of others read it.
    """

    observation: str
    admissible_actions: tuple[str, ...]
    score: float
    raw_score: float
    won: bool
    lost: bool
    state_key: str
    pending: str | None = None
    reached: frozenset[str] = frozenset()
    engine_done: bool = False

    @property
    def ended(self) -> bool:
        """Whether the replica takes no further action."""
        return self.won or self.lost

    def __post_init__(self) -> None:
        if not (0 <= self.score <= 1 and math.isfinite(self.raw_score)):
            raise EngineError(
                f"the engine scored {self.raw_score} ({self.score} of 1), which is not a score"
            )


class TextGame(Protocol):
    """n replicas of one task that never influence one another."""

    @property
    def objective(self) -> str:
        """The sentence that tells the player what to do."""
        ...

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Names of the places, objects and key states to discover, none if nobody defined any.

        They come from the engine's facts and the goal, so they are the same for every agent; see
        `parallel_envs.diversity.checkpoint_coverage`.
        """
        ...

    def start(self) -> tuple[GameState, ...]:
        """Put every replica into the start state and return the n states."""
        ...

    def step(self, replica: int, action: str) -> GameState:
        """Send `action` to one replica, and only to it; return its new state.

        Raises:
            EngineError: The engine crashed, hung, or raised.
        """
        ...

    def expert_plan(self, replica: int, expert: str) -> tuple[str, ...]:
        """Actions that solve the task from where `replica` stands, as an expert would.

        `expert` is one of the task set's `experts`.

        Computed on request only, for it can be slow. Empty when that expert finds none.
        """
        ...

    def fork(self) -> Self:
        """Return a second game whose replicas are in the same states as these, independently."""
        ...

    def close(self) -> None:
        """Free what the game holds. Closing twice is fine."""
        ...


class TaskSet(Protocol):
    """The tasks of one split of one engine."""

    @property
    def engine(self) -> str:
        """Name of the engine, for example ``"alfworld"``."""
        ...

    @property
    def experts(self) -> tuple[str, ...]:
        """Names of the engine's experts, the best one first."""
        ...

    @property
    def split(self) -> str:
        """Name of the split, for example ``"valid_unseen"``."""
        ...

    @property
    def tasks(self) -> Sequence[Task]:
        """The tasks, each once, in an order that is the same on every machine."""
        ...

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of the software that decides what the games do."""
        ...

    def open(self, task: Task, n: int) -> TextGame:
        """Load n replicas of `task`."""
        ...

    def share(self) -> Self:
        """Return a task set of the same tasks for a second environment, to be closed on its own."""
        ...

    def close(self) -> None:
        """Free what the task set holds. Closing twice is fine."""
        ...


def _unknown(name: str, known: Iterable[str], tasks: Sequence[Task]) -> UnknownTaskError:
    near = difflib.get_close_matches(name, sorted(known), n=3)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return UnknownTaskError(f"{name!r} is not among the {len(tasks)} tasks of this split.{hint}")


def find_task(tasks: Sequence[Task], task_id: object) -> Task:
    """Return the task with this id.

    Raises:
        UnknownTaskError: There is none; the message lists near matches.

    Example:
        >>> find_task([Task("a/1", "a"), Task("a/2", "a")], "a/2").id
        'a/2'
        >>> find_task([Task("a/1", "a"), Task("b/7", "b")], "b/8")
        Traceback (most recent call last):
        ...
        parallel_envs.errors.UnknownTaskError: 'b/8' is not among ... Did you mean 'b/7'?
    """
    for task in tasks:
        if task.id == task_id:
            return task
    raise _unknown(str(task_id), (task.id for task in tasks), tasks)


def select_tasks(tasks: Sequence[Task], wanted: Sequence[str] | None) -> tuple[Task, ...]:
    """Restrict `tasks` to ids or types, keeping the order of the split.

    Args:
        tasks: The tasks of a split.
        wanted: Task ids and task types, mixed as you like; None keeps all.

    Raises:
        UnknownTaskError: A name is neither an id nor a type, or `wanted` is empty.

    Example:
        >>> split = [Task("a/1", "a"), Task("a/2", "a"), Task("b/1", "b")]
        >>> [task.id for task in select_tasks(split, ["b", "a/2"])]
        ['a/2', 'b/1']
    """
    if wanted is None:
        return tuple(tasks)
    if isinstance(wanted, str):
        raise TypeError(f"tasks must be a sequence of ids or types; write tasks=[{wanted!r}]")
    names = {task.id for task in tasks} | {task.type for task in tasks}
    for name in wanted:
        if name not in names:
            raise _unknown(str(name), names, tasks)
    kept = set(wanted)
    chosen = tuple(task for task in tasks if task.id in kept or task.type in kept)
    if not chosen:
        raise UnknownTaskError("tasks=[] leaves no task to play; leave it out to play all")
    return chosen
