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

    @property
    def rate(self) -> float | None:
        """Share of the finished episodes that were won."""
        return self.won / self.finished if self.finished else None


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
        f"{protocol.env} {protocol.split}: {protocol.tasks} tasks, n={protocol.n}, "
        f"{protocol.max_turns} turns, seed {protocol.seed}"
    )
    versions = ", ".join(f"{name} {number}" for name, number in protocol.versions.items())
    caption = (
        "won %: with its 95 % Wilson interval, over the episodes that finished. score, turns, "
        "steps (actions sent, all replicas), s (wall time): means of an episode; scores below 0 "
        f"count as 0.\n{versions}"
    )
    table = Table(title=title, caption=caption, caption_justify="left", box=SIMPLE_HEAD)
    table.add_column("agent", no_wrap=True)
    for head in ("won %", "95 %", "won", "of", "errors", "score", "turns", "steps", "s"):
        table.add_column(head, justify="right", no_wrap=True)
    for item in rows:
        table.add_row(
            item.label,
            _percent(item.rate),
            _interval(item.interval),
            str(item.won),
            str(item.finished),
            str(item.errors) if item.errors else "–",
            _number(item.score, 3),
            _number(item.turns),
            _number(item.steps),
            _number(item.seconds, 2),
        )
    return table


def types_table(rows: Mapping[str, Sequence[Row]]) -> Table:
    """Return success by task type: a line a type, a column an agent."""
    table = Table(title="by task type: won %, won/finished", box=SIMPLE_HEAD)
    table.add_column("task type", no_wrap=True)
    for agent in rows:
        table.add_column(agent, justify="right", no_wrap=True)
    for lines in zip(*rows.values(), strict=True):
        cells = [f"{_percent(line.rate)}  {line.won}/{line.finished}" for line in lines]
        table.add_row(lines[0].label, *cells)
    return table


def _interval(value: Interval | None) -> str:
    return "n/a" if value is None else f"{100 * value.low:.1f}–{100 * value.high:.1f}"


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f}"


def _number(value: float | None, digits: int = 1) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}"
