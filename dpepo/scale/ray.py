"""Training whose episodes are played on a Ray cluster: ``python -m dpepo.train --ray ADDRESS``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpepo.policy import arithmetic
from dpepo.rollout import Played, attempt
from dpepo.scale.cluster import same_everywhere
from dpepo.scale.pool import Pool
from dpepo.train import Config, Trainer
from parallel_envs import Task

__all__ = ["RayTrainer", "Rollouts"]


class Rollouts:
    """`dpepo.rollout.rollout`, whose episodes are played by workers with copies of the policy.

    A trajectory depends on its task, its seed and the weights alone, so trajectories do not depend
    on the number of workers, nor on one being lost, as far as the arithmetic of padding allows: in
    float32 it does, in bfloat16 nearly.

    Args:
        config: What is trained, and by ``ray`` and ``workers`` where its episodes are played.

    Raises:
        ClusterError: There is no cluster.
    """

    def __init__(self, config: Config) -> None:
        self._batch = config.batch
        settings = {**asdict(config), "model": same_everywhere(config.model)}
        make = partial(_RolloutWorker, settings)
        self._pool = Pool(config.ray, make, config.workers or None, on_gpu=True)

    def __call__(
        self, weights: Mapping[str, Tensor], tasks: Sequence[Task], rng: np.random.Generator
    ) -> list[Played]:
        """Play each of the tasks once with these weights.

        Args:
            weights: `dpepo.policy.Policy.learning`, sent to each worker once.
            tasks: What to play; a task that occurs several times is a group, which workers share.
            rng: Seeds each trajectory, as in `rollout`.

        Returns:
            A trajectory for each task, in the order of `tasks`.
        """
        seeds = rng.integers(1 << 62, size=len(tasks)).tolist()
        items = {str(i): pair for i, pair in enumerate(zip(tasks, seeds, strict=True))}
        at_once = min(self._batch, math.ceil(len(tasks) / self._pool.size))
        sent = {name: weight.detach().cpu() for name, weight in weights.items()}
        found = dict(self._pool.run(sent, items, at_once))
        return [found[name] for name in items]

    def close(self) -> None:
        """Leave the cluster. Closing twice is fine."""
        self._pool.close()


class RayTrainer(Trainer):
    """A `Trainer` that learns in this process and plays on a cluster."""

    def __init__(self, config: Config, out: Path) -> None:
        super().__init__(config, out)
        self.rollouts = Rollouts(config)

    def play(self) -> list[Played]:
        """Draw the tasks of an update and let the workers attempt each `group` times."""
        return self.rollouts(self.policy.learning, self.draw(), self.rng)

    def close(self) -> None:
        """Free the environments and leave the cluster."""
        super().close()
        self.rollouts.close()


class _RolloutWorker:
    """A worker of `Rollouts`: a trainer of its own that plays and never learns."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._made: Trainer | None = None

    def begin(self, weights: dict[str, Tensor]) -> None:
        """Take over the weights of an update."""
        if self._made is None:
            self._made = Trainer(Config(**self._settings), Path())
        self._made.policy.load(weights)

    def work(self, new: Mapping[str, tuple[Task, int]]) -> dict[str, Played]:
        """Play these tasks with these seeds to their ends."""
        assert self._made is not None
        player = self._made
        tasks, seeds = zip(*new.values(), strict=True)
        with torch.no_grad(), arithmetic(player.policy.device, player.config.precision):
            played = attempt(player.envs, player.agent, tasks, seeds, player.weights)
        return dict(zip(new, played, strict=True))
