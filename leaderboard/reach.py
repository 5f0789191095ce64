"""What share of a run's tasks its turn limit can reach at all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

__all__ = ["Reach", "expert_lengths", "reach"]


class Reach(NamedTuple):
    """How far a turn limit goes.

    Attributes:
        within: Tasks whose known solution fits in the limit.
        known: Tasks with a known solution.
        tasks: All tasks.
        expert: Whose solutions they are.
    """

    within: int
    known: int
    tasks: int
    expert: str

    def __str__(self) -> str:
        if not self.known:
            return "no expert lengths are known for these tasks"
        share = f"{self.within} of {self.tasks} tasks ({self.within / self.tasks:.0%})"
        unknown = self.tasks - self.known
        rest = f"; {unknown} have no known solution" if unknown else ""
        return f"{share} have {self.expert} within the turn limit{rest}"


@cache
def expert_lengths(env: str) -> Mapping[str, int]:
    """Return the number of actions of the expert's solution, by task id.

    Made by ``benchmarks/expert_lengths.py``: ALFWorld's planner, and ScienceWorld's gold paths that
    reach 100.
    """
    source = files("leaderboard") / "data" / f"{env}_expert_lengths.json"
    if not source.is_file():
        return {}
    lengths: dict[str, int] = json.loads(source.read_text(encoding="utf-8"))
    return lengths


def reach(env: str, task_ids: Sequence[str], max_turns: int) -> Reach:
    """Count the tasks that one replica of an expert can solve within a turn limit.

    Example:
        >>> reach("toy", ["coin-garden/trap-attic"], 25).known
        0
    """
    lengths = expert_lengths(env)
    known = [lengths[task] for task in task_ids if task in lengths]
    return Reach(
        within=sum(length <= max_turns for length in known),
        known=len(known),
        tasks=len(task_ids),
        expert="an expert plan" if env == "alfworld" else "a gold path",
    )
