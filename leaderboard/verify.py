"""Confirm results by replay: ``python -m leaderboard.verify RESULTS [--sample K]``."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np

from leaderboard.protocol import Protocol, make_env
from leaderboard.result import Result
from leaderboard.store import RunFolder, StoreError, run_folders, write_whole
from parallel_envs import ParallelEnvsError, ParallelTextEnv
from parallel_envs.diversity import summary
from parallel_envs.episode import ReplayError, replay

try:
    import typer
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from tqdm import tqdm
except ImportError as missing:
    sys.exit(f"{missing}; install it with: pip install 'parallel-text-envs[leaderboard]'")

__all__ = ["Verdict", "check", "read_verdict", "verify", "write_verdict"]

VERDICT = "verified.json"


@dataclass(frozen=True)
class Verdict:
    """What a verification found.

    Attributes:
        tasks: Tasks of the protocol.
        finished: Tasks with a finished episode.
        replayed: Episodes that were replayed and came out as recorded.
        problems: What is wrong, each with its place.
    """

    tasks: int
    finished: int
    replayed: int
    problems: tuple[str, ...] = ()

    @property
    def status(self) -> str:
        """``"verified"`` only if every task has an episode and every one of them replays."""
        if self.problems:
            return "refuted"
        if self.finished < self.tasks:
            return "incomplete"
        return "verified" if self.replayed == self.finished else "sampled"


def verify(
    folder: RunFolder,
    sample: int | None = None,
    seed: int = 0,
    progress: Callable[[Iterable[Result]], Iterable[Result]] = iter,
) -> Verdict:
    """Replay the episodes of a run without its model and compare everything that they claim.

    Args:
        folder: The run.
        sample: Replay this many drawn episodes only; None replays all.
        seed: Seed of the draw.
        progress: Wraps the iteration over the episodes, as `tqdm.tqdm` does.
    """
    try:
        protocol = folder.protocol()
        finished = {result.task_id: result.error is None for result in folder.latest()}
        env = make_env(protocol.env, protocol.split, protocol.n, protocol.max_turns, protocol.stop)
    except (StoreError, ParallelEnvsError, ValueError) as error:
        return Verdict(0, 0, 0, (str(error),))
    problems = list(_problems_of_the_whole(folder, protocol, finished))
    tasks = [task for task, done in finished.items() if done]
    chosen = tasks
    if sample is not None and sample < len(tasks):
        drawn = np.random.default_rng(seed).choice(len(tasks), size=sample, replace=False)
        chosen = [tasks[i] for i in sorted(drawn.tolist())]
    wanted = set(chosen)
    results = (result for result in folder.latest() if result.task_id in wanted)
    try:
        found = [problem for item in progress(results) if (problem := check(item, protocol, env))]
    finally:
        env.close()
    return Verdict(
        tasks=len(protocol.task_ids),
        finished=len(tasks),
        replayed=len(chosen) - len(found),
        problems=(*problems, *found),
    )


def check(result: Result, protocol: Protocol, env: ParallelTextEnv) -> str | None:
    """Replay one episode; return what is wrong with it, None if nothing is."""
    episode = result.episode
    assert episode is not None
    asked = {
        "split": protocol.split,
        "n": protocol.n,
        "max_turns": protocol.max_turns,
        "stop": protocol.stop,
        "task_id": result.task_id,
        "task_type": result.task_type,
    }
    for name, value in asked.items():
        if getattr(episode, name) != value:
            return f"{result.task_id}: its {name} is {getattr(episode, name)!r}, not {value!r}"
    if episode.ended is None:
        return f"{result.task_id}: it was cut off in turn {len(episode.turns)}"
    if result.replies and len(result.replies) != len(episode.turns):
        return f"{result.task_id}: {len(result.replies)} replies in {len(episode.turns)} turns"
    where = result.text_mismatch()
    if where:
        return f"{result.task_id}: the text of {where} is not the one that was played"
    for name, value in summary(episode).items():
        if result.diversity.get(name) != value:
            return f"{result.task_id}: {name} is {value}, not {result.diversity.get(name)}"
    try:
        replay(episode, env)
    except (ReplayError, ParallelEnvsError) as error:
        return f"{result.task_id}: {error}"
    if result.texts and result.texts.task != env.objective:
        return f"{result.task_id}: the sentence of the task is not the one that was played"
    return None


def read_verdict(folder: RunFolder) -> str:
    """Return the status that a verification left, ``"unverified"`` if the files changed since."""
    try:
        data = json.loads((folder.path / VERDICT).read_text(encoding="utf-8"))
        fresh = data["sha256"] == folder.fingerprint()
        return str(data["status"]) if fresh else "unverified"
    except (OSError, ValueError, KeyError, TypeError):
        return "unverified"


def write_verdict(folder: RunFolder, verdict: Verdict) -> None:
    """Leave the status in the run's folder, tied to the files as they are now."""
    data = {
        "status": verdict.status,
        "tasks": verdict.tasks,
        "finished": verdict.finished,
        "replayed": verdict.replayed,
        "sha256": folder.fingerprint(),
    }
    write_whole(folder.path / VERDICT, (json.dumps(data, indent=2) + "\n").encode())


