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
import platform
import re
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

from agents import ModelOptions, make_agent
from agents.chat.hf import TransformersModel
from agents.chat.model import Decoding, DecodingMode
from agents.trained import CHECKPOINTS
from leaderboard.board import Row, row
from leaderboard.play import play
from leaderboard.protocol import Protocol, make_env
from leaderboard.stats import paired
from leaderboard.store import RunFolder
from parallel_envs.alfworld import blueprint, downward

OUT = Path(__file__).parent / "results" / "training.json"
GAMES = ("--games", "1100", "--n", "4"), ("--games", "800", "--n", "1")
PASSES = {"sft": "1", "sft2": "2"}  # of each cold start over the demonstrations
ENV_STEPS, LONG = 24_000, 48_000
RL = ("--group", "8", "--lr", "3e-4", "--updates", "1000", "--env-steps", str(ENV_STEPS))
TASKS = {1: "8", 4: "4"}  # of an update, by n: about as many tokens
TURNS, BATCH = 25, 64
SHIPPED = ("sft", "grpo", "gigpo", "dpepo")
DIVERSITY = (
    "depth_repeat",
    "width_repeat",
    "state_coverage",
    "checkpoint_coverage",
    "revisit_rate",
    "jaccard_distance",
)


@dataclass(frozen=True)
class Run:
    """A training run.

    Attributes:
        name: Of its folder.
        algorithm: Advantage estimator.
        n: Number of replicas.
        seed: Its seed.
        options: Further options of dpepo.train.
        start: The cold start that it goes on from.
    """

    name: str
    algorithm: str
    n: int
    seed: int
    options: tuple[str, ...] = ()
    start: str = "sft"

    @property
    def label(self) -> str:
        """The name without the seed."""
        return self.name.removesuffix(f"-{self.seed}")


@dataclass(frozen=True)
class Exam:
    """What models are played on, all games of a split.

    Attributes:
        split: Official split.
        mode: Decoding.
        temperature: That of the DPEPO paper, or that at which rollouts are drawn in training.
    """

    split: str
    mode: DecodingMode
    temperature: float

    def __str__(self) -> str:
        """Return the name in tables and folders."""
        return f"{self.split} {self.mode} {self.temperature}"

    @property
    def decoding(self) -> Decoding:
        """How replies are drawn."""
        think = 8 if self.mode == "admissible" else 0
        return Decoding(self.temperature, max_tokens=80, mode=self.mode, think=think)


MAIN, WARM = Exam("valid_unseen", "admissible", 0.4), Exam("valid_unseen", "admissible", 1.0)
EXAMS = MAIN, WARM, Exam("valid_seen", "admissible", 0.4), Exam("valid_unseen", "free", 0.4)


def runs(seeds: int, ablations: int) -> list[Run]:
    """Return the models in the order in which they are made, cold starts first."""
    found = [Run("sft", "sft", 4, 0), Run("sft", "sft", 1, 0)]
    algorithms = (("dpepo", 4), ("grpo", 1), ("gigpo", 1))
    found += [Run(f"{a}-{seed}", a, n, seed) for seed in range(seeds) for a, n in algorithms]
    if not ablations:
        return found
    other = {
        # Games that need no download.
        "dpepo-generated": ("sft", "--split", "generated:train"),
        "dpepo-no-action": ("sft", "--alpha", "1", "--omega", "1"),
        "dpepo-no-transition": ("sft", "--gamma", "1", "--beta", "1"),
        "dpepo-long": ("sft", "--env-steps", str(LONG)),
        "dpepo2": ("sft2", "--env-steps", str(LONG), "--steps", "3"),
    }
    return [
        *found,
        Run("sft2", "sft", 4, 0, start="sft2"),
        *(
            Run(f"{name}-{seed}", "dpepo", 4, seed, tuple(options), start)
            for seed in range(ablations)
            for name, (start, *options) in other.items()
        ),
    ]


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


def options_of(run: Run) -> tuple[str, ...]:
    """Return the options of a training run but its folders."""
    named = ("--algorithm", run.algorithm, "--n", str(run.n), "--seed", str(run.seed))
    return (*named, "--tasks", TASKS[run.n], *RL, *run.options)


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
        first = make_env("alfworld", exam.split, run.n, TURNS)
        envs = [first, *(first.sibling() for _ in range(1, BATCH))]
        model = TransformersModel(str(work / run.name), batch_size=BATCH)
        agent = make_agent(run.algorithm, ModelOptions(model, "compact", exam.decoding), run.n)
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


def results_of(work: Path, run: Run, exam: Exam) -> RunFolder:
    """Return where the results of an evaluation are."""
    return RunFolder(work / "eval" / f"{run.name}-n{run.n}-{exam}".replace(" ", "-"))


