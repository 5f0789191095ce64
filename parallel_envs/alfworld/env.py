"""``ParallelALFWorld-v0``: ALFWorld's household tasks."""

from __future__ import annotations

from collections.abc import Sequence

from parallel_envs.alfworld.generated import GeneratedTasks
from parallel_envs.alfworld.tasks import AlfworldTasks, has_official_games
from parallel_envs.env import ParallelTextEnv, StopRule

__all__ = ["ParallelALFWorldEnv"]


class ParallelALFWorldEnv(ParallelTextEnv):
    """``ParallelALFWorld-v0``: n replicas of an ALFWorld game; see `ParallelTextEnv`.

    Texts, commands, wins and facts equal those of alfworld 0.4.2 letter for letter. A command
    must match an admissible one exactly; anything else is answered with "Nothing happens.".

    ======== ==========================================================================
    Splits   official: ``train`` (3553 games), ``valid_seen`` (140), ``valid_unseen``
             (134); with no download: ``generated:train`` (20000), ``generated:test``
             (1000)
    Types    six, such as ``pick_and_place_simple``; `tasks` takes types and ids
    Score    1 when the goal is reached, else 0; a replica cannot be lost
    Data     official: ``$ALFWORLD_DATA``, else ``~/.cache/alfworld``, where
             ``alfworld-download`` puts it
    ======== ==========================================================================

    Args:
        n: Number of replicas.
        split: Which split; None is ``train`` where there are official games, else
            ``generated:train``. ``info["split"]`` says which it was.
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
        split: str | None = None,
        max_turns: int = 25,
        stop: StopRule = "first_win",
        tasks: Sequence[str] | None = None,
        render_mode: str | None = None,
    ) -> None:
        if split is None:
            split = "train" if has_official_games() else "generated:train"
        kind = GeneratedTasks if split.startswith("generated") else AlfworldTasks
        super().__init__(
            kind(split, tasks), n, max_turns=max_turns, stop=stop, render_mode=render_mode
        )
