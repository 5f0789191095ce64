"""What is trained, with which options, and what it is played on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agents.chat.model import Decoding, DecodingMode
from leaderboard.store import RunFolder

GAMES = ("--games", "1100", "--n", "4"), ("--games", "800", "--n", "1")
PASSES = {"sft": "1", "sft2": "2"}  # of each cold start over the demonstrations
ENV_STEPS, LONG = 24_000, 48_000
RL = ("--group", "8", "--lr", "3e-4", "--updates", "1000", "--env-steps", str(ENV_STEPS))
TASKS = {1: "8", 4: "4"}  # of an update, by n: about as many tokens
TURNS, BATCH = 25, 64
SHIPPED = ("sft", "grpo", "gigpo", "dpepo")


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
        n: Number of replicas; None is that of training.
    """

    split: str
    mode: DecodingMode
    temperature: float
    n: int | None = None

    def __str__(self) -> str:
        """Return the name in tables."""
        name = f"{self.split} {self.mode} {self.temperature}"
        return f"{name} n={self.n}" if self.n else name

    @property
    def decoding(self) -> Decoding:
        """How replies are drawn."""
        think = 8 if self.mode == "admissible" else 0
        return Decoding(self.temperature, max_tokens=80, mode=self.mode, think=think)


MAIN, WARM = Exam("valid_unseen", "admissible", 0.4), Exam("valid_unseen", "admissible", 1.0)
WIDE = Exam("valid_unseen", "admissible", 1.0, n=4)  # of what was trained with one replica
EXAMS = MAIN, WARM, WIDE, Exam("valid_seen", "admissible", 0.4), Exam("valid_unseen", "free", 0.4)


def runs(seeds: int, ablations: int) -> list[Run]:
    """Return the models in the order in which they are made, cold starts first."""
    found = [Run("sft", "sft", 4, 0), Run("sft", "sft", 1, 0)]
    algorithms = (("dpepo", 4), ("grpo", 1), ("gigpo", 1))
    found += [Run(f"{a}-{seed}", a, n, seed) for seed in range(seeds) for a, n in algorithms]
    if ablations:
        found += [Run("sft2", "sft", n, 0, start="sft2") for n in (4, 1)]
    return found + [run for seed in range(ablations) for run in variants(seed)]


def variants(seed: int) -> list[Run]:
    """Return the runs that differ in one thing, or start from the longer cold start."""

    def dpepo(name: str, *options: str, start: str = "sft") -> Run:
        return Run(f"{name}-{seed}", "dpepo", 4, seed, options, start)

    longer = ("--env-steps", str(LONG))
    return [
        dpepo("dpepo-generated", "--split", "generated:train"),  # games that need no download
        dpepo("dpepo-no-action", "--alpha", "1", "--omega", "1"),
        dpepo("dpepo-no-transition", "--gamma", "1", "--beta", "1"),
        dpepo("dpepo-long", *longer),
        dpepo("dpepo2", *longer, "--steps", "3", start="sft2"),
        Run(f"grpo2-{seed}", "grpo", 1, seed, start="sft2"),
    ]


def options_of(run: Run) -> tuple[str, ...]:
    """Return the options of a training run but its folders."""
    named = ("--algorithm", run.algorithm, "--n", str(run.n), "--seed", str(run.seed))
    return (*named, "--tasks", TASKS[run.n], *RL, *run.options)


def evaluations(chosen: list[Run]) -> dict[Exam, list[Run]]:
    """Return which models are played on what."""
    plain = [run for run in chosen if run.label in SHIPPED]
    alone = [run for run in chosen if run.n == 1 and run.algorithm != "sft"]
    special = {MAIN: chosen, WARM: chosen, WIDE: alone}
    return {exam: special.get(exam, plain) for exam in EXAMS}


def results_of(work: Path, run: Run, exam: Exam) -> RunFolder:
    """Return where the results of an evaluation are."""
    name = f"{run.name}-n{exam.n or run.n}-{exam.split}-{exam.mode}-{exam.temperature}"
    return RunFolder(work / "eval" / name)
