"""Play every gold path of ScienceWorld splits: does it reach 100, and how long is it?

    python benchmarks/gold_paths.py L0 L1

Appends a line a task to ``benchmarks/results/gold_paths.jsonl`` and goes on where it stopped; then
prints what a turn limit can reach. About half an hour for 1,000 tasks.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

from tqdm import tqdm

from parallel_envs.scienceworld.server import JavaServer
from parallel_envs.scienceworld.tasks import ScienceWorldTasks
from parallel_envs.scienceworld.world import World, gold_path

OUT = Path(__file__).parent / "results" / "gold_paths.jsonl"
LIMITS = (25, 30, 50, 100, 200)


def main(splits: list[str]) -> None:
    """Play what has not been played and print the summary."""
    lines = OUT.read_text().splitlines() if OUT.exists() else []
    known = {record["task_id"]: record for record in map(json.loads, lines)}
    for split in splits:
        tasks = ScienceWorldTasks(split).tasks
        server = JavaServer.acquire()
        world = World(server)
        with OUT.open("a") as file:
            for task in tqdm([t for t in tasks if t.id not in known], desc=split):
                name, variation = task.id.rsplit("/", 1)
                start = time.perf_counter()
                path = gold_path(server, name, int(variation))
                seconds = time.perf_counter() - start
                world.load(name, int(variation))
                score = world.replay(path).score if path else 0
                record = {
                    "task_id": task.id,
                    "length": len(path),
                    "score": score,
                    "seconds": round(seconds, 2),
                }
                known[task.id] = record
                file.write(json.dumps(record) + "\n")
                file.flush()
        server.release()
        summary(split, [known[task.id] for task in tasks])


def summary(split: str, records: list[dict]) -> None:
    """Print how many paths reach 100, and how many fit turn limits."""
    lengths = [record["length"] for record in records]
    failed = [record["task_id"] for record in records if record["score"] != 100]
    reached = len(records) - len(failed)
    print(f"{split}: {reached}/{len(records)} gold paths reach 100 {failed or ''}")
    print(f"  length: median {statistics.median(lengths)}, longest {max(lengths)}")
    for limit in LIMITS:
        fit = sum(length <= limit for length in lengths)
        print(f"  within {limit} actions: {fit / len(lengths):.1%}")


if __name__ == "__main__":
    main(sys.argv[1:] or ["L0", "L1"])
