"""Checks for anyone's engine: does it keep the promises that `ParallelTextEnv` makes?

Each check plays random games and raises an `AssertionError` that says what differed, where. They
need nothing but the engine; `joint_actions` is a hypothesis strategy for tests of your own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from parallel_envs.env import ParallelTextEnv
from parallel_envs.game import GameState, Task, TaskSet, TextGame

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = [
    "check_contract",
    "check_determinism",
    "check_engine",
    "check_expert",
    "check_fork",
    "check_identical_start",
    "check_isolation",
    "joint_actions",
]

_NONSENSE = ("xyzzy", " ", "go\nto", "☕" * 20)

Walk = list[tuple[int, str]]  # (replica, action) in the order of play


def check_engine(
    make: Callable[[], TaskSet], *, n: int = 3, tasks: int = 3, turns: int = 20, seed: int = 0
) -> None:
    """Run every check of this module on some tasks of an engine.

    Args:
        make: Returns a new task set, as for a new process.
        n: Number of replicas, at least 2.
        tasks: How many tasks to draw.
        turns: Length of the random games.
        seed: Seed of the tasks and the games.

    Raises:
        AssertionError: The engine breaks a promise.

    Example:
        >>> from parallel_envs.toy import ToyTasks
        >>> check_engine(ToyTasks)
    """
    if n < 2:
        raise ValueError(f"n must be at least 2 to compare replicas, not {n}")
    task_set = make()
    rng = np.random.default_rng(seed)
    count = min(tasks, len(task_set.tasks))
    chosen = [task_set.tasks[i] for i in rng.choice(len(task_set.tasks), count, replace=False)]
    check_contract(task_set)
    for task in chosen:
        check_identical_start(task_set, task, n)
        check_isolation(task_set, task, n, turns, rng)
        check_determinism(task_set, make, task, turns, rng)
        check_fork(task_set, task, n, turns, rng)
        check_expert(task_set, task)
    task_set.close()
    task_set.close()


def check_contract(task_set: TaskSet) -> None:
    """Tasks are sorted and unique, versions are given, and Gymnasium's checker is content."""
    import warnings

    from gymnasium.utils.env_checker import check_env

    ids = [task.id for task in task_set.tasks]
    assert ids, "the split has no task"
    assert len(ids) == len(set(ids)), "a task id occurs twice"
    assert task_set.versions, "versions must name what decides the games, for results"
    env = ParallelTextEnv(task_set.share(), n=2)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*WARN: ")  # Gymnasium's, not the engine's
        warnings.filterwarnings("ignore", message=".*Not able to test alternative render modes.*")
        check_env(env, skip_close_check=True)
    _, info = env.reset(seed=0)
    for field, kind in (("score", float), ("won", bool)):
        assert np.issubdtype(info[field].dtype, kind), f"{field} must be {kind.__name__}"
    env.close()


def check_identical_start(task_set: TaskSet, task: Task, n: int) -> None:
    """All replicas start in one state, and again after they have been played."""
    game = task_set.open(task, n)
    first = game.start()
    assert len(first) == n, f"start() returned {len(first)} states for {n} replicas"
    for replica, state in enumerate(first):
        _same(state, first[0], f"{task.id}: replica {replica} and replica 0 at the start")
        assert not state.ended, f"{task.id} has ended before it began"
    game.step(0, _usable(first[0], 0))
    for replica, state in enumerate(game.start()):
        _same(state, first[0], f"{task.id}: replica {replica} at its second start and its first")
    game.close()
    game.close()


def check_isolation(
    task_set: TaskSet, task: Task, n: int, turns: int, rng: np.random.Generator
) -> None:
    """Replicas played in random order show what each shows when it is played alone."""
    game = task_set.open(task, n)
    walk, shown = _random_walk(game, turns, rng)
    game.close()
    for replica in range(n):
        alone = task_set.open(task, 1)
        alone.start()
        for (who, action), expected in zip(walk, shown, strict=True):
            if who == replica:
                state = alone.step(0, action)
                _same(state, expected, f"{task.id}: alone and beside others, after {action!r:.60}")
        alone.close()


