"""The tasks of a split as a data set for verl: ``python -m dpepo.scale.verl_data --help``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from parallel_envs import Task
from parallel_envs.registration import constructor

__all__ = ["main", "rows"]


def rows(env: str, split: str, tasks: list[Task]) -> list[dict[str, Any]]:
    """Return a row for each task: what verl asks for, and what `dpepo.scale.verl` plays.

    Example:
        >>> (row,) = rows("toy", "train", [Task("coin-attic/trap-cellar", "near")])
        >>> row["data_source"], row["env"], row["split"], row["task_id"]
        ('toy train', 'toy', 'train', 'coin-attic/trap-cellar')
    """
    return [
        {
            "data_source": f"{env} {split}",  # verl reports the sources apart
            "env": env,
            "split": split,
            "task_id": task.id,
            # The loop writes the prompts; verl only counts rows by this one.
            "prompt": [{"role": "user", "content": task.id}],
            "reward_model": {"style": "rule", "ground_truth": task.type},
            "extra_info": {"index": index},
        }
        for index, task in enumerate(tasks)
    ]


def main(
    out: Annotated[Path, typer.Argument(help="The parquet file to write.")],
    env: Annotated[str, typer.Option(help="alfworld, scienceworld or toy.")] = "alfworld",
    split: Annotated[str, typer.Option(help="Split of the tasks.")] = "train",
    tasks: Annotated[int, typer.Option(help="How many to draw, in random order; 0: all.")] = 0,
    seed: Annotated[int, typer.Option(help="Seed of the draw.")] = 0,
) -> None:
    """Write the tasks of a split as a data set for verl."""
    made = constructor(env)(split=split, n=1)
    known = made.task_set.tasks
    if not 0 <= tasks <= len(known):
        raise typer.BadParameter(f"--tasks must be in 0..{len(known)} for this split, not {tasks}")
    drawn = np.random.default_rng(seed).choice(len(known), size=tasks, replace=False)
    chosen = [known[i] for i in drawn] if tasks else list(known)
    made.close()
    out.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows(env, split, chosen)), out)
    typer.echo(f"{out}: {len(chosen)} tasks")


if __name__ == "__main__":
    typer.run(main)
