"""What a run measures, written down before it starts."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import Any, Self

import numpy as np

import parallel_envs
from parallel_envs import ParallelTextEnv, Task
from parallel_envs.alfworld.tasks import has_official_games
from parallel_envs.registration import constructor

__all__ = ["SPLITS", "Protocol", "choose_tasks", "differences", "hash_of", "make_env"]

# The split of each environment that is evaluated by default.
SPLITS = {"alfworld": "valid_unseen", "scienceworld": "L1", "toy": "test"}


@dataclass(frozen=True)
class Protocol:
    """Everything that must be equal for two results to be comparable, and whose result it is.

    Attributes:
        agent: Name of the agent.
        env: Short name of the environment.
        split: Split that the tasks are from.
        n: Number of replicas.
        max_turns: Turn limit of an episode.
        stop: Stop rule of an episode.
        seed: Seed of the agent and of the choice of tasks.
        tasks_hash: Hash of the list of task ids.
        task_ids: The tasks, in the order of the split.
        settings: What else decides the agent's play: model, decoding, prompt style.
        versions: Of all the software that decides the result.
    """

    agent: str
    env: str
    split: str
    n: int
    max_turns: int
    stop: str
    seed: int
    tasks_hash: str
    task_ids: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        agent: str,
        env_name: str,
        env: ParallelTextEnv,
        seed: int,
        tasks: Sequence[Task],
        settings: Mapping[str, Any] | None = None,
    ) -> Self:
        """Describe a run."""
        ids = tuple(task.id for task in tasks)
        return cls(
            agent=agent,
            env=env_name,
            split=env.task_set.split,
            n=env.n,
            max_turns=env.max_turns,
            stop=env.stop,
            seed=seed,
            tasks_hash=hash_of(ids),
            task_ids=ids,
            settings=dict(settings or {}),
            versions={
                "parallel-text-envs": parallel_envs.__version__,
                **env.task_set.versions,
                "gymnasium": version("gymnasium"),
                "python": platform.python_version(),
            },
        )

    @property
    def run_name(self) -> str:
        """Name of the run's folder."""
        settings = f"-{hash_of([json.dumps(self.settings, sort_keys=True)])[:6]}"
        return (
            f"{self.agent}{settings if self.settings else ''}-{self.env}-{self.split}-n{self.n}"
            f"-t{self.max_turns}-s{self.seed}-{len(self.task_ids)}tasks"
        ).replace(":", "_")

    def to_json(self) -> dict[str, Any]:
        """Return the protocol as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote.

        Raises:
            ValueError: It is not a protocol, or its hash is not that of its tasks.
        """
        try:
            protocol = cls(**{**data, "task_ids": tuple(data["task_ids"])})
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a protocol of this version: {error}") from error
        if hash_of(protocol.task_ids) != protocol.tasks_hash:
            raise ValueError("tasks_hash is not the hash of task_ids")
        return protocol


def differences(there: Protocol, now: Protocol) -> list[str]:
    """Return what two protocols differ in, each with both of its values, shortened."""
    # A trip through JSON, so that tuples compare as what is read back.
    old, new = (json.loads(json.dumps(each.to_json())) for each in (there, now))
    return [
        f"{key}: {_brief(old[key])} there, {_brief(new[key])} now"
        for key in new
        if old[key] != new[key]
    ]


def hash_of(lines: Sequence[str]) -> str:
    """Return a short hash of a list of strings.

    Example:
        >>> hash_of(["a", "b"])
        '7e18f737311b2dc3'
    """
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def make_env(
    name: str, split: str | None, n: int, max_turns: int, stop: str = "first_win"
) -> ParallelTextEnv:
    """Return a new environment without Gymnasium's wrappers; None is the split of evaluations."""
    make = constructor(name)
    if not split:
        official = name != "alfworld" or has_official_games()
        split = SPLITS[name] if official else "generated:test"
    return make(n=n, split=split, max_turns=max_turns, stop=stop)


def choose_tasks(tasks: Sequence[Task], episodes: int | None, seed: int) -> tuple[Task, ...]:
    """Return all tasks, or `episodes` of them drawn without repeats, in the order of the split.

    Raises:
        ValueError: There are not that many.
    """
    if episodes is None:
        return tuple(tasks)
    if not 1 <= episodes <= len(tasks):
        raise ValueError(f"--episodes must be in 1..{len(tasks)} for this split, not {episodes}")
    drawn = np.random.default_rng(seed).choice(len(tasks), size=episodes, replace=False)
    return tuple(tasks[index] for index in sorted(drawn.tolist()))


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:120]}… ({len(text)} characters)"
