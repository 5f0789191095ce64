"""What an update learns from the trajectories that were played, and its loss: pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpepo.advantages import Rows, estimator
from dpepo.losses import kl_loss, policy_loss, trajectory_lengths, trajectory_mean
from dpepo.rollout import Played, TurnSample

__all__ = ["Lesson", "lessons", "objective", "rows_of"]


@dataclass(frozen=True)
class Lesson:
    """A turn to learn from.

    Attributes:
        turn: What the policy was asked and said.
        advantage: A of the turn.
        length: Number of reply tokens of the turn's trajectory, in the turns to learn from.
    """

    turn: TurnSample
    advantage: float
    length: int


def rows_of(played: Sequence[Played]) -> Rows:
    """Return the turns of trajectories as rows; trajectories of one task are a group."""
    numbers = {task: number for number, task in enumerate(dict.fromkeys(p.task_id for p in played))}
    turns = [(p, i, turn, t) for i, p in enumerate(played) for t, turn in enumerate(p.turns)]
    return Rows(
        group=np.array([numbers[p.task_id] for p, *_ in turns]),
        trajectory=np.array([i for _, i, *_ in turns]),
        turn=np.array([t for *_, t in turns]),
        reward=np.array([turn.reward for _, _, turn, _ in turns]),
        weight=np.array([turn.weight for _, _, turn, _ in turns]),
        anchor=[turn.anchor for _, _, turn, _ in turns],
    )


def lessons(algorithm: str, played: Sequence[Played]) -> tuple[list[Lesson], int]:
    """Return the turns to learn from, shortest prompt first, and the number of their trajectories.

    Turns whose advantage is 0 are left out: they would add nothing but the KL term.

    Args:
        algorithm: Name of the advantage estimator.
        played: Trajectories; those of one task are a group.

    Raises:
        ValueError: There is no estimator of that name.

    Example:
        >>> lessons("grpo", [])
        ([], 0)
    """
    rows = rows_of(played)
    advantages = estimator(algorithm)(rows)
    turns = [turn for p in played for turn in p.turns]
    taught = np.flatnonzero(advantages != 0)
    which = rows.trajectory[taught]
    tokens = torch.tensor([len(turns[i].reply) for i in taught], dtype=torch.long)
    lengths = trajectory_lengths(tokens[:, None], torch.tensor(which)).tolist()
    found = [
        Lesson(turns[i], float(advantages[i]), length)
        for i, length in zip(taught, lengths, strict=True)
    ]
    return sorted(found, key=lambda each: len(each.turn.prompt)), len(set(which.tolist()))


def objective(
    batch: Sequence[Lesson],
    now: tuple[Tensor, Tensor, Tensor],
    old: Tensor,
    reference: Tensor,
    trajectories: float,
    clip: float,
    kl: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what some turns add to the loss of their update, to its KL and to its entropy.

    Each is a mean over trajectories: what micro-batches add sums to what the whole batch would.

    Args:
        batch: B turns.
        now: `dpepo.policy.token_logps` of the turns: log π, mask and entropies, (B, T) each.
        old: log π under the policy that played, (B, T).
        reference: log π under the weights that training began with, (B, T).
        trajectories: Number of trajectories of the whole update.
        clip: How far a ratio may go from 1.
        kl: Weight of the KL term.

    Returns:
        Three scalars, of which the first has a gradient.
    """
    logp, mask, spread = now
    advantage = torch.tensor([each.advantage for each in batch], dtype=torch.float32)
    length = torch.tensor([each.length for each in batch], device=logp.device)
    terms = policy_loss(logp, old, advantage.to(logp.device), mask, eps_low=clip, eps_high=clip)
    away = kl_loss(logp, reference, mask)
    return (
        trajectory_mean(terms + kl * away, mask, length, trajectories),
        trajectory_mean(away.detach(), mask, length, trajectories),
        trajectory_mean(spread, mask, length, trajectories),
    )
