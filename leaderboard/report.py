"""Tables of results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table

from leaderboard.protocol import Protocol
from leaderboard.stats import Interval, wilson
from leaderboard.store import Result

__all__ = ["Row", "row", "summary_table", "types_table"]


class Row(NamedTuple):
    """One line of a table. Rates and means are over the episodes that finished.

    A mean over no episodes is None.
    """

    label: str
    tasks: int
    won: int
    finished: int
    errors: int
    interval: Interval | None
    score: float | None
    turns: float | None
    steps: float | None
    seconds: float | None


def row(label: str, results: Sequence[Result], tasks: int) -> Row:
    """Summarise results of `tasks` tasks, of which some may have failed or not been played."""
    done = [result for result in results if result.error is None]
    won = sum(bool(result.won) for result in done)

    def mean(values: list[float]) -> float | None:
        return fmean(values) if values else None

    return Row(
        label=label,
        tasks=tasks,
        won=won,
        finished=len(done),
        errors=len(results) - len(done),
        interval=wilson(won, len(done)),
        score=mean([result.score for result in done if result.score is not None]),
        turns=mean([float(result.turns) for result in done]),
        steps=mean([float(result.steps) for result in done]),
        seconds=mean([result.seconds for result in done]),
    )


def summary_table(protocol: Protocol, rows: Sequence[Row]) -> Table:
    """Return the table of agents under one protocol."""
    title = (
        f"{protocol.env} {protocol.split}, n={protocol.n}, {protocol.max_turns} turns, "
        f"seed {protocol.seed}"
    )
    versions = ", ".join(f"{name} {number}" for name, number in protocol.versions.items())
    table = Table(title=title, caption=versions, caption_justify="left", box=SIMPLE_HEAD)
    table.add_column("agent", no_wrap=True)
    for head in ("won %", "95 %", "won/tasks", "errors", "score", "turns", "steps", "s"):
        table.add_column(head, justify="right", no_wrap=True)
    for item in rows:
        table.add_row(
            item.label,
            _percent(item.won / item.finished if item.finished else None),
            f"{100 * item.interval.low:.1f}–{100 * item.interval.high:.1f}"
            if item.interval
            else "n/a",
            f"{item.won}/{item.finished}",
            str(item.errors) if item.errors else "–",
            _number(item.score, 3),
            _number(item.turns),
            _number(item.steps),
            _number(item.seconds, 2),
        )
    return table


def types_table(rows: Mapping[str, Sequence[Row]]) -> Table:
    """Return success by task type: a line a type, a column an agent."""
    table = Table(title="by task type: won %, won/tasks", box=SIMPLE_HEAD)
    table.add_column("task type", no_wrap=True)
    for agent in rows:
        table.add_column(agent, justify="right", no_wrap=True)
    for lines in zip(*rows.values(), strict=True):
        cells = [
            f"{_percent(line.won / line.finished if line.finished else None)} "
            f" {line.won}/{line.finished}"
            for line in lines
        ]
        table.add_row(lines[0].label, *cells)
    return table


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f}"


def _number(value: float | None, digits: int = 1) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}"
