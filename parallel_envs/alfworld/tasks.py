"""`AlfworldTasks`: the official ALFWorld splits, found on disk and checked."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parallel_envs.errors import DataError, EngineError
from parallel_envs.game import Task, select_tasks
from parallel_envs.versions import installed, not_usable

if TYPE_CHECKING:
    from parallel_envs.alfworld.game import AlfworldGame

__all__ = ["OFFICIAL_COUNTS", "SPLITS", "AlfworldTasks", "data_folder", "has_official_games"]

# Solvable games of each type in json_2.1.1, the release that alfworld 0.3 and 0.4 download.
OFFICIAL_COUNTS: Mapping[str, Mapping[str, int]] = {
    "train": {
        "look_at_obj_in_light": 308,
        "pick_and_place_simple": 790,
        "pick_clean_then_place_in_recep": 650,
        "pick_cool_then_place_in_recep": 533,
        "pick_heat_then_place_in_recep": 459,
        "pick_two_obj_and_place": 813,
    },
    "valid_seen": {
        "look_at_obj_in_light": 13,
        "pick_and_place_simple": 35,
        "pick_clean_then_place_in_recep": 27,
        "pick_cool_then_place_in_recep": 25,
        "pick_heat_then_place_in_recep": 16,
        "pick_two_obj_and_place": 24,
    },
    "valid_unseen": {
        "look_at_obj_in_light": 18,
        "pick_and_place_simple": 24,
        "pick_clean_then_place_in_recep": 31,
        "pick_cool_then_place_in_recep": 21,
        "pick_heat_then_place_in_recep": 23,
        "pick_two_obj_and_place": 17,
    },
}
SPLITS = tuple(OFFICIAL_COUNTS)

_DOWNLOAD = "Get the games with: pip install alfworld==0.4.2 && alfworld-download"


def data_folder() -> Path:
    """Return the folder that holds ``json_2.1.1``: ``$ALFWORLD_DATA``, else alfworld's default."""
    return Path(os.environ.get("ALFWORLD_DATA") or "~/.cache/alfworld").expanduser()


def has_official_games() -> bool:
    """Return whether the user has, or says to have, the official games."""
    return bool(os.environ.get("ALFWORLD_DATA")) or (data_folder() / "json_2.1.1").is_dir()


class AlfworldTasks:
    """The games of one official split. The data folder is only ever read.

    A task's id is its folder below ``json_2.1.1``, such as
    ``valid_unseen/pick_and_place_simple-Mug-None-Desk-308/trial_T2019…``.

    Args:
        split: ``"train"`` (3553 games), ``"valid_seen"`` (140) or ``"valid_unseen"`` (134).
        wanted: Task ids or task types to restrict to; None for all.
        folder: The data folder; None looks it up with `data_folder`.

    Raises:
        DataError: Games are missing, or there are others than the official ones.
    """

    engine = "alfworld"
    experts = ("planner", "handcoded")

    def __init__(
        self, split: str, wanted: Sequence[str] | None = None, folder: Path | None = None
    ) -> None:
        if split not in SPLITS:
            raise ValueError(f"split must be one of {', '.join(SPLITS)}, not {split!r}")
        self.split = split
        self._root = (folder or data_folder()) / "json_2.1.1"
        self.tasks = select_tasks(_official_tasks(self._root, split), wanted)

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of the packages that decide what the games do and say."""
        return installed("alfworld", "alfworld", "textworld", "fast-downward-textworld")

    def path(self, task: Task) -> Path:
        """Return the game file of a task."""
        return self._root / task.id / "game.tw-pddl"

    def open(self, task: Task, n: int) -> AlfworldGame:
        """Load n replicas of a game."""
        try:
            # Imported here, so that listing tasks needs no engine.
            from parallel_envs.alfworld.blueprint import blueprint
            from parallel_envs.alfworld.game import AlfworldGame
        except ImportError as error:
            raise not_usable("alfworld", error) from error
        path = self.path(task)
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            shared = blueprint(data["pddl_domain"], data["pddl_problem"], data["grammar"])
            return AlfworldGame(shared, n, lambda: _trajectory(path))
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror}. {_DOWNLOAD}") from error
        except Exception as error:
            raise EngineError(f"{path} is not a playable game ({error!r}). {_DOWNLOAD}") from error

    def share(self) -> AlfworldTasks:
        """Return itself: games hold all there is to close."""
        return self

    def close(self) -> None:
        """Nothing to free: games hold all there is."""


def _trajectory(game: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((game.parent / "traj_data.json").read_text(encoding="utf-8"))
    return data


def _official_tasks(root: Path, split: str) -> list[Task]:
    """Return the tasks of a split, sorted by id, or say what is missing."""
    folder = root / split
    if not folder.is_dir():
        raise DataError(
            f"no ALFWorld games of split {split!r}: {folder} is not a folder. {_DOWNLOAD}; games "
            "that are elsewhere are found with: export ALFWORLD_DATA=FOLDER"
        )
    tasks = [
        Task(path.parent.relative_to(root).as_posix(), path.parts[-3].split("-")[0])
        for path in folder.glob("*/*/game.tw-pddl")
        if _is_official(path)
    ]
    expected = OFFICIAL_COUNTS[split]
    found = Counter(task.type for task in tasks)
    wrong = [
        f"{kind}: {found[kind]} of {expected.get(kind, 0)}"
        for kind in sorted({*expected, *found})
        if found[kind] != expected.get(kind, 0)
    ]
    if wrong:
        raise DataError(
            f"{folder} has {len(tasks)} games where split {split!r} has {sum(expected.values())} "
            f"({'; '.join(wrong)}), so its results could not be compared. {_DOWNLOAD}"
        )
    return sorted(tasks, key=lambda task: task.id)


def _is_official(path: Path) -> bool:
    """Tell a playable game of the official set from the others that the download holds."""
    if "movable" in path.parts[-3] or "Sliced" in path.parts[-3]:
        return False
    with path.open("rb") as file:
        # The flag stands behind the long texts; reading all of 3,553 files would take seconds.
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - 4096))
        flag = re.findall(rb'"solvable": *(true|false)', file.read())
    if flag:
        return bool(flag[-1] == b"true")
    try:
        return bool(json.loads(path.read_text(encoding="utf-8")).get("solvable"))
    except ValueError:
        return False  # half-written: counted as missing
