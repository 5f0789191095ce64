"""`ScienceWorldTasks`: all variations of the 30 tasks, and the splits that papers use."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from parallel_envs.game import Task, select_tasks
from parallel_envs.versions import installed, not_usable

if TYPE_CHECKING:
    from parallel_envs.scienceworld.game import ScienceWorldGame
    from parallel_envs.scienceworld.server import JavaServer

__all__ = ["HELD_OUT", "SPLITS", "VARIATIONS", "ScienceWorldTasks"]

# Variations of each task in the official train, dev and test sets, which follow one another:
# boil has train 0-13, dev 14-20 and test 21-29. (scienceworld 1.2.3: 3592 + 1796 + 1819 = 7207)
VARIATIONS: Mapping[str, tuple[int, int, int]] = {
    "boil": (14, 7, 9),
    "change-the-state-of-matter-of": (14, 7, 9),
    "chemistry-mix": (16, 8, 8),
    "chemistry-mix-paint-secondary-color": (18, 9, 9),
    "chemistry-mix-paint-tertiary-color": (18, 9, 9),
    "find-animal": (150, 75, 75),
    "find-living-thing": (150, 75, 75),
    "find-non-living-thing": (150, 75, 75),
    "find-plant": (150, 75, 75),
    "freeze": (14, 7, 9),
    "grow-fruit": (62, 31, 33),
    "grow-plant": (62, 31, 33),
    "identify-life-stages-1": (6, 3, 5),
    "identify-life-stages-2": (4, 2, 4),
    "inclined-plane-determine-angle": (84, 42, 42),
    "inclined-plane-friction-named-surfaces": (692, 346, 348),
    "inclined-plane-friction-unnamed-surfaces": (80, 40, 42),
    "lifespan-longest-lived": (62, 31, 32),
    "lifespan-longest-lived-then-shortest-lived": (62, 31, 32),
    "lifespan-shortest-lived": (62, 31, 32),
    "measure-melting-point-known-substance": (218, 109, 109),
    "measure-melting-point-unknown-substance": (150, 75, 75),
    "melt": (14, 7, 9),
    "mendelian-genetics-known-plant": (60, 30, 30),
    "mendelian-genetics-unknown-plant": (240, 120, 120),
    "power-component": (10, 5, 5),
    "power-component-renewable-vs-nonrenewable-energy": (10, 5, 5),
    "test-conductivity": (450, 225, 225),
    "test-conductivity-of-unknown-substances": (300, 150, 150),
    "use-thermometer": (270, 135, 135),
}

# The tasks that L2 tests and does not train on.
HELD_OUT = frozenset(
    {
        "change-the-state-of-matter-of",
        "chemistry-mix-paint-tertiary-color",
        "find-plant",
        "grow-plant",
        "identify-life-stages-2",
        "inclined-plane-friction-unnamed-surfaces",
        "lifespan-longest-lived-then-shortest-lived",
        "measure-melting-point-unknown-substance",
        "mendelian-genetics-unknown-plant",
        "test-conductivity-of-unknown-substances",
    }
)

_ALL = frozenset(VARIATIONS)
_L_TASKS = _ALL - {"use-thermometer"}  # the L splits leave it out
_OfficialSet = Literal["train", "dev", "test"]

# Each split: which tasks, and which official set of their variations.
SPLITS: Mapping[str, tuple[frozenset[str], _OfficialSet]] = {
    "train": (_ALL, "train"),
    "dev": (_ALL, "dev"),
    "test": (_ALL, "test"),
    "L0": (_L_TASKS, "dev"),
    "L1": (_L_TASKS, "test"),
    "L2": (HELD_OUT, "test"),
    "L0-train": (_L_TASKS, "train"),
    "L1-train": (_L_TASKS, "train"),
    "L2-train": (_L_TASKS - HELD_OUT, "train"),
}


class ScienceWorldTasks:
    """The variations of one split; a task's id is ``TASK/VARIATION``, such as ``boil/21``.

    Args:
        split: One of `SPLITS`.
        wanted: Task ids or task names to restrict to; None for all.

    Example:
        >>> {split: len(ScienceWorldTasks(split).tasks) for split in ("test", "L0", "L1", "L2")}
        {'test': 1819, 'L0': 1661, 'L1': 1684, 'L2': 549}
    """

    engine = "scienceworld"
    experts = ("gold",)

    def __init__(self, split: str, wanted: Sequence[str] | None = None) -> None:
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, not {split!r}")
        self.split = split
        self._server: JavaServer | None = None  # from the first game on
        names, official = SPLITS[split]
        self.tasks = select_tasks(
            [
                Task(f"{name}/{variation}", name)
                for name in sorted(names)
                for variation in _variations(name, official)
            ],
            wanted,
        )

    @property
    def versions(self) -> Mapping[str, str]:
        """Version of the package that decides what the games do and say."""
        return installed("scienceworld", "scienceworld")

    def open(self, task: Task, n: int) -> ScienceWorldGame:
        """Load n replicas of a variation."""
        try:
            # Imported here, so that listing tasks needs no engine.
            from parallel_envs.scienceworld.game import ScienceWorldGame
            from parallel_envs.scienceworld.server import JavaServer
        except ImportError as error:
            raise not_usable("scienceworld", error) from error
        name, variation = task.id.rsplit("/", 1)
        if self._server is None or not self._server.usable:
            self.close()
            self._server = JavaServer.acquire()
        return ScienceWorldGame(self._server, name, int(variation), n)

    def share(self) -> ScienceWorldTasks:
        """Return the same tasks with a hold of their own on the Java server."""
        twin = copy.copy(self)
        if self._server is not None:
            twin._server = self._server.hold()
        return twin

    def close(self) -> None:
        """Give the Java server back; its last user ends it."""
        server, self._server = self._server, None
        if server is not None:
            server.release()


def _variations(name: str, official: _OfficialSet) -> range:
    train, dev, test = VARIATIONS[name]
    start = {"train": 0, "dev": train, "test": train + dev}[official]
    return range(start, start + {"train": train, "dev": dev, "test": test}[official])
