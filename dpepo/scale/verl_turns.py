"""What verl's advantage estimators are told of each turn, and estimators that make use of it.

verl hands an estimator four things: the rewards and the mask of the tokens, its configuration, and
the uid of each row. Only the uid is not a number. `TurnBuffer` therefore puts there what the agent
loop has noted of the turn, as JSON, and the estimators make `dpepo.advantages.Rows` of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import transfer_queue
from tensordict import NonTensorStack, TensorDict
from verl.trainer.ppo.core_algos import register_adv_est
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from dpepo.advantages import Rows, estimator

__all__ = ["ESTIMATORS", "Note", "TurnBuffer", "rows_of", "turn_advantages"]

# verl's name: ours. verl has a grpo and an rloo of its own, over whole episodes.
ESTIMATORS = {"dpepo": "dpepo", "gigpo": "gigpo", "turn_grpo": "grpo", "turn_rloo": "rloo"}


@dataclass(frozen=True)
class Note:
    """One turn, as `Rows` has it, by the names that verl gives.

    Attributes:
        group: uid of the task in this batch.
        trajectory: Number of the attempt in its group.
        turn: Number of the turn, from 0.
        reward: What the turn paid.
        weight: W of the turn.
        anchor: The states that it started from.

    Example:
        >>> Note.read(Note("a-b", 1, 0, 0.5, 1.0, "s1|s2").write()).reward
        0.5
    """

    group: str
    trajectory: int
    turn: int
    reward: float
    weight: float
    anchor: str

    def write(self) -> str:
        """Return the note as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Note:
        """Read what `write` returned."""
        return cls(**json.loads(text))


def rows_of(notes: Sequence[Note]) -> Rows:
    """Return the rows that notes are about, in their order.

    Example:
        >>> rows_of([Note("a", 0, 0, 1, 1, ""), Note("b", 0, 0, 0, 1, "")]).trajectory
        array([0, 1])
    """
    return Rows(
        group=_numbered([note.group for note in notes]),
        trajectory=_numbered([(note.group, note.trajectory) for note in notes]),
        turn=np.array([note.turn for note in notes]),
        reward=np.array([note.reward for note in notes]),
        weight=np.array([note.weight for note in notes]),
        anchor=[note.anchor for note in notes],
    )


class TurnBuffer(ReplayBuffer):  # type: ignore[misc]
    """verl's synchronous sampler; it puts the loop's notes where our estimators see them.

    ``sampler_kwargs.estimator`` names the estimator. For verl's own ones, which take a uid for the
    name of a group, nothing is changed.
    """

    def sample(
        self, global_steps: int, partition_id: str, batch_size: int
    ) -> tuple[transfer_queue.KVBatchMeta, dict[str, Any]]:
        """Return what verl's sampler returns."""
        batch, metrics = super().sample(global_steps, partition_id, batch_size)
        if partition_id == "train" and self.sampler_kwargs.get("estimator") in ESTIMATORS:
            where: dict[str, Any] = {"keys": batch.keys, "partition_id": partition_id}
            stored = transfer_queue.kv_batch_get(**where, select_fields=["extra_fields"])
            notes = [extra["turn"] for extra in stored.pop("extra_fields").tolist()]
            uids = TensorDict({"uid": NonTensorStack(*notes)}, batch_size=len(notes))
            transfer_queue.kv_batch_put(**where, fields=uids)
        return batch, metrics


def turn_advantages(
    name: str,
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: Sequence[str],
    config: Mapping[str, Any],
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return advantages and returns as verl wants them: (B, T) each, here the same.

    Args:
        name: Estimator of `dpepo.advantages`. All but rloo take ``std`` from verl's
            ``norm_adv_by_std_in_grpo``, and gigpo its discount from ``gamma``.
        token_level_rewards: (B, T). Not read: the notes hold what each turn paid.
        response_mask: (B, T), 1 for the tokens that the policy wrote.
        index: B notes. Rows that verl adds to fill a batch begin with ``pad``, and get zeros.
        config: verl's section ``algorithm``.

    Raises:
        ValueError: The rows have no notes, or the rewards hold a KL term.
    """
    if config.get("use_kl_in_reward"):
        raise ValueError(
            f"{name} does not read token rewards, so algorithm.use_kl_in_reward would be lost; "
            "set actor_rollout_ref.actor.use_kl_loss instead"
        )
    places = [place for place, note in enumerate(index) if not note.startswith("pad")]
    if not all(index[place].startswith("{") for place in places):
        raise ValueError(
            f"{name} needs a note of each turn, and verl's rows have none: set "
            "trainer.v1.sampler as in dpepo/scale/dpepo.yaml, with the estimator's name"
        )
    options: dict[str, Any] = {}
    if name != "rloo":
        options["std"] = bool(config.get("norm_adv_by_std_in_grpo", True))
    if name == "gigpo":
        options["gamma"] = float(config["gamma"])
    rows = rows_of([Note.read(index[place]) for place in places])
    values = np.zeros(len(index))
    values[places] = estimator(name)(rows, **options)
    advantages = token_level_rewards.new_tensor(values)[:, None] * response_mask
    return advantages, advantages


for _name, _ours in ESTIMATORS.items():
    register_adv_est(_name)(partial(turn_advantages, _ours))


def _numbered(names: Sequence[Any]) -> np.ndarray:
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names])