def evaluations(chosen: list[Run]) -> dict[Exam, list[Run]]:
    """Return which models are played on what."""
    plain = [run for run in chosen if run.label in SHIPPED]
    return {exam: chosen if exam in (MAIN, WARM) else plain for exam in EXAMS}


def report(work: Path, chosen: list[Run]) -> dict[str, Any]:
    """Return the numbers of the page."""
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in chosen:
        groups.setdefault((run.label, run.n), []).append(run)
    rows: dict[tuple[str, int, str], Row] = {}
    by_seed: dict[tuple[str, int, str], list[int]] = {}
    for exam, models in evaluations(chosen).items():
        for (label, n), members in groups.items():
            folders = [results_of(work, run, exam) for run in members if run in models]
            made = [folder for folder in folders if folder.path.exists()]
            played = [(f.protocol(), "unverified", list(f.latest())) for f in made]
            if played:
                what = (label, n, str(exam))
                rows[what] = row(label, played)
                by_seed[what] = [sum(bool(e.won) for e in episodes) for *_, episodes in played]
    found = []
    for (label, n), members in groups.items():
        entry: dict[str, Any] = {"agent": label, "n": n, "seeds": len(members)}
        curves = [curve_of(work, run) for run in members if run.algorithm != "sft"]
        if curves:
            for name in ("env_steps", "tokens_in", "tokens_out", "minutes", "updates"):
                entry[name] = sum(curve[-1][name] for curve in curves) / len(curves)
        for (of, m, what), one in rows.items():
            if (of, m) != (label, n):
                continue
            before = rows[members[0].start, n, what]
            against = paired(one.outcomes, before.outcomes)
            entry[what] = {
                "won": one.won,
                "episodes": len(one.finished),
                "rate": one.rate,
                "interval": one.interval,
                "by_seed": by_seed[of, m, what],
                "over_sft": against and [against.difference, *against.interval],
                "turns": one.mean(lambda e: e.cost.turns),
                "steps": one.mean(lambda e: e.cost.steps),
                "diversity": {
                    name: one.mean(lambda e, name=name: e.diversity.get(name)) for name in DIVERSITY
                },
            }
        found.append(entry)
    return {
        "command": " ".join(["python benchmarks/training.py WORK", *sys.argv[2:]]),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, torch {torch.__version__}",
        "seconds": {path.stem: seconds_of(path) for path in sorted(work.glob("*.log"))},
        "rows": found,
    }


