"""Environment steps a second over many tasks, against three ways of doing it with what there is.

    python benchmarks/throughput.py

Every way plays the same official games, T tasks with n replicas each, with random admissible
commands, all replicas every turn. Three runs in turns, medians of wall time. Needs
``$ALFWORLD_DATA``; about ten minutes. Writes ``benchmarks/results/throughput.md`` and ``.json``.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import parallel_envs  # noqa: F401 - registers the environments
from parallel_envs.alfworld.tasks import AlfworldTasks, data_folder

OUT = Path(__file__).parent / "results"
REPEATS = 3
SIZES = ((1, 4), (8, 4))  # tasks, replicas
STOCK_TURNS = 4
LABELS = {
    "vector": "make_vec, this package",
    "textworld": "(a) stock textworld.gym batch",
    "processes": "(b) one stock process a replica",
    "async": "(c) AsyncVectorEnv, n=1 each",
}


def choose(tasks: int) -> list[str]:
    """Choose games of all sizes, the same for every way."""
    split = AlfworldTasks("valid_unseen").tasks
    return [split[i].id for i in np.linspace(0, len(split) - 1, tasks).astype(int)]


def vector(ids: list[str], n: int) -> tuple[float, float]:
    """Play with this package's vector environment."""
    envs = gymnasium.make_vec(
        "ParallelALFWorld-v0", num_envs=len(ids), n=n, split="valid_unseen", max_turns=10**6
    )
    rng = random.Random(0)
    start = time.perf_counter()
    _, infos = envs.reset(options={"task_id": ids})
    ready = time.perf_counter()
    for _ in range(60):
        joint = tuple(tuple(map(rng.choice, each)) for each in infos["admissible_actions"])
        _, _, terminated, _, infos = envs.step(joint)
        if terminated.any():
            _, infos = envs.reset(options={"task_id": ids, "reset_mask": terminated})
    end = time.perf_counter()
    envs.close()
    return ready - start, 60 * len(ids) * n / (end - ready)


def asynchronous(ids: list[str], n: int) -> tuple[float, float]:
    """Play with Gymnasium's asynchronous vector of single-replica environments."""
    make = partial(
        gymnasium.make, "ParallelALFWorld-v0", n=1, split="valid_unseen", max_turns=10**6
    )
    envs = gymnasium.vector.AsyncVectorEnv(
        [make] * (len(ids) * n),
        shared_memory=False,
        context="forkserver",
        autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
    )
    rng = random.Random(0)
    start = time.perf_counter()
    _, infos = envs.reset(seed=0)
    ready = time.perf_counter()
    for _ in range(20):
        _, _, _, _, infos = envs.step(
            (tuple(rng.choice(a[0]) for a in infos["admissible_actions"]),)
        )
    end = time.perf_counter()
    envs.close()
    return ready - start, 20 * len(ids) * n / (end - ready)


def stock_files(ids: list[str], n: int) -> list[str]:
    """Return the game file of every replica."""
    root = data_folder() / "json_2.1.1"
    return [str(root / id / "game.tw-pddl") for id in ids for _ in range(n)]


def textworld_batch(ids: list[str], n: int) -> tuple[float, float]:
    """Play with TextWorld's own batch, as ALFWorld's trainers do."""
    import textworld.gym
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos

    infos = textworld.EnvInfos(won=True, admissible_commands=True, extras=["gamefile"])
    env_id = textworld.gym.register_games(
        stock_files(ids, n),
        infos,
        batch_size=len(ids) * n,
        asynchronous=True,
        max_episode_steps=10**6,
        wrappers=[AlfredDemangler(shuffle=False), AlfredInfos],
    )
    rng = random.Random(0)
    start = time.perf_counter()
    env = textworld.gym.make(env_id)
    _, shown = env.reset()
    ready = time.perf_counter()
    for _ in range(STOCK_TURNS):
        _, _, _, shown = env.step(list(map(rng.choice, shown["admissible_commands"])))
    end = time.perf_counter()
    env.close()
    return ready - start, STOCK_TURNS * len(ids) * n / (end - ready)


def stock_worker(pipe: Any, path: str) -> None:
    """Hold one stock environment."""
    import textworld
    from alfworld.agents.environment.alfred_tw_env import AlfredDemangler, AlfredInfos
    from textworld.envs.pddl import PddlEnv

    infos = textworld.EnvInfos(won=True, admissible_commands=True)
    env = AlfredInfos(AlfredDemangler(PddlEnv(infos), shuffle=False))
    env.load(path)
    pipe.send(env.reset()["admissible_commands"])
    while (command := pipe.recv()) is not None:
        state, _, _ = env.step(command)
        pipe.send(state["admissible_commands"])


