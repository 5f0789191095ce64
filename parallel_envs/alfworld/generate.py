"""Write generated games as official ALFWorld folders.

python -m parallel_envs.alfworld.generate --count 100 --out games
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from parallel_envs.alfworld.generated import verified_game

__all__ = ["main", "write_game"]


def write_game(split: str, number: int, out: Path) -> Path:
    """Write one game below ``OUT/json_2.1.1/SPLIT``, as ``alfworld-download`` lays them out.

    Args:
        split: ``"train"`` or ``"test"``.
        number: Which game of the split.
        out: Where ``json_2.1.1`` is made.

    Returns:
        The game's folder, with ``game.tw-pddl`` and ``traj_data.json``.
    """
    data, plan = verified_game(split, number)
    goal = data.trajectory["pddl_params"]
    name = "-".join(
        [
            data.trajectory["task_type"],
            goal["object_target"],
            goal["mrecep_target"] or "None",
            goal["parent_target"] or goal["toggle_target"],
            str(data.trajectory["scene"]["scene_num"]),
        ]
    )
    folder = out / "json_2.1.1" / split / name / f"trial_G{number:08}"
    folder.mkdir(parents=True, exist_ok=True)
    game = {
        "pddl_domain": data.domain,
        "grammar": data.grammar,
        "pddl_problem": data.problem,
        "solvable": True,
        "walkthrough": list(plan),
    }
    (folder / "traj_data.json").write_text(json.dumps(data.trajectory), encoding="utf-8")
    (folder / "game.tw-pddl").write_text(json.dumps(game), encoding="utf-8")
    return folder


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and write the games."""
    parser = argparse.ArgumentParser(
        prog="python -m parallel_envs.alfworld.generate",
        description="Write generated ALFWorld games, verified solvable, in the official layout: "
        "OUT/json_2.1.1/SPLIT/TASK/TRIAL/game.tw-pddl. Stock alfworld loads them.",
    )
    parser.add_argument("--count", type=int, default=10, help="how many games (default 10)")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--split", choices=("train", "test"), default="train")
    parser.add_argument("--first", type=int, default=0, help="number of the first game (default 0)")
    chosen = parser.parse_args(arguments)
    if chosen.count < 1 or chosen.first < 0:
        parser.error("--count must be at least 1 and --first at least 0")
    for done, number in enumerate(range(chosen.first, chosen.first + chosen.count), start=1):
        folder = write_game(chosen.split, number, chosen.out)
        print(f"{done}/{chosen.count} {folder}", flush=True)


if __name__ == "__main__":
    main()
