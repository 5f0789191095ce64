"""Write how many actions the expert's solution of each evaluation task takes.

    python benchmarks/expert_lengths.py

ALFWorld: the planner's plans for valid_seen, valid_unseen and the generated test split, computed
here (about ten minutes). ScienceWorld: the gold paths of ``benchmarks/results/gold_paths.jsonl``
that reach 100. Every table of the leaderboard says by them what its turn limit can reach.
"""

from __future__ import annotations

import json
from pathlib import Path

from tqdm import tqdm

from leaderboard.protocol import make_env

HERE = Path(__file__).parent
DATA = HERE.parent / "leaderboard" / "data"


def main() -> None:
    """Write both files."""
    write("scienceworld", scienceworld())
    write("alfworld", alfworld())


def scienceworld() -> dict[str, int]:
    """Return the lengths of the gold paths that reach 100."""
    lines = (HERE / "results" / "gold_paths.jsonl").read_text().splitlines()
    records = map(json.loads, lines)
    return {record["task_id"]: record["length"] for record in records if record["score"] == 100}


def alfworld() -> dict[str, int]:
    """Return the lengths of the planner's plans."""
    lengths = {}
    for split in ("valid_seen", "valid_unseen", "generated:test"):
        env = make_env("alfworld", split, 1, 25)
        for task in tqdm(env.task_set.tasks, desc=split):
            env.reset(options={"task_id": task.id})
            plan = env.expert_plan()
            if plan:
                lengths[task.id] = len(plan)
        env.close()
    return lengths


def write(env: str, lengths: dict[str, int]) -> None:
    """Write one file, a task a line."""
    lines = ",\n".join(f"{json.dumps(task)}: {length}" for task, length in sorted(lengths.items()))
    (DATA / f"{env}_expert_lengths.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
