"""Durable results: one folder a run, one appended line an episode."""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from leaderboard.protocol import Protocol

logger = logging.getLogger(__name__)

__all__ = ["Result", "RunFolder", "StoreError"]


class StoreError(Exception):
    """A results folder cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Result:
    """One episode. What is unknown because the episode failed is None, never 0.

    Attributes:
        task_id: The task.
        task_type: Its type.
        won: Solved.
        score: Best score of any replica, in [0, 1].
        raw_score: The engine's own score of the best replica.
        turns: Turns played.
        steps: Actions sent, summed over replicas.
        inadmissible: Of those, how many were not in the admissible list.
        seconds: Wall time, loading included.
        ended: ``"won"``, ``"lost"`` (every replica ended unsolved) or ``"turn_limit"``.
        actions: The joint action of every turn.
        error: Why the episode has no result, else None.
    """

    task_id: str
    task_type: str
    won: bool | None
    score: float | None
    raw_score: float | None
    turns: int
    steps: int
    inadmissible: int
    seconds: float
    ended: str | None
    actions: tuple[tuple[str, ...], ...]
    error: str | None = None

    def __post_init__(self) -> None:
        if self.error is None and (self.score is None or not math.isfinite(self.score)):
            raise ValueError(f"{self.task_id}: score must be a finite number, not {self.score}")

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Result:
        """Read what `to_json` wrote."""
        return cls(**{**data, "actions": tuple(tuple(turn) for turn in data["actions"])})

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return asdict(self)


class RunFolder:
    """The folder of one run: ``protocol.json`` and ``episodes.jsonl``.

    A line is on disk before the next episode starts. A run that was stopped goes on where it was:
    finished episodes are kept, failed ones are played again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._episodes = path / "episodes.jsonl"
        self._protocol = path / "protocol.json"

    @contextmanager
    def opened(self, protocol: Protocol) -> Iterator[dict[str, Result]]:
        """Lock the folder for writing and give the results that it already holds, by task id.

        Raises:
            StoreError: Another run is writing here, or the folder is of another protocol.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise StoreError(
                    f"another run is writing to {self.path}; wait for it or choose another --out"
                ) from None
            self._claim(protocol)
            yield {result.task_id: result for result in self.results() if result.error is None}

    def results(self) -> list[Result]:
        """Return the results, the latest of each task, in the order of their first line.

        A last line without its end was cut off by a crash and is left out.
        """
        if not self._episodes.exists():
            return []
        text = self._episodes.read_text(encoding="utf-8")
        found: dict[str, Result] = {}
        for number, line in enumerate(text.split("\n")[:-1], start=1):
            try:
                result = Result.from_json(json.loads(line))
            except (ValueError, TypeError, KeyError) as error:
                raise StoreError(
                    f"{self._episodes} line {number} is not a result ({error}); "
                    "the file was changed or damaged, so nothing in it is trusted"
                ) from error
            found[result.task_id] = result
        return list(found.values())

    def protocol(self) -> Protocol:
        """Return the protocol that the folder was made for."""
        try:
            return Protocol(**json.loads(self._protocol.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise StoreError(
                f"{self._protocol} is not readable as a protocol of this version ({error}), so "
                f"what {self.path} holds is unknown. Choose another --out."
            ) from error

    def append(self, result: Result) -> None:
        """Write one line to the disk."""
        line = json.dumps(result.to_json(), ensure_ascii=True, allow_nan=False) + "\n"
        with self._episodes.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def _claim(self, protocol: Protocol) -> None:
        if not self._protocol.exists() and not self._episodes.exists():
            self._replace(self._protocol, json.dumps(protocol.to_json(), indent=2) + "\n")
            return
        old, new = self.protocol().to_json(), protocol.to_json()
        changed = [
            f"{key}: {old.get(key)!r} there, {new[key]!r} now"
            for key in new
            if old.get(key) != new[key]
        ]
        if changed:
            raise StoreError(
                f"{self.path} holds results of another protocol ({'; '.join(changed)}). "
                "Choose another --out."
            )
        text = self._episodes.read_text(encoding="utf-8") if self._episodes.exists() else ""
        whole, end, torn = text.rpartition("\n")
        if torn:
            aside = self._episodes.with_suffix(".torn")
            with aside.open("a", encoding="utf-8") as file:
                file.write(torn + "\n")
            self._replace(self._episodes, whole + end)
            logger.warning(
                "the last line of %s was cut off; it was set aside in %s and its task is played "
                "again",
                self._episodes,
                aside.name,
            )

    @staticmethod
    def _replace(path: Path, text: str) -> None:
        """Write a file so that a crash leaves either the old or the new one."""
        beside = path.with_suffix(".new")
        with beside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