def check_determinism(
    task_set: TaskSet,
    make: Callable[[], TaskSet],
    task: Task,
    turns: int,
    rng: np.random.Generator,
) -> None:
    """The same actions lead to the same texts in a new task set."""
    game = task_set.open(task, 1)
    walk, shown = _random_walk(game, turns, rng)
    game.close()
    other = make()
    again = other.open(task, 1)
    again.start()
    for (_, action), expected in zip(walk, shown, strict=True):
        _same(again.step(0, action), expected, f"{task.id}: played again, after {action!r:.60}")
    again.close()
    other.close()


def check_fork(task_set: TaskSet, task: Task, n: int, turns: int, rng: np.random.Generator) -> None:
    """A fork goes on from the same states, and neither it nor the original feels the other."""
    game = task_set.open(task, n)
    walk, shown = _random_walk(game, turns, rng)
    states = list(game.start())
    middle = len(walk) // 2
    for replica, action in walk[:middle]:
        states[replica] = game.step(replica, action)
    twin = game.fork()
    for replica, state in enumerate(states):
        if not state.ended:
            twin.step(replica, _usable(state, 1))  # off another way, while the original goes on
    for (replica, action), expected in zip(walk[middle:], shown[middle:], strict=True):
        _same(game.step(replica, action), expected, f"{task.id}: the original after a fork")
    twin.close()
    game.start()
    for replica, action in walk[:middle]:
        game.step(replica, action)
    twin = game.fork()
    game.close()
    for (replica, action), expected in zip(walk[middle:], shown[middle:], strict=True):
        _same(twin.step(replica, action), expected, f"{task.id}: a fork, its original closed")
    twin.close()


def check_expert(task_set: TaskSet, task: Task) -> None:
    """What the best expert plans, if anything, is admissible and wins."""
    game = task_set.open(task, 1)
    (state,) = game.start()
    assert task_set.experts, "experts must name at least one expert; its plan may be empty"
    plan = game.expert_plan(0, task_set.experts[0])
    for action in plan:
        if state.won:
            break
        state = game.step(0, action)
    assert state.won or not plan, f"{task.id}: the expert's plan does not win"
    game.close()


def joint_actions(info: dict[str, Any]) -> SearchStrategy[tuple[str, ...]]:
    """Return a hypothesis strategy of joint actions for what an ``info`` says is admissible.

    Each replica gets an admissible action, nothing, or nonsense.

    Example:
        >>> from parallel_envs.toy import ToyTasks
        >>> env = ParallelTextEnv(ToyTasks(), n=2)
        >>> _, info = env.reset(seed=0)
        >>> from hypothesis import find
        >>> "look" in find(joint_actions(info), lambda joint: "look" in joint)
        True
    """
    from hypothesis import strategies as st

    return st.tuples(
        *(
            st.one_of(st.sampled_from(actions or ("",)), st.just(""), st.sampled_from(_NONSENSE))
            for actions in info["admissible_actions"]
        )
    )


def _random_walk(
    game: TextGame, turns: int, rng: np.random.Generator
) -> tuple[Walk, list[GameState]]:
    """Play replicas in random order; return what was sent and what each then showed."""
    states = list(game.start())
    walk: Walk = []
    shown = []
    for replica in _order(len(states), turns, rng):
        if states[replica].ended:
            continue
        action = _usable(states[replica], int(rng.integers(10**6)))
        if rng.random() < 0.1:
            action = _NONSENSE[int(rng.integers(len(_NONSENSE)))]
        states[replica] = game.step(replica, action)
        walk.append((replica, action))
        shown.append(states[replica])
    return walk, shown


def _order(n: int, turns: int, rng: np.random.Generator) -> Iterator[int]:
    return iter(rng.permutation(np.repeat(np.arange(n), turns)).tolist())


def _usable(state: GameState, number: int) -> str:
    actions = state.admissible_actions
    assert actions, "a replica that goes on must have an admissible action"
    return actions[number % len(actions)]


def _same(state: GameState, expected: GameState, what: str) -> None:
    for field in GameState.__slots__:
        ours, theirs = getattr(state, field), getattr(expected, field)
        assert ours == theirs, f"{what}: {field} is {ours!r:.300}, not {theirs!r:.300}"
