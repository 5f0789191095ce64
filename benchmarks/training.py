"""From random weights to trained agents on two cores: SFT, then GRPO, GiGPO and DPEPO.

    python benchmarks/training.py WORK --seeds 1
    python benchmarks/training.py WORK --seeds 3 --ablations 1

Runs the commands of docs/training.md, two at a time with a thread each where it can, plays every
trained model on the official games (``leaderboard.play``), and writes ``results/training.json`` and
``training.md`` with curves in ``training.svg`` (needs matplotlib). What WORK holds already is not
done again, so a stopped run goes on, and more seeds or ablations can be added later.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

import torch
from tqdm import tqdm
from training_plan import (
    BATCH,
    GAMES,
    PASSES,
    TURNS,
    Exam,
    Run,
    evaluations,
    options_of,
    results_of,
    runs,
)
from training_report import draw, page, report, ship

from agents import ModelOptions, make_agent
from agents.chat.hf import TransformersModel
from leaderboard.play import play
from leaderboard.protocol import Protocol, make_env
from parallel_envs.alfworld import blueprint, downward

OUT = Path(__file__).parent / "results" / "training.json"


def command(log: Path, *arguments: str, threads: int = 1) -> None:
    """Run a module of this project, its output in a file."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with log.open("a", encoding="utf-8") as file:
        begin = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", *arguments],
            check=True,
            stdout=file,
            stderr=file,
            env=environment,
        )
        file.write(f"seconds: {time.perf_counter() - begin:.0f}\n")


def train(work: Path, chosen: list[Run]) -> None:
    """Make demonstrations, the cold starts and the runs, as far as they are not there."""
    files = [work / f"turns-n{games[-1]}.jsonl" for games in GAMES]
    with ThreadPoolExecutor(2) as pool:
        missing = [pair for pair in zip(files, GAMES, strict=True) if not pair[0].exists()]
        for done in [pool.submit(demonstrate, *pair) for pair in missing]:
            done.result()
    for start in dict.fromkeys(run.start for run in chosen):
        if not (work / start / "model.safetensors").exists():
            options = ("--out", str(work / start), "--epochs", PASSES[start])
            command(work / f"{start}.log", "dpepo.sft", *map(str, files), *options, threads=2)
    with ThreadPoolExecutor(2) as pool:
        learners = [run for run in chosen if run.algorithm != "sft"]
        for done in [pool.submit(reinforce, work, run) for run in learners]:
            done.result()


def demonstrate(path: Path, games: tuple[str, ...]) -> None:
    """Write one file of demonstrations."""
    command(path.with_suffix(".log"), "dpepo.demonstrate", str(path), *games)


def reinforce(work: Path, run: Run) -> None:
    """Make one training run, or what is missing of it."""
    folders = ("--model", str(work / run.start), "--out", str(work / run.name))
    command(work / f"{run.name}.log", "dpepo.train", *options_of(run), *folders)


def evaluate(work: Path, exam: Exam, models: list[Run]) -> None:
    """Play a split with each model, in one process, so that every game is read once.

    Args:
        work: Holds the models; results go to its folder ``eval``.
        exam: What is played, and how.
        models: What plays; a run's name is that of its folder.
    """
    torch.set_num_threads(1)
    # All games of a split stay in memory (5 MB each) for the next model.
    blueprint.blueprint = downward.exclusive(lru_cache(None)(blueprint.Blueprint))
    for run in models:
        n = exam.n or run.n
        first = make_env("alfworld", exam.split, n, TURNS)
        envs = [first, *(first.sibling() for _ in range(1, BATCH))]
        model = TransformersModel(str(work / run.name), batch_size=BATCH)
        agent = make_agent(run.algorithm, ModelOptions(model, "compact", exam.decoding), n)
        tasks = first.task_set.tasks
        protocol = Protocol.of(run.label, "alfworld", first, run.seed, tasks, agent.settings)
        results = results_of(work, run, exam)
        with results.opened(protocol) as finished:
            missing = [task for task in tasks if task.id not in finished]
            bar = tqdm(play(envs, agent, missing, run.seed), results.path.name, len(missing))
            for result in bar:
                results.append(result)
        for env in envs:
            env.close()


def main() -> None:
    """Do what is missing, then write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", type=Path, help="folder of data, models and results")
    parser.add_argument("--seeds", type=int, default=1, help="seeds of each algorithm")
    parser.add_argument("--ablations", type=int, default=0, help="seeds of variants and ablations")
    parser.add_argument("--ship", action="store_true", help="write agents/checkpoints, too")
    given = parser.parse_args()
    work: Path = given.work
    work.mkdir(parents=True, exist_ok=True)
    chosen = runs(given.seeds, given.ablations)
    train(work, chosen)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=spawn, max_tasks_per_child=1) as pool:
        jobs = evaluations(chosen).items()
        for job in [pool.submit(evaluate, work, *each) for each in jobs]:
            job.result()
    data = report(work, chosen)
    OUT.write_text(json.dumps(data, indent=1) + "\n")
    OUT.with_suffix(".md").write_text(page(data))
    draw(work, chosen, OUT.with_suffix(".svg"))
    if given.ship:
        ship(work, chosen, data)
    print(page(data))


if __name__ == "__main__":
    main()