def stock_processes(ids: list[str], n: int) -> tuple[float, float]:
    """Play with one stock environment in a process for every replica."""
    context = multiprocessing.get_context("forkserver")
    rng = random.Random(0)
    start = time.perf_counter()
    pipes, workers = [], []
    for path in stock_files(ids, n):
        ours, theirs = context.Pipe()
        workers.append(context.Process(target=stock_worker, args=(theirs, path), daemon=True))
        workers[-1].start()
        pipes.append(ours)
    commands = [pipe.recv() for pipe in pipes]
    ready = time.perf_counter()
    for _ in range(STOCK_TURNS):
        for pipe, possible in zip(pipes, commands, strict=True):
            pipe.send(rng.choice(possible))
        commands = [pipe.recv() for pipe in pipes]
    end = time.perf_counter()
    for pipe, worker in zip(pipes, workers, strict=True):
        pipe.send(None)
        worker.kill()  # stock libraries crash when they are unloaded
    return ready - start, STOCK_TURNS * len(ids) * n / (end - ready)


def fork_costs() -> dict[str, float]:
    """Return the median milliseconds of a fork of 4 replicas after 10 turns."""
    costs = {}
    for name, arguments in (
        ("ParallelALFWorld-v0", {"split": "valid_unseen"}),
        ("ParallelScienceWorld-v0", {"split": "L1", "tasks": ["boil"]}),
    ):
        env = gymnasium.make(name, n=4, disable_env_checker=True, **arguments).unwrapped
        _, info = env.reset(seed=0)
        for turn in range(10):
            joint = tuple(
                a[(3 * turn + i) % len(a)] for i, a in enumerate(info["admissible_actions"])
            )
            *_, info = env.step(tuple("look" if a.startswith("focus") else a for a in joint))
        times = []
        for _ in range(10):
            start = time.perf_counter()
            twin = env.fork()
            times.append(1000 * (time.perf_counter() - start))
            twin.close()
        costs[name] = statistics.median(times)
        env.close()
    return costs


WAYS: dict[str, Callable[[list[str], int], tuple[float, float]]] = {
    "vector": vector,
    "textworld": textworld_batch,
    "processes": stock_processes,
    "async": asynchronous,
}


def measured(way: str, tasks: int, n: int) -> tuple[float, float]:
    """Measure one way in a process of its own."""
    command = [sys.executable, __file__, way, str(tasks), str(n)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return tuple(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Measure everything and write the report."""
    samples: dict[tuple[str, int, int], list[tuple[float, float]]] = {}
    for repeat in range(REPEATS):
        for tasks, n in SIZES:
            for way in WAYS:
                print(f"repeat {repeat + 1}/{REPEATS}: {way}, {tasks} x {n}", flush=True)
                samples.setdefault((way, tasks, n), []).append(measured(way, tasks, n))
    rows = [
        {
            "way": way,
            "tasks": tasks,
            "n": n,
            "reset_s": statistics.median(reset for reset, _ in found),
            "steps_per_s": statistics.median(speed for _, speed in found),
        }
        for (way, tasks, n), found in samples.items()
    ]
    forks = fork_costs()
    OUT.mkdir(exist_ok=True)
    (OUT / "throughput.json").write_text(json.dumps({"rows": rows, "fork_ms": forks}, indent=1))
    lines = [
        "# Environment steps a second over many tasks",
        "",
        f"`python benchmarks/throughput.py`: official ALFWorld games, {os.cpu_count()} cores; "
        f"medians of {REPEATS} runs, wall time, each in its own process. A step is one command in "
        "one replica, the admissible commands of all replicas included. *x*: this package / it.",
        "",
        "| tasks x replicas | way | first reset s | steps/s | x |",
        "|---|---|--:|--:|--:|",
    ]
    for tasks, n in SIZES:
        mine = {row["way"]: row for row in rows if (row["tasks"], row["n"]) == (tasks, n)}
        for way, row in mine.items():
            ratio = mine["vector"]["steps_per_s"] / row["steps_per_s"]
            lines.append(
                f"| {tasks} x {n} | {LABELS[way]} | {row['reset_s']:.1f} | "
                f"{row['steps_per_s']:.0f} | {ratio:.1f} |"
            )
    lines += ["", "A fork of 4 replicas after 10 turns: "]
    lines[-1] += "; ".join(f"{name} {cost:.1f} ms" for name, cost in forks.items()) + "."
    (OUT / "throughput.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    if sys.argv[1:]:
        way, tasks, n = sys.argv[1:]
        print(json.dumps(WAYS[way](choose(int(tasks)), int(n))), flush=True)
        os._exit(0)  # stock libraries crash when they are unloaded
    main()
