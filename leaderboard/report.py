"""Tables and the page of results: ``python -m leaderboard.report RESULTS --help``."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from leaderboard.board import Board, Group, Row, load
from leaderboard.page import page
from leaderboard.store import StoreError, run_folders, write_whole

try:
    import typer
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
except ImportError as missing:
    sys.exit(f"{missing}; install it with: pip install 'parallel-text-envs[leaderboard]'")

__all__ = ["as_csv", "as_markdown", "group_table", "types_table"]


class Column(NamedTuple):
    """One column of a table: its head, its value, and how many digits are printed."""

    head: str
    value: Callable[[Row], float | int | str | None]
    digits: int | None = None  # of a number; None prints it as it is
    percent: bool = False
    optional: bool = False  # left out where no row has a value

    def text(self, row: Row) -> str:
        """Return the cell."""
        value = self.value(row)
        if value is None:
            return "n/a"
        if self.digits is None or isinstance(value, str):
            return str(value)
        return f"{100 * value if self.percent else value:.{self.digits}f}"


def _low(row: Row) -> float | None:
    return row.interval.low if row.interval else None


def _high(row: Row) -> float | None:
    return row.interval.high if row.interval else None


COLUMNS = [
    Column("agent", lambda row: row.label),
    Column("n", lambda row: row.protocol.n),
    Column("won %", lambda row: row.rate, 1, percent=True),
    Column("low %", _low, 1, percent=True),
    Column("high %", _high, 1, percent=True),
    Column("won", lambda row: row.won),
    Column("of", lambda row: len(row.finished)),
    Column("seeds", lambda row: len(row.seeds) if len(row.seeds) > 1 else None, optional=True),
    Column("errors", lambda row: row.errors or None, optional=True),
    Column("missing", lambda row: row.missing or None, optional=True),
    Column("score", lambda row: row.mean(lambda e: e.score), 3),
    Column("turns", lambda row: row.mean(lambda e: e.cost.turns), 1),
    Column("steps", lambda row: row.mean(lambda e: e.cost.steps), 1),
    Column("tokens in", lambda row: row.mean(lambda e: e.tokens_in), 0, optional=True),
    Column("cached", lambda row: row.mean(lambda e: e.tokens_cached), 0, optional=True),
    Column("tokens out", lambda row: row.mean(lambda e: e.tokens_out), 0, optional=True),
    Column("env s", lambda row: row.mean(lambda e: e.seconds.get("env")), 2),
    Column("agent s", lambda row: row.mean(lambda e: e.seconds.get("agent")), 2),
    Column(
        "no action %",
        lambda row: row.share(lambda e: e.unreadable, lambda e: e.cost.turns),
        1,
        percent=True,
        optional=True,
    ),
    Column(
        "cut off %",
        lambda row: row.share(lambda e: e.truncated, lambda e: e.cost.turns) or None,
        1,
        percent=True,
        optional=True,
    ),
    Column(
        "wrong form %",
        lambda row: row.share(lambda e: e.form_issues, lambda e: e.cost.turns),
        1,
        percent=True,
        optional=True,
    ),
    Column(
        "invalid %",
        lambda row: row.share(lambda e: e.invalid, lambda e: e.cost.steps),
        1,
        percent=True,
    ),
]
# Success by other projects' rules, for ScienceWorld only: they count what is not solved.
LOOSE = [
    Column("rule A %*", lambda row: row.loose("done_and_score"), 1, percent=True),
    Column("rule B %*", lambda row: row.loose("done_and_rise"), 1, percent=True),
]

NOTES = (
    "won %: solved episodes of those that finished, with the 95 % Wilson interval (seeds of a task "
    "are one cluster). score (below 0 counts as 0), turns, steps (actions sent, all replicas), "
    "tokens, s (wall time): means of an episode. no action %, cut off %, wrong form %: turns whose "
    "reply held no action, was cut at the limit of tokens, was not in form. invalid %: sent "
    "actions that were not in the admissible list. Rows of one tier do not differ from its first "
    "row (exact McNemar test on the same tasks, p >= 0.05)."
)
LOOSE_NOTE = (
    "* NOT success, but what other public code counts as such: rule A, the engine says done (its "
    "step limit included) and the score is above 0; rule B, it says done and the last action paid. "
    "The agent loophole passes both with ten waits and one sub-goal."
)


def columns_of(group: Group) -> list[Column]:
    """Return the columns that say something about a group."""
    columns = COLUMNS + (LOOSE if group.env == "scienceworld" else [])
    return [
        column
        for column in columns
        if not column.optional or any(column.value(row) is not None for row in group.rows)
    ]


def title_of(group: Group) -> str:
    """Return the protocol that the rows of a group share, in a line."""
    stop = "" if group.stop == "first_win" else f", stop {group.stop}"
    return f"{group.env} {group.split}: {group.tasks} tasks, {group.max_turns} turns{stop}"


def group_table(group: Group, *, ranked: bool = True) -> Table:
    """Return the table of a group; unranked it has no tiers and no verification status."""
    notes = [str(group.reach).capitalize() + ".", NOTES if ranked else NOTES.split(" Rows")[0]]
    notes += [LOOSE_NOTE] if group.env == "scienceworld" else []
    table = Table(
        title=title_of(group), caption="\n".join(notes), caption_justify="left", box=SIMPLE_HEAD
    )
    columns = columns_of(group)
    if ranked:
        table.add_column("tier", justify="right")
    for column in columns:
        left = column.head == "agent"
        table.add_column(column.head, justify="left" if left else "right", no_wrap=left)
    if ranked:
        table.add_column("status")
    for row, tier in zip(group.rows, group.tiers, strict=True):
        cells = [column.text(row) for column in columns]
        table.add_row(*([str(tier), *cells, row.status] if ranked else cells))
    return table


def types_table(group: Group) -> Table:
    """Return success by task type: a line a type, a column a row of the group."""
    table = Table(title="by task type: won %, won/finished", box=SIMPLE_HEAD)
    table.add_column("task type", no_wrap=True)
    for row in group.rows:
        table.add_column(row.name, justify="right", no_wrap=True)
    for kind in group.task_types:
        parts = [row.only(kind) for row in group.rows]
        table.add_row(kind, *(f"{_percent(p.rate)}  {p.won}/{len(p.finished)}" for p in parts))
    return table


def as_markdown(board: Board) -> str:
    """Return the tables as Markdown."""
    lines = ["# Leaderboard", ""]
    for group in board:
        columns = columns_of(group)
        heads = ["tier", *(column.head for column in columns), "status"]
        lines += [f"## {title_of(group)}", "", f"{str(group.reach).capitalize()}.", ""]
        lines += [_line(heads), _line(["---"] + ["---:"] * (len(heads) - 2) + ["---"])]
        for row, tier in zip(group.rows, group.tiers, strict=True):
            lines.append(_line([str(tier), *(c.text(row) for c in columns), row.status]))
        lines += [""]
        if any(row.protocol.env == "scienceworld" for row in group.rows):
            lines += [LOOSE_NOTE.replace("*", "\\*"), ""]
        for control in group.controls:
            lines += [
                f"{control.parallel} against {control.n} sequential attempts of "
                f"{control.sequential}, by {control.unit} of a task:",
                "",
                _line([control.unit, *(f"{budget:.0f}" for budget in control.budgets)]),
                _line(["---"] + ["---:"] * len(control.budgets)),
                _line(["parallel %", *map(_percent, control.parallel_success)]),
                _line(["sequential %", *map(_percent, control.sequential_success)]),
                "",
            ]
    return "\n".join([*lines, NOTES, ""])


def as_csv(board: Board) -> str:
    """Return all rows as CSV, numbers unrounded, undefined values empty."""
    columns = [*COLUMNS, *LOOSE]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    context = ["env", "split", "tasks", "max_turns", "stop", "reachable", "tier"]
    writer.writerow([*context, *(column.head for column in columns), "status"])
    for group in board:
        for row, tier in zip(group.rows, group.tiers, strict=True):
            head = [group.env, group.split, group.tasks, group.max_turns, group.stop]
            known = group.reach.within if group.reach.known else None
            loose = group.env == "scienceworld"
            values = [
                column.value(row) if loose or column not in LOOSE else None for column in columns
            ]
            writer.writerow([*head, known, tier, *values, row.status])
    return text.getvalue()


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    results: Annotated[Path, typer.Argument(help="A run, or a folder with runs below it.")],
    out: Annotated[
        Path, typer.Option(help="Folder of leaderboard.html, leaderboard.md and leaderboard.csv.")
    ] = Path(),
    viewer: Annotated[
        int, typer.Option(help="Episodes of each row that the page shows turn by turn.", min=0)
    ] = 12,
) -> None:
    """Print the tables of results, and write them as a page, as Markdown and as CSV.

    The page is one file that needs no network. Rows are marked "verified" where
    leaderboard.verify has replayed all their episodes.

    Example: python -m leaderboard.report results --out report
    """
    console = Console(width=None if sys.stdout.isatty() else 200, markup=False, highlight=False)
    try:
        folders = run_folders(results)
        board = load(folders)
        for group in board:
            console.print(group_table(group))
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / "leaderboard.html", page(board, folders, viewer).encode())
        write_whole(out / "leaderboard.md", as_markdown(board).encode())
        write_whole(out / "leaderboard.csv", as_csv(board).encode())
    except (StoreError, OSError) as error:
        console.print(f"Error: {error}")
        raise typer.Exit(1) from error
    console.print(f"Written: {out / 'leaderboard.html'}, leaderboard.md, leaderboard.csv")


if __name__ == "__main__":
    app()
