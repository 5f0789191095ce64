"""What n replicas cost: load, reset, joint step and memory, against n stock environments.

    python benchmarks/replicas.py

Every row is measured in a process of its own, three times, in turns (shared, stock, shared, …); the
table has medians. Times are CPU seconds of the process and of its Java servers. Writes
``benchmarks/results/replicas.md`` and ``.json``. About 20 minutes; needs ``$ALFWORLD_DATA`` and,
for the stock ScienceWorld rows, 10 GB of memory.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Protocol

import psutil

OUT = Path(__file__).parent / "results"
REPEATS = 3
SEED = 0
KITCHENS = range(1, 31)  # ALFWorld floor plans
# Joint steps; a stock one of ALFWorld takes seconds at n = 32, and Java grows faster with use.
STEPS = {
    ("alfworld", "shared"): 40,
    ("alfworld", "stock"): 4,
    ("scienceworld", "shared"): 20,
    ("scienceworld", "stock"): 20,
}
COUNTS = (1, 4, 8, 32)
STOCK_COUNTS = {"alfworld": COUNTS, "scienceworld": (1, 4, 8)}  # a stock server takes 1 GB
SCIENCE_TASK = ("boil", 0)


class Games(Protocol):
    """n replicas under test."""

    def reset(self) -> None:
        """Bring all to the start."""

    def step(self, replica: int, rng: random.Random) -> None:
        """Play a random valid action in one."""


class SharedGames:
    """This package."""

    def __init__(self, engine: str, game: str, n: int) -> None:
        import gymnasium

        import parallel_envs  # noqa: F401

        name, split = {
            "alfworld": ("ParallelALFWorld-v0", game.split("/")[0]),
            "scienceworld": ("ParallelScienceWorld-v0", "train"),
        }[engine]
        made = gymnasium.make(name, n=n, split=split, disable_env_checker=True).unwrapped
        (task,) = (task for task in made.task_set.tasks if task.id == game)
        self._game = made.task_set.open(task, n)
        self._states = list(self._game.start())

    def reset(self) -> None:
        self._states = list(self._game.start())

    def step(self, replica: int, rng: random.Random) -> None:
        actions = [a for a in self._states[replica].admissible_actions if playable(a)]
        self._states[replica] = self._game.step(replica, rng.choice(actions))


class StockAlfworld:
    """n stock ALFWorld environments."""

    def __init__(self, engine: str, game: str, n: int) -> None:
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
        from textworld.envs.pddl import PddlEnv

        from parallel_envs.alfworld.tasks import data_folder

        infos = textworld.EnvInfos(won=True, admissible_commands=True)
        path = data_folder() / "json_2.1.1" / game / "game.tw-pddl"
        self._envs = [AlfredInfos(AlfredDemangler(PddlEnv(infos), shuffle=False)) for _ in range(n)]
        for env in self._envs:
            env.load(str(path))
        self._states: list[Any] = [None] * n

    def reset(self) -> None:
        self._states = [env.reset() for env in self._envs]

    def step(self, replica: int, rng: random.Random) -> None:
        command = rng.choice(self._states[replica]["admissible_commands"])
        self._states[replica], _, _ = self._envs[replica].step(command)


class StockScienceWorld:
    """n stock ScienceWorld environments."""

    def __init__(self, engine: str, game: str, n: int) -> None:
        from scienceworld import ScienceWorldEnv

        task, variation = game.split("/")
        self._envs = [ScienceWorldEnv("", envStepLimit=10**9) for _ in range(n)]
        for env in self._envs:
            env.load(task, int(variation), "")
        self._valid: list[list[str]] = [[]] * n

    def reset(self) -> None:
        self._valid = [env.reset()[1]["valid"] for env in self._envs]

    def step(self, replica: int, rng: random.Random) -> None:
        action = rng.choice([a for a in self._valid[replica] if playable(a)])
        *_, info = self._envs[replica].step(action)
        self._valid[replica] = info["valid"]


def playable(action: str) -> bool:
    """Leave out what ends or restarts a ScienceWorld game."""
    return not action.startswith(("focus", "reset"))


def cpu_seconds() -> float:
    """CPU time of this process and of the Java servers that it started."""
    servers = psutil.Process().children(recursive=True)
    return time.process_time() + sum(sum(server.cpu_times()[:2]) for server in servers)


def memory() -> int:
    """Resident bytes of this process and of its Java servers."""
    me = psutil.Process()
    return sum(p.memory_info().rss for p in (me, *me.children(recursive=True)))


def measure(engine: str, kind: str, game: str, n: int) -> dict[str, float]:
    """Measure one row in this process."""
    make: Any = SharedGames
    if kind == "stock":
        make = {"alfworld": StockAlfworld, "scienceworld": StockScienceWorld}[engine]
    import_engine(engine)
    start = cpu_seconds(), time.perf_counter()
    games = make(engine, game, n)
    games.reset()
    ready = cpu_seconds(), time.perf_counter()
    rng = random.Random(SEED)
    steps = STEPS[engine, kind]
    for _ in range(steps):
        for replica in range(n):
            games.step(replica, rng)
    stepped = cpu_seconds(), time.perf_counter()
    games.reset()
    reset = cpu_seconds(), time.perf_counter()
    result = {"memory_mb": memory() / 2**20}
    for place, unit in enumerate(("cpu", "wall")):
        result[f"load_{unit}"] = ready[place] - start[place]
        result[f"step_{unit}"] = (stepped[place] - ready[place]) / steps
        result[f"reset_{unit}"] = reset[place] - stepped[place]
    return result


def import_engine(engine: str) -> None:
    """Import all that loading a game imports, so that the clock starts after it."""
    for module in {
        "alfworld": ["parallel_envs.alfworld.game", "alfworld.agents.environment.alfred_tw_env"],
        "scienceworld": ["parallel_envs.scienceworld.game", "scienceworld"],
    }[engine]:
        importlib.import_module(module)


def worker(engine: str, kind: str, game: str, n: int) -> dict[str, float]:
    """Measure one row in a process of its own."""
    command = [sys.executable, __file__, "--worker", engine, kind, game, str(n)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def games() -> dict[str, tuple[str, str]]:
    """Choose the games: label -> (engine, task id)."""
    from parallel_envs.alfworld.tasks import AlfworldTasks

    sizes = {}
    for split in ("valid_seen", "valid_unseen"):
        tasks = AlfworldTasks(split)
        sizes.update({task.id: tasks.path(task).stat().st_size for task in tasks.tasks})
    kitchens = [id for id in sizes if int(id.split("/")[1].rsplit("-", 1)[1]) in KITCHENS]
    return {
        "ALFWorld, smallest validation kitchen": ("alfworld", min(kitchens, key=sizes.__getitem__)),
        "ALFWorld, largest validation game": ("alfworld", max(sizes, key=sizes.__getitem__)),
        "ScienceWorld, boil": ("scienceworld", "/".join(map(str, SCIENCE_TASK))),
    }


def main() -> None:
    """Measure everything and write the report."""
    rows: list[dict[str, Any]] = []
    chosen = games()
    plan = [
        (label, engine, game, kind, n)
        for label, (engine, game) in chosen.items()
        for n in COUNTS
        for kind in ("shared", "stock")
        if kind == "shared" or n in STOCK_COUNTS[engine]
    ]
    samples: dict[tuple[Any, ...], list[dict[str, float]]] = {row: [] for row in plan}
    for repeat in range(REPEATS):
        for row in plan:
            label, engine, game, kind, n = row
            if repeat > 0 and kind == "stock" and n == max(COUNTS):
                continue  # minutes each, and a sum of many already
            print(f"repeat {repeat + 1}/{REPEATS}: {label}, {kind}, n={n}", flush=True)
            samples[row].append(worker(engine, kind, game, n))
    for (label, _, game, kind, n), found in samples.items():
        median = {key: statistics.median(sample[key] for sample in found) for key in found[0]}
        rows.append({"label": label, "game": game, "kind": kind, "n": n, **median})
    OUT.mkdir(exist_ok=True)
    (OUT / "replicas.json").write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1))
    (OUT / "replicas.md").write_text(report(rows))
    print((OUT / "replicas.md").read_text())


def machine() -> dict[str, str]:
    """Describe where this ran."""
    from importlib.metadata import version

    packages = ("alfworld", "textworld", "fast-downward-textworld", "scienceworld", "gymnasium")
    return {
        "cpu": f"{os.cpu_count()} cores, {platform.machine()}",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "python": platform.python_version(),
        "java": subprocess.run(
            ["java", "-version"], capture_output=True, text=True, check=False
        ).stderr.split("\n")[0],
        **{package: version(package) for package in packages},
    }


def report(rows: list[dict[str, Any]]) -> str:
    """Write the tables."""
    lines = [
        "# What n replicas cost",
        "",
        f"`python benchmarks/replicas.py`: medians of {REPEATS} runs, each in its own process, in "
        "CPU seconds, Java included. *Load* is the first game of a process, from after imports to "
        "the first texts; *step* is a joint step of all n replicas with a random valid action "
        "each; *reset* brings all back to the start after these steps; *MB* is resident at the "
        "end. *Stock* is n separate unmodified environments in one process (ScienceWorld: "
        "one Java server each), at n = 32 measured once; *x* is stock / shared.",
        "",
        "; ".join(f"{key} {value}" for key, value in machine().items()),
    ]
    for label in dict.fromkeys(row["label"] for row in rows):
        mine = [row for row in rows if row["label"] == label]
        lines += ["", f"## {label}", "", f"`{mine[0]['game']}`", ""]
        lines += [
            "| n | "
            + " | stock | x | ".join(("load s", "reset ms", "step ms", "MB"))
            + " | stock | x |",
            "|" + "--:|" * 13,
        ]
        shared = {row["n"]: row for row in mine if row["kind"] == "shared"}
        stock = {row["n"]: row for row in mine if row["kind"] == "stock"}
        for n, ours in shared.items():
            cells = [str(n)]
            for key, scale, digits in (
                ("load_cpu", 1, 2),
                ("reset_cpu", 1000, 1),
                ("step_cpu", 1000, 1),
                ("memory_mb", 1, 0),
            ):
                cells.append(f"{scale * ours[key]:.{digits}f}")
                if n in stock:
                    theirs = stock[n][key]
                    ratio = theirs / ours[key] if ours[key] else float("inf")
                    cells += [f"{scale * theirs:.{digits}f}", f"{ratio:.1f}"]
                else:
                    cells += ["–", "–"]
            lines.append("| " + " | ".join(cells) + " |")
        growth = shared[8]["load_cpu"] / shared[1]["load_cpu"]
        lines += ["", f"load(8) / load(1), shared: {growth:.2f}"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--worker", nargs=4, metavar=("ENGINE", "KIND", "GAME", "N"))
    arguments = parser.parse_args()
    if arguments.worker:
        engine, kind, game, n = arguments.worker
        print(json.dumps(measure(engine, kind, game, int(n))))
        if kind == "stock":
            os._exit(0)  # stock ScienceWorld hangs at exit, stock ALFWorld unloads nothing
    else:
        main()
