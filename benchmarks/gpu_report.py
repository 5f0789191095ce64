"""What ``benchmarks/gpu.sh`` came to, as Markdown: ``python benchmarks/gpu_report.py WORK``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import fmean

import torch
import transformers

from leaderboard.board import label, row
from leaderboard.store import RunFolder


def lines(path: Path) -> list[dict[str, float]]:
    """Return a file of metrics, empty if there is none."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main(work: Path) -> None:
    """Print the page."""
    print(f"torch {torch.__version__}, transformers {transformers.__version__}\n")
    samples = work / "gpu.csv"
    if samples.exists() and (parts := [s.split(", ") for s in samples.read_text().splitlines()]):
        busy, memory = fmean(float(p[1]) for p in parts), max(float(p[2]) for p in parts)
        print(f"{parts[0][0]}: busy {busy:.0f} % of the time, {memory:.0f} MiB at most\n")
    print("| step | updates | tokens | seconds | tokens per second |\n|---|---|---|---|---|")
    steps = {"cold start": [], "rollouts": [], "learning": []}
    for line in lines(work / "sft" / "metrics.jsonl"):
        steps["cold start"].append((line["tokens"], line["seconds"]))
    for line in lines(work / "rl" / "metrics.jsonl"):
        tokens = line["tokens_in"] + line["tokens_out"]
        steps["rollouts"].append((tokens, line["rollout_seconds"]))
        steps["learning"].append((tokens * line.get("taught", 0), line["learn_seconds"]))
    for name, spent in steps.items():
        tokens, seconds = (sum(column) for column in zip(*spent, strict=True)) if spent else (0, 0)
        speed = f"{tokens / seconds:,.0f}" if seconds else "–"
        print(f"| {name} | {len(spent)} | {tokens:,.0f} | {seconds:.0f} | {speed} |")
    print("\n| model | won | of | turns |\n|---|---|---|---|")
    for path in sorted((work / "results").iterdir()):
        folder = RunFolder(path)
        name = label(folder.protocol())
        found = row(name, [(folder.protocol(), "unverified", folder.latest())])
        turns = found.mean(lambda e: e.cost.turns)
        print(f"| {name} | {found.won} | {len(found.finished)} | {turns:.1f} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
