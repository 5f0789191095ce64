"""The tables, curves and model cards of `training.py`."""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from training_plan import (
    EXAMS,
    GAMES,
    MAIN,
    PASSES,
    SHIPPED,
    TURNS,
    Exam,
    Run,
    evaluations,
    options_of,
    results_of,
)
from transformers import AutoModelForCausalLM, AutoTokenizer

from agents.trained import CHECKPOINTS
from leaderboard.board import Row, row
from leaderboard.stats import paired

DIVERSITY = (
    "depth_repeat",
    "width_repeat",
    "state_coverage",
    "checkpoint_coverage",
    "revisit_rate",
    "jaccard_distance",
)


def report(work: Path, chosen: list[Run]) -> dict[str, Any]:
    """Return the numbers of the page."""
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in chosen:
        groups.setdefault((run.label, run.n), []).append(run)
    rows: dict[tuple[str, int], dict[Exam, tuple[Row, list[int]]]] = {of: {} for of in groups}
    for exam, models in evaluations(chosen).items():
        for of, members in groups.items():
            folders = [results_of(work, run, exam) for run in members if run in models]
            made = [folder for folder in folders if folder.path.exists()]
            played = [(f.protocol(), "unverified", list(f.latest())) for f in made]
            if played:
                by_seed = [sum(bool(e.won) for e in episodes) for *_, episodes in played]
                rows[of][exam] = row(of[0], played), by_seed
    found = []
    for (label, n), members in groups.items():
        first = members[0]
        entry: dict[str, Any] = {"agent": label, "n": n, "seeds": len(members)}
        entry |= {"start": first.start, "options": " ".join(first.options)}
        curves = [curve_of(work, run) for run in members if run.algorithm != "sft"]
        if curves:
            for name in ("env_steps", "tokens_in", "tokens_out", "minutes", "updates"):
                entry[name] = sum(curve[-1][name] for curve in curves) / len(curves)
        for exam, (one, by_seed) in rows[label, n].items():
            before, _ = rows[first.start, exam.n or n][replace(exam, n=None)]
            against = paired(one.outcomes, before.outcomes)
            entry[str(exam)] = {
                "won": one.won,
                "episodes": len(one.finished),
                "rate": one.rate,
                "interval": one.interval,
                "by_seed": by_seed,
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
        "|" + "---|" * (7 + len(whats)),
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
        *(
            f"- `{entry['agent']}` starts from `{entry['start']}`"
            + (f", with `{entry['options']}`" if entry["options"] else "")
            for entry in data["rows"]
            if entry["agent"] not in (*PASSES, *SHIPPED)
        ),
        *(f"- `{name}`: a cold start of `--epochs {passes}`" for name, passes in PASSES.items()),
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
            f"Minutes of each step (two at a time with a thread each; cold starts alone): {times}.",
            "",
        ]
    )


def draw(work: Path, chosen: list[Run], path: Path) -> None:
    """Draw the success of the rollouts of each algorithm against what had been spent."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
    learners = [run for run in chosen if run.label in SHIPPED and run.algorithm != "sft"]
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
        f"- {what if 'n=' in what else f'{what} n={run.n}'}: {cell['rate']:.1%}, 95 % interval "
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
