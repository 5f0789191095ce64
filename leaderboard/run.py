"""Run agents on tasks and print the leaderboard: ``python -m leaderboard.run --help``."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from agents import ModelOptions, agent_names
from agents.chat.model import Decoding, DecodingMode, ModelError
from leaderboard.board import Played, group, label, row
from leaderboard.player import Player, Setup
from leaderboard.protocol import SPLITS, Protocol, choose_tasks
from leaderboard.store import RunFolder, StoreError
from parallel_envs import ParallelEnvsError, Task

try:
    import typer
    from rich.console import Console
    from tqdm import tqdm

    from leaderboard.report import group_table, types_table
except ImportError as missing:
    sys.exit(f"{missing}; install it with: pip install 'parallel-text-envs[leaderboard]'")

if TYPE_CHECKING:
    from leaderboard.cluster import ClusterPlayer

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def run(
    agent: Annotated[
        list[str], typer.Option(help=f"Agent to run, may be repeated: {', '.join(agent_names())}.")
    ],
    env: Annotated[str, typer.Option(help=f"One of {', '.join(SPLITS)}.")] = "alfworld",
    split: Annotated[
        str | None,
        typer.Option(
            help="Split of the tasks; by default "
            + ", ".join(f"{split} for {name}" for name, split in SPLITS.items())
            + "."
        ),
    ] = None,
    n: Annotated[int, typer.Option(help="Number of replicas of each task.", min=1)] = 4,
    max_turns: Annotated[int, typer.Option(help="Turn limit of an episode.", min=1)] = 25,
    episodes: Annotated[
        int | None,
        typer.Option(help="Play this many tasks, drawn with the seed; by default the whole split."),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the agent and of the draw of tasks.", min=0)
    ] = 0,
    batch: Annotated[
        int | None,
        typer.Option(
            help="Episodes that are played beside one another; by default 16 with a model, else 1.",
            min=1,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Chat model: smollm2, a folder, a hub id, vllm:FOLDER, or http://SERVER/v1#NAME.",
            rich_help_panel="Agents with a model",
        ),
    ] = None,
    style: Annotated[
        str | None,
        typer.Option(
            help="Prompt style; by default the agent's own.", rich_help_panel="Agents with a model"
        ),
    ] = None,
    decoding: Annotated[
        str,
        typer.Option(
            help='"free", or "admissible": replies are kept in form, with admissible actions only.',
            rich_help_panel="Agents with a model",
        ),
    ] = "free",
    temperature: Annotated[
        float,
        typer.Option(
            help="0 takes the likeliest token.", min=0, rich_help_panel="Agents with a model"
        ),
    ] = 0.0,
    top_p: Annotated[
        float,
        typer.Option(
            help="Share of the probability to draw from.", rich_help_panel="Agents with a model"
        ),
    ] = 1.0,
    max_tokens: Annotated[
        int,
        typer.Option(
            help="Greatest length of a reply.", min=1, rich_help_panel="Agents with a model"
        ),
    ] = 512,
    think: Annotated[
        int,
        typer.Option(
            help="With --decoding admissible: tokens of reasoning before the actions.",
            min=0,
            rich_help_panel="Agents with a model",
        ),
    ] = 0,
    budget: Annotated[
        int | None,
        typer.Option(
            help="Greatest number of tokens of a prompt; by default what the model can read.",
            min=1,
            rich_help_panel="Agents with a model",
        ),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Precision of a model in this process.", rich_help_panel="Agents with a model"
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            help="Play on a Ray cluster: auto, HOST:PORT, ray://HOST:PORT, or local for the cores "
            "of this machine. The results are the same.",
            rich_help_panel="Many machines",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="With --ray: processes that play, --batch episodes each; by default one for each "
            "CPU of the cluster, with a --model for each GPU if there is one.",
            min=1,
            rich_help_panel="Many machines",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder of the results; a stopped run in it is taken up again.")
    ] = Path("results"),
) -> None:
    """Play every task of a split once with each agent, and print the table.

    Results are appended to OUT/RUN/episodes.jsonl, a line an episode, beside the protocol that
    they were played under. A crash of an engine is an error row with its reason, never a zero.

    Example: python -m leaderboard.run --agent random --agent expert --env alfworld --episodes 20
    """
    logging.basicConfig(format="%(levelname)s: %(message)s")
    # Where the output is a file, lines are as long as the table needs.
    console = Console(width=None if sys.stdout.isatty() else 200, markup=False, highlight=False)
    with contextlib.ExitStack() as stack:
        try:
            options = model and ModelOptions(
                model=model,
                style=style,
                decoding=Decoding(temperature, top_p, max_tokens, _mode(decoding), think),
                budget=budget,
                back_end={"dtype": dtype} if dtype else {},
            )
            names = tuple(dict.fromkeys(agent))
            setup = Setup(env, split, n, max_turns, names, options or None, batch)
            player = _player(setup, ray, workers)
            stack.callback(player.close)
            tasks = choose_tasks(player.env.task_set.tasks, episodes, seed)
        except (ParallelEnvsError, ModelError, ValueError) as error:
            raise typer.BadParameter(str(error)) from error
        rows = []
        try:
            for name in names:
                protocol = Protocol.of(name, env, player.env, seed, tasks, player.settings[name])
                folder = RunFolder(out / protocol.run_name)
                _play_all(player, tasks, folder, protocol)
                rows.append(row(label(protocol), [(protocol, "unverified", folder.latest())]))
                _show_errors(console, rows[-1].played, folder.path)
        except (ParallelEnvsError, StoreError) as error:
            console.print(f"Error: {error}")
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            console.print(f"Stopped. Run the same command again to go on; results are in {out}.")
            raise typer.Exit(130) from None
    table = group(rows)
    console.print(group_table(table, ranked=False))
    console.print(types_table(table))
    if not any(each.finished for each in rows):
        raise typer.Exit(1)


def _mode(text: str) -> DecodingMode:
    if text == "free":
        return "free"
    if text == "admissible":
        return "admissible"
    raise ValueError(f"--decoding must be free or admissible, not {text!r}")


def _player(setup: Setup, address: str | None, workers: int | None) -> Player | ClusterPlayer:
    if address is None:
        if workers is not None:
            raise ValueError("--workers is the number of workers of a cluster; give --ray as well")
        return Player(setup)
    from leaderboard.cluster import ClusterPlayer

    return ClusterPlayer(setup, address, workers)


def _play_all(
    player: Player | ClusterPlayer, tasks: Sequence[Task], folder: RunFolder, protocol: Protocol
) -> None:
    with folder.opened(protocol) as finished:
        missing = [task for task in tasks if task.id not in finished]
        for result in tqdm(
            player.play(protocol, missing),
            desc=protocol.agent,
            unit="episode",
            total=len(tasks),
            initial=len(finished),
            disable=None,  # no bar where the output is not a terminal
        ):
            folder.append(result)


def _show_errors(console: Console, results: Sequence[Played], path: Path) -> None:
    failed = [result for result in results if result.error is not None]
    for result in failed[:5]:
        console.print(f"error {result.task_id}: {result.error}")
    if failed:
        console.print(
            f"{len(failed)} of {len(results)} episodes have no result (see {path}); the rates "
            "are over the others. Run the same command again to play them once more."
        )


if __name__ == "__main__":
    app()