def _problems_of_the_whole(
    folder: RunFolder, protocol: Protocol, finished: Mapping[str, bool]
) -> Iterator[str]:
    strangers = set(finished) - set(protocol.task_ids)
    if strangers:
        yield f"{min(strangers)} is not among the tasks of the protocol"
    if folder.is_torn():
        yield f"the last line of {folder.episodes} is cut off"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    results: Annotated[Path, typer.Argument(help="A run, or a folder with runs below it.")],
    sample: Annotated[
        int | None, typer.Option(help="Replay this many drawn episodes of each run.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draw.", min=0)] = 0,
) -> None:
    """Replay episodes without the model and confirm success, score, steps and metrics.

    A run is "verified" if every task of its protocol has a finished episode and every episode
    replays to the letter; "sampled" if all that were drawn do; "incomplete" if tasks are missing;
    "refuted" if anything differs. The status is left in the run's folder, tied to its files, for
    leaderboard.report. What a replay cannot know: that the model wrote the replies, and how long it
    took.

    Example: python -m leaderboard.verify results --sample 20
    """
    console = Console(width=None if sys.stdout.isatty() else 200, markup=False, highlight=False)
    try:
        folders = run_folders(results)
    except StoreError as error:
        console.print(f"Error: {error}")
        raise typer.Exit(1) from error
    verdicts = {}
    for folder in folders:
        name = str(folder.path.relative_to(results)) if folder.path != results else results.name
        progress = partial(tqdm, desc=name, unit="episode", disable=None)
        try:
            verdict = verdicts[name] = verify(folder, sample, seed, progress)
        except KeyboardInterrupt:
            console.print(f"Stopped; {name} was not judged.")
            raise typer.Exit(130) from None
        for problem in verdict.problems[:5]:
            console.print(f"{name}: {problem}")
        if len(verdict.problems) > 5:
            console.print(f"{name}: and {len(verdict.problems) - 5} more")
        with contextlib.suppress(OSError):  # a file is missing, or may only be read
            write_verdict(folder, verdict)
    table = Table(box=SIMPLE_HEAD)
    table.add_column("run")
    for head in ("tasks", "finished", "replayed", "status"):
        table.add_column(head, justify="right", no_wrap=True)
    for name, verdict in verdicts.items():
        counts = map(str, (verdict.tasks, verdict.finished, verdict.replayed))
        table.add_row(name, *counts, verdict.status)
    console.print(table)
    if any(verdict.problems for verdict in verdicts.values()):
        raise typer.Exit(1)


if __name__ == "__main__":
    app()
