"""Run agents on tasks and print the leaderboard: ``python -m leaderboard.run --help``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from agents import Agent, ModelOptions, agent_names, make_agent
from agents.chat.model import Decoding, DecodingMode, ModelError
from leaderboard.board import Played, group, label, row
from leaderboard.play import play
from leaderboard.protocol import ENVIRONMENTS, Protocol, choose_tasks, make_env
from leaderboard.store import RunFolder, StoreError
from parallel_envs import ParallelEnvsError, ParallelTextEnv, Task

try:
    import typer
    from rich.console import Console
    from tqdm import tqdm

    from leaderboard.report import group_table, types_table
except ImportError as missing:
    sys.exit(f"{missing}; install it with: pip install 'parallel-text-envs[leaderboard]'")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def run(
    agent: Annotated[
        list[str], typer.Option(help=f"Agent to run, may be repeated: {', '.join(agent_names())}.")
    ],
    env: Annotated[str, typer.Option(help=f"One of {', '.join(ENVIRONMENTS)}.")] = "alfworld",
    split: Annotated[
        str | None,
        typer.Option(
            help="Split of the tasks; by default "
            + ", ".join(f"{split} for {name}" for name, (_, split) in ENVIRONMENTS.items())
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
    try:
        envs = [make_env(env, split, n, max_turns)]
        made = envs[0]
        tasks = choose_tasks(made.task_set.tasks, episodes, seed)
        options = model and ModelOptions(
            model=model,
            style=style,
            decoding=Decoding(temperature, top_p, max_tokens, _mode(decoding), think),
            budget=budget,
            back_end={"dtype": dtype} if dtype else {},
        )
        players = {name: _player(name, options or None, made) for name in agent}
    except (ParallelEnvsError, ModelError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    rows = []
    try:
        asks = any(player.overlaps for player in players.values())
        for _ in range(1, min(batch or (16 if asks else 1), len(tasks))):
            envs.append(ParallelTextEnv(made.task_set.share(), n, max_turns=max_turns))
        for name, player in players.items():
            protocol = Protocol.of(name, env, made, seed, tasks, player.settings)
            folder = RunFolder(out / protocol.run_name)
            _play_all(envs, player, tasks, seed, folder, protocol)
            rows.append(row(label(protocol), [(protocol, "unverified", folder.latest())]))
            _show_errors(console, rows[-1].played, folder.path)
    except (ParallelEnvsError, StoreError) as error:
        console.print(f"Error: {error}")
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        console.print(f"Stopped. Run the same command again to go on; results are in {out}.")
        raise typer.Exit(130) from None
    finally:
        for player in players.values():
            player.close()
        for each in envs:
            each.close()
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


def _player(name: str, options: ModelOptions | None, env: ParallelTextEnv) -> Agent:
    agent = make_agent(name, options, env.n)
    wanted = getattr(agent, "expert", None)
    if wanted is not None and wanted not in env.task_set.experts:
        raise ValueError(f"agent {name!r} needs the expert {wanted!r}, which this engine lacks")
    return agent


def _play_all(
    envs: Sequence[ParallelTextEnv],
    agent: Agent,
    tasks: Sequence[Task],
    seed: int,
    folder: RunFolder,
    protocol: Protocol,
) -> None:
    with folder.opened(protocol) as finished:
        missing = [task for task in tasks if task.id not in finished]
        for result in tqdm(
            play(envs, agent, missing, seed),
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
