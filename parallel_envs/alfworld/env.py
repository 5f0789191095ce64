"""``ParallelALFWorld-v0``: ALFWorld's household tasks."""

from __future__ import annotations

from collections.abc import Sequence

from parallel_envs.alfworld.tasks import AlfworldTasks
from parallel_envs.env import ParallelTextEnv, StopRule

__all__ = ["ParallelALFWorldEnv"]


class ParallelALFWorldEnv(ParallelTextEnv):
    """``ParallelALFWorld-v0``: n replicas of an official ALFWorld game; see `ParallelTextEnv`.

    Texts, commands, wins and facts equal those of alfworld 0.4.2 letter for letter. A command
    must match an admissible one exactly; anything else is answered with "Nothing happens.".

    ======== ==========================================================================
    Splits   ``train`` (3553 games), ``valid_seen`` (140), ``valid_unseen`` (134)
    Types    six, such as ``pick_and_place_simple``; `tasks` takes types and ids
    Score    1 when the goal is reached, else 0; a replica cannot be lost
    Data     ``$ALFWORLD_DATA``, else ``~/.cache/alfworld`` (``alfworld-download``)
    ======== ==========================================================================

    Args:
        n: Number of replicas.
        split: Which official split.
        max_turns: Turns until truncation; the engine's own limit of 50 steps never fires.
        stop: ``"first_win"`` or ``"all_ended"``.
        tasks: Task ids or types to restrict to; None plays the whole split.
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
            AlfworldTasks(split, tasks), n, max_turns=max_turns, stop=stop, render_mode=render_mode
        )
