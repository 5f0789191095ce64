"""Play every gold path of ScienceWorld splits: does it reach 100, and how long is it?

    python benchmarks/gold_paths.py L0 L1

Appends a line a task to ``benchmarks/results/gold_paths.jsonl``, goes on where it stopped, and
writes ``gold_paths.md``: what a turn limit can reach. One to two hours a split, most of it for the
mendelian-genetics tasks, whose paths take 10 s and more to compute. With ``--report`` it only
writes the page.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from parallel_envs import Task
from parallel_envs.scienceworld.server import JavaServer
from parallel_envs.scienceworld.tasks import SPLITS, ScienceWorldTasks
from parallel_envs.scienceworld.world import World, gold_path

OUT = Path(__file__).parent / "results" / "gold_paths.jsonl"
LIMITS = (25, 30, 50, 100, 200, 1000)
HEAD = """# ScienceWorld's gold paths

`python benchmarks/gold_paths.py L0 L1`: the engine's own solution of each task, played from its
start (scienceworld 1.2.3, no simplifications, one action a turn). A path can end in waits that come
after the win, so a few tasks need a little less than its length.

Where a path does not reach 100, the engine is the reason: played raw, alone in its server and just
as it was loaded for the path, it ends at the same score (tried: freeze/19, grow-fruit/78,
measure-melting-point-known-substance/226, test-conductivity/603 and /624). For the last two the
first path that a server computes differs from its later ones, the same way in every server; none of
them reaches 100.
"""


def main(arguments: list[str]) -> None:
    """Play what has not been played and write the page."""
    splits = [name for name in arguments if name in SPLITS] or ["L0", "L1"]
    lines = OUT.read_text().splitlines() if OUT.exists() else []
    known = {record["task_id"]: record for record in map(json.loads, lines)}
    if "--report" not in arguments:
        play([task for split in splits for task in ScienceWorldTasks(split).tasks], known)
    pages = [page(split, ScienceWorldTasks(split).tasks, known) for split in splits]
    text = "\n".join([HEAD, *pages])
    OUT.with_suffix(".md").write_text(text)
    print(text)


def play(tasks: list[Task], known: dict[str, dict[str, Any]]) -> None:
    """Play the gold paths that are not known yet, and write each down at once."""
    server = JavaServer.acquire()
    world = World(server)
    with OUT.open("a") as file:
        for task in tqdm([task for task in tasks if task.id not in known]):
            name, variation = task.id.rsplit("/", 1)
            start = time.perf_counter()
            path = gold_path(server, name, int(variation))
            seconds = round(time.perf_counter() - start, 2)
            world.load(name, int(variation))
            score = world.replay(path).score if path else None
            record = {"task_id": task.id, "length": len(path), "score": score, "seconds": seconds}
            known[task.id] = record
            file.write(json.dumps(record) + "\n")
            file.flush()
    server.release()


def page(split: str, tasks: Sequence[Task], known: dict[str, dict[str, Any]]) -> str:
    """Say how many paths reach 100, and how many fit turn limits."""
    records = [known[task.id] for task in tasks if task.id in known]
    lengths = [record["length"] for record in records]
    failed = [f"{r['task_id']} ({r['score']})" for r in records if r["score"] != 100]
    missing = Counter(task.type for task in tasks if task.id not in known)
    lines = [
        f"## {split}",
        "",
        f"{len(records) - len(failed)} of {len(records)} gold paths played reach 100"
        + (f"; not (score): {', '.join(failed)}." if failed else "."),
    ]
    if missing:
        left = ", ".join(f"{count} of {kind}" for kind, count in missing.items())
        lines.append(f"Not played yet, for the time it takes: {left}.")
    lines += ["", "| actions | " + " | ".join(map(str, LIMITS)) + " |", "|---|" + "--:|" * 6]
    shares = [sum(length <= limit for length in lengths) / len(lengths) for limit in LIMITS]
    lines += ["| paths that fit | " + " | ".join(f"{share:.1%}" for share in shares) + " |", ""]
    lines += ["| task | played | median | longest |", "|---|--:|--:|--:|"]
    for kind in dict.fromkeys(task.type for task in tasks):
        mine = [known[t.id]["length"] for t in tasks if t.type == kind and t.id in known]
        if mine:
            lines.append(f"| {kind} | {len(mine)} | {statistics.median(mine):g} | {max(mine)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
