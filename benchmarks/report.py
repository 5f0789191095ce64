"""Time and memory of the report of 10,000 episodes.

    python benchmarks/report.py leaderboard/results/RUN

Copies a run of real episodes until there are 10,000 (as further seeds), builds the report of them
in a process of its own, and writes ``benchmarks/results/report.md``.
"""

from __future__ import annotations

import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from leaderboard.store import RunFolder

EPISODES = 10_000
OUT = Path(__file__).parent / "results" / "report.md"


def main(source: Path) -> None:
    """Make the copies, build the report, write down what it took."""
    folder = RunFolder(source)
    protocol = folder.protocol()
    lines = [json.dumps(result.to_json()) for result in folder.latest()]
    copies = -(-EPISODES // len(lines))
    with tempfile.TemporaryDirectory() as name:
        for seed in range(copies):
            copy = Path(name) / f"seed-{seed}"
            copy.mkdir()
            data = {**protocol.to_json(), "seed": seed}
            (copy / "protocol.json").write_text(json.dumps(data))
            (copy / "episodes.jsonl").write_text("\n".join(lines) + "\n")
        megabytes = sum(path.stat().st_size for path in Path(name).rglob("*")) / 1e6
        command = [sys.executable, "-m", "leaderboard.report", name, "--out", f"{name}/report"]
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
        page = (Path(name) / "report" / "leaderboard.html").stat().st_size / 1e6
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    text = f"""# The report of {copies * len(lines)} episodes

`python benchmarks/report.py {source}`: {copies} copies of that run as further seeds, \
{megabytes:.0f} MB of JSON, read by one `python -m leaderboard.report` (Python \
{platform.python_version()}, {platform.machine()}, one core of a shared machine).

| time | greatest memory | page |
|---:|---:|---:|
| {seconds:.0f} s | {peak:.0f} MB | {page:.1f} MB |

Aim: under 60 s and 1 GB.
"""
    OUT.write_text(text)
    print(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
