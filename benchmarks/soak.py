"""Play for a long time while workers are killed and frozen at random.

    python benchmarks/soak.py --minutes 30

Checks that the survivors lose nothing: every episode's actions, played again in a new environment,
must lead to what was shown. Checks that memory stays flat. Writes ``benchmarks/results/soak.md``.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import time
from pathlib import Path
from typing import Any

import gymnasium
import psutil

import parallel_envs  # noqa: F401 - registers the environments

OUT = Path(__file__).parent / "results" / "soak.md"
MIX = {
    "ParallelALFWorld-v0": {"num_envs": 4, "n": 4, "split": "valid_unseen", "timeout": 20},
    "ParallelScienceWorld-v0": {"num_envs": 2, "n": 2, "split": "L1", "timeout": 40},
}
KILL_EVERY = 40  # turns, on average


class Soak:
    """One vector environment, what was played in it, and what was checked."""

    def __init__(self, name: str, rng: random.Random) -> None:
        arguments = dict(MIX[name])
        self.rng = rng
        self.envs = gymnasium.make_vec(name, **arguments, max_turns=25)
        arguments = {key: arguments[key] for key in ("n", "split")}
        self.single = gymnasium.make(name, **arguments, max_turns=25, disable_env_checker=True)
        self.turns = self.steps = self.kills = self.freezes = self.errors = self.checked = 0
        _, self.infos = self.envs.reset(seed=0)
        self.played: list[list[Any]] = [[] for _ in range(self.envs.num_envs)]
        self.shown: list[Any] = [None] * self.envs.num_envs

    def turn(self) -> None:
        """Play one turn, sometimes hurt a worker, check and replace what has ended."""
        if self.rng.random() < 1 / KILL_EVERY:
            self.hurt()
        joint = tuple(
            tuple(
                self.rng.choice(a) if a and not a[0].startswith("focus") else ""
                for a in each or ((),)
            )
            for each in self.infos["admissible_actions"]
        )
        observations, _, terminated, truncated, infos = self.envs.step(joint)
        self.turns += 1
        for index, error in enumerate(infos["error"]):
            if error is None:
                self.played[index].append(joint[index])
                self.shown[index] = (observations[index], infos["state_key"][index])
                self.steps += int(infos["acted"][index].sum())
            else:
                self.errors += 1
        ended = terminated | truncated
        for index in ended.nonzero()[0]:
            if infos["error"][index] is None and self.rng.random() < 0.3:
                self.check(index, infos["task_id"][index])
            self.played[index] = []
        if ended.any():
            _, infos = self.envs.reset(options={"reset_mask": ended})
        self.infos = infos

    def hurt(self) -> None:
        """Kill or freeze a worker, or the Java server of one."""
        process = psutil.Process(self.rng.choice(self.envs.unwrapped._workers)._process.pid)
        victim = self.rng.choice([process, *process.children()])
        if self.rng.random() < 0.8:
            victim.kill()
            self.kills += 1
        else:
            victim.send_signal(signal.SIGSTOP)
            self.freezes += 1

    def check(self, index: int, task: str) -> None:
        """Play an episode again; raise if it does not end in the same state."""
        self.single.reset(options={"task_id": task})
        for joint in self.played[index]:
            observation, *_, info = self.single.step(joint)
        assert (observation, info["state_key"]) == self.shown[index], f"lost state in {task}"
        self.checked += 1

    def memory(self) -> float:
        """Resident megabytes of the workers and their servers."""
        workers = [
            psutil.Process(w._process.pid) for w in self.envs.unwrapped._workers if w._process
        ]
        family = [p for worker in workers for p in (worker, *worker.children(recursive=True))]
        return sum(p.memory_info().rss for p in family) / 2**20


def main() -> None:
    """Soak and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=30)
    minutes = parser.parse_args().minutes
    rng = random.Random(0)
    soaks = {name: Soak(name, rng) for name in MIX}
    memory: dict[str, list[float]] = {name: [] for name in MIX}
    own = []
    end = time.monotonic() + 60 * minutes
    next_look = 0.0
    while time.monotonic() < end:
        for soak in soaks.values():
            soak.turn()
        if time.monotonic() > next_look:
            next_look = time.monotonic() + 10
            own.append(psutil.Process().memory_info().rss / 2**20)
            for name, soak in soaks.items():
                memory[name].append(soak.memory())
            print(
                {name: (s.turns, s.kills, s.errors, s.checked) for name, s in soaks.items()},
                flush=True,
            )
    lines = [
        "# Soak: random kills",
        "",
        f"`python benchmarks/soak.py --minutes {minutes:g}`, {os.cpu_count()} cores. Every "
        f"{KILL_EVERY} turns on average a worker or its Java server is killed (80 %) or frozen.",
        "",
        "| | turns | steps | killed | frozen | episodes cut off | replayed, equal | MB, first "
        "third | MB, last third |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, soak in soaks.items():
        third = len(memory[name]) // 3 or 1
        early, late = memory[name][:third], memory[name][-third:]
        lines.append(
            f"| {name} | {soak.turns} | {soak.steps} | {soak.kills} | {soak.freezes} | "
            f"{soak.errors} | {soak.checked} | {statistics.median(early):.0f} | "
            f"{statistics.median(late):.0f} |"
        )
        soak.envs.close()
        soak.single.close()
    third = len(own) // 3 or 1
    lines += [
        "",
        f"The parent: {statistics.median(own[:third]):.0f} MB in the first third, "
        f"{statistics.median(own[-third:]):.0f} MB in the last. Memory is the median of the "
        "workers and their servers together. Processes left at the end: "
        f"{len(psutil.Process().children(recursive=True))}.",
    ]
    OUT.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
