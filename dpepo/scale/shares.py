"""How the processes of a training run share an update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpepo.lessons import Lesson
from dpepo.rollout import TurnSample
from dpepo.train import Config

__all__ = ["padded", "share"]

_EMPTY = Lesson(TurnSample((0,), (), (), 0.0, 0.0, ""), 0.0, 0)


def share(config: Config, processes: int) -> Config:
    """Return what each process does: its part of the tasks, as whole groups.

    Args:
        config: What all of them do.
        processes: Their number.

    Raises:
        ValueError: The tasks cannot be shared evenly, or an option is for `dpepo.train` alone.

    Example:
        >>> share(Config(tasks=16), 4).tasks
        4
    """
    if config.tasks % processes:
        raise ValueError(
            f"{processes} processes cannot share --tasks {config.tasks} evenly; take a multiple"
        )
    if config.env_steps:
        raise ValueError("--env-steps is for dpepo.train alone; limit this run by --updates")
    if config.ray or config.workers:
        raise ValueError("--ray and --workers are for dpepo.train alone; here each process plays")
    return replace(config, tasks=config.tasks // processes)


def padded(rows: Sequence[Lesson], parts: int) -> list[Lesson]:
    """Return rows behind empty ones, so that each of `parts` gets equally many, and one at least.

    An empty row has no reply and adds exactly 0 to a loss. It is there because all processes must
    pass through their models equally often, also one that has nothing to learn.

    Args:
        rows: The turns to learn from.
        parts: Number of micro-batches.

    Example:
        >>> len(padded([], 4)), len(padded([_EMPTY] * 5, 4))
        (4, 8)
    """
    missing = -len(rows) % parts if rows else parts
    return [_EMPTY] * missing + list(rows)
