"""`AdmissibleIndex`: actions as numbers, for libraries that know no text."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from parallel_envs.env import Observation, ParallelTextEnv

__all__ = ["AdmissibleIndex"]

Mask = np.ndarray[tuple[int], np.dtype[np.int8]]


class AdmissibleIndex(
    gymnasium.Wrapper[Observation, Any, Observation, tuple[str, ...]], RecordConstructorArgs
):
    """Choose each replica's action by its place in the list of admissible actions.

    The action space is ``MultiDiscrete([actions + 1] * n)``: 0 leaves the replica alone, k sends
    its k-th admissible action. ``info["action_mask"]`` holds n int8 arrays that say which numbers
    stand for something now, in the form that ``action_space.sample(mask=…)`` takes, and
    ``info["left_out"]`` how many admissible actions are beyond the last number.

    Args:
        env: A `ParallelTextEnv`, wrapped or not.
        actions: Largest number of admissible actions that can be chosen from.

    Example:
        >>> import gymnasium, parallel_envs
        >>> env = AdmissibleIndex(gymnasium.make("ParallelToy-v0", n=2), actions=5)
        >>> obs, info = env.reset(seed=0)
        >>> env.action_space
        MultiDiscrete([6 6])
        >>> info["action_mask"][0].tolist(), info["admissible_actions"][0]
        ([1, 1, 1, 1, 1, 0], ('go east', 'go west', 'look', 'ring bell'))
        >>> obs, *_ = env.step([1, 0])
        >>> obs["observations"][0].splitlines()[0]
        'You are in the attic.'
    """

    def __init__(
        self, env: gymnasium.Env[Observation, tuple[str, ...]], actions: int = 100
    ) -> None:
        RecordConstructorArgs.__init__(self, actions=actions)
        super().__init__(env)
        inner = env.unwrapped
        if not isinstance(inner, ParallelTextEnv):
            raise TypeError(f"AdmissibleIndex wraps a ParallelTextEnv, not {type(inner).__name__}")
        if actions < 1:
            raise ValueError(f"actions must be at least 1, not {actions}")
        self._actions = actions
        self.action_space = gymnasium.spaces.MultiDiscrete(np.full(inner.n, actions + 1))
        self._admissible: tuple[tuple[str, ...], ...] = ()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, self._with_masks(info)

    def step(
        self, action: np.ndarray[Any, Any]
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Play one turn.

        Args:
            action: n whole numbers.

        Raises:
            ValueError: A number stands for nothing; nothing was sent.
        """
        numbers = np.asarray(action).tolist()
        if len(numbers) != len(self._admissible):
            raise ValueError(f"expected {len(self._admissible)} numbers, not {len(numbers)}")
        joint = []
        for replica, (number, actions) in enumerate(zip(numbers, self._admissible, strict=True)):
            usable = min(len(actions), self._actions)
            if not 0 <= number <= usable:
                raise ValueError(
                    f"action {number} of replica {replica} stands for nothing: it has {usable} "
                    "admissible actions now (0 leaves it alone); see info['action_mask']"
                )
            joint.append(actions[number - 1] if number else "")
        observation, reward, terminated, truncated, info = self.env.step(tuple(joint))
        return observation, float(reward), terminated, truncated, self._with_masks(info)

    def _with_masks(self, info: dict[str, Any]) -> dict[str, Any]:
        self._admissible = tuple(
            () if closed else actions
            for actions, closed in zip(info["admissible_actions"], info["closed"], strict=True)
        )
        masks: list[Mask] = []
        for actions in self._admissible:
            mask = np.zeros(self._actions + 1, dtype=np.int8)
            mask[: min(len(actions), self._actions) + 1] = 1
            masks.append(mask)
        left_out = np.array([max(0, len(a) - self._actions) for a in self._admissible])
        return {**info, "action_mask": tuple(masks), "left_out": left_out}