def curve_of(work: Path, run: Run) -> list[dict[str, float]]:
    """Return a run's metrics with what had been spent after each update."""
    lines = (work / run.name / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    for name in ("tokens_in", "tokens_out"):
        for one, total in zip(rows, accumulate(one[name] for one in rows), strict=True):
            one[name] = total
    seconds = accumulate(one["rollout_seconds"] + one["learn_seconds"] for one in rows)
    for one, total in zip(rows, seconds, strict=True):
        one["minutes"], one["updates"] = total / 60, one["update"]
    return rows


def seconds_of(log: Path) -> int:
    """Return how long a command took, all its parts together."""
    return sum(map(int, re.findall(r"^seconds: (\d+)$", log.read_text(), re.MULTILINE)))


def page(data: dict[str, Any]) -> str:
    """Return the page as Markdown."""

    def percent(cell: dict[str, Any] | None) -> str:
        if cell is None:
            return "–"
        low, high = cell["interval"]
        seeds = ", ".join(map(str, cell["by_seed"])) if len(cell["by_seed"]) > 1 else ""
        return f"{cell['rate']:.1%} [{low:.0%}, {high:.0%}]{f' ({seeds})' if seeds else ''}"

    def gain(cell: dict[str, Any]) -> str:
        difference, low, high = cell["over_sft"]
        return f"{100 * difference:+.1f} [{100 * low:+.0f}, {100 * high:+.0f}]"

    whats = [*map(str, EXAMS)]
    lines = [
        "| agent | n | seeds | env steps | tokens in / out | minutes | "
        + " | ".join(whats)
        + f" | over its cold start, {MAIN} |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for entry in data["rows"]:
        spent = "– | – | –"
        if "env_steps" in entry:
            spent = (
                f"{entry['env_steps']:,.0f} | {entry['tokens_in'] / 1e6:.1f} / "
                f"{entry['tokens_out'] / 1e6:.1f} M | {entry['minutes']:.0f}"
            )
        cells = " | ".join(percent(entry.get(what)) for what in whats)
        over = "–" if entry["agent"] in PASSES else gain(entry[whats[0]])
        lines.append(
            f"| {entry['agent']} | {entry['n']} | {entry['seeds']} | {spent} | {cells} | {over} |"
        )
    lines += [
        "",
        f"Diversity and length of play, {MAIN}:",
        "",
        "| agent | n | turns | steps | " + " | ".join(DIVERSITY).replace("_", " ") + " |",
        "|---|---|---|---|" + "---|" * len(DIVERSITY),
    ]
    for entry in data["rows"]:
        cell = entry[whats[0]]
        values = (cell["diversity"][name] for name in DIVERSITY)
        lines.append(
            f"| {entry['agent']} | {entry['n']} | {cell['turns']:.1f} | {cell['steps']:.1f} | "
            + " | ".join("–" if value is None else f"{value:.3f}" for value in values)
            + " |"
        )
    times = ", ".join(f"{name} {seconds / 60:.1f}" for name, seconds in data["seconds"].items())
    return "\n".join(
        [
            f"Machine: {data['machine']}. Command: `{data['command']}`.",
            *(["", data["note"]] if "note" in data else []),
            "",
            *lines,
            "",
            f"Minutes of each step (two at a time, one thread each): {times}.",
            "",
        ]
    )


def ship(work: Path, chosen: list[Run], data: dict[str, Any]) -> None:
    """Put the cold start and seed 0 of each algorithm into agents/checkpoints.

    There is no choice among seeds. Half precision halves the files; they play in fp32 again.
    """
    entries = {(entry["agent"], entry["n"]): entry for entry in data["rows"]}
    for label in SHIPPED:
        # Of the cold start's two, the one that is played alone.
        run = [run for run in chosen if run.label == label and run.seed == 0][-1]
        entry = entries[label, run.n]
        source, folder = work / run.name, CHECKPOINTS / label
        AutoModelForCausalLM.from_pretrained(source, dtype="float16").save_pretrained(folder)
        AutoTokenizer.from_pretrained(source).save_pretrained(folder)
        play = {"style": "compact", "decoding": MAIN.decoding.to_json()}
        (folder / "play.json").write_text(json.dumps(play, indent=1) + "\n")
        (folder / "README.md").write_text(card(run, entry))


def card(run: Run, entry: dict[str, Any]) -> str:
    """Return the model card of a checkpoint."""
    demonstrations = "; ".join(" ".join(("dpepo.demonstrate", *games)) for games in GAMES)
    budget = f"`dpepo.sft --epochs {PASSES[run.start]}`, from random weights."
    if run.algorithm != "sft":
        tokens = (entry["tokens_in"] + entry["tokens_out"]) / 1e6
        budget += (
            f" Then `dpepo.train {' '.join(options_of(run))}`: {entry['env_steps']:,.0f} steps of "
            f"replicas, {tokens:.1f} M tokens, {entry['minutes']:.0f} minutes with one thread "
            f"(means of {entry['seeds']} seeds). This is seed 0; no choice was made among seeds."
        )
    scores = "\n".join(
        f"- {what}, n = {run.n}: {cell['rate']:.1%}, 95 % interval "
        f"[{cell['interval'][0]:.0%}, {cell['interval'][1]:.0%}]"
        for what, cell in entry.items()
        if isinstance(cell, dict)
    )
    return f"""# {run.label}

A Llama of 1.1 million parameters (4 layers of 128, a vocabulary of whole words; in fp16) that plays
ALFWorld with the `compact` prompt: `python -m leaderboard.run --agent {run.label} --n {run.n}`.

- **Data**: official train games only: `{demonstrations}`, played by the hand-written agent
  `searcher`; reinforcement draws from the same split.
- **Budget**: {budget}
- **Scores** on all games of a split by decoding and temperature, {TURNS} turns, all seeds of the
  algorithm together (`benchmarks/training.py`; the row of this very file is on the leaderboard):

{scores}

It knows the words of ALFWorld and nothing else.
"""


def draw(work: Path, chosen: list[Run], path: Path) -> None:
    """Draw the success of the rollouts against what had been spent."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
    learners = [run for run in chosen if run.algorithm != "sft"]
    for number, label in enumerate(dict.fromkeys(run.label for run in learners)):
        for run in (run for run in learners if run.label == label):
            rows = curve_of(work, run)
            won = [one["won"] for one in rows]
            smooth = [fmean(won[max(0, i - 4) : i + 1]) for i in range(len(won))]
            for axis, unit in zip(axes, ("env_steps", "tokens"), strict=True):
                spent = [one.get(unit, one["tokens_in"] + one["tokens_out"]) for one in rows]
                name = f"{label}, n = {run.n}" if run.seed == 0 else None
                axis.plot(spent, smooth, color=f"C{number}", alpha=0.8, linewidth=1.2, label=name)
    axes[0].set(xlabel="environment steps", ylabel="success of rollouts (last 5 updates)")
    axes[1].set(xlabel="tokens, prompts and replies")
    axes[0].legend(fontsize=7)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Do what is missing, then write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", type=Path, help="folder of data, models and results")
    parser.add_argument("--seeds", type=int, default=1, help="seeds of each algorithm")
    parser.add_argument("--ablations", type=int, default=0, help="seeds of DPEPO's ablations")
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
