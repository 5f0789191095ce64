"""The page: one self-contained HTML file, made of a template and the board as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

import parallel_envs
from leaderboard.board import Board, Group, Played, Row
from leaderboard.result import Result
from leaderboard.store import RunFolder

__all__ = ["page", "page_data"]

POINTS = 50  # of a curve


def page(board: Board, folders: Sequence[RunFolder], viewer: int) -> str:
    """Return the page as HTML.

    Args:
        board: What it shows.
        folders: The runs, for the episodes of the viewer.
        viewer: Number of episodes of each row in the viewer.
    """
    template = files("leaderboard").joinpath("page.html").read_text(encoding="utf-8")
    data = json.dumps(page_data(board, folders, viewer), allow_nan=False, separators=(",", ":"))
    # Inside a script element only the end of that element could be misread.
    return template.replace("__DATA__", data.replace("<", "\\u003c"))


def page_data(board: Board, folders: Sequence[RunFolder], viewer: int) -> dict[str, Any]:
    """Return all that the page shows, as plain data."""
    shown = _chosen_episodes(board, folders, viewer)
    published = files("leaderboard") / "data" / "published.json"
    return {
        "version": parallel_envs.__version__,
        "groups": [_group(group, shown) for group in board],
        "published": json.loads(published.read_text(encoding="utf-8")),
    }


def _group(group: Group, shown: Mapping[int, list[dict[str, Any]]]) -> dict[str, Any]:
    budgets = {unit: _budgets(group, unit) for unit in ("turns", "steps", "tokens")}
    numbers = {id(row): number for number, row in enumerate(group.rows)}
    return {
        "title": f"{group.env} {group.split}",
        "env": group.env,
        "split": group.split,
        "tasks": group.tasks,
        "max_turns": group.max_turns,
        "stop": group.stop,
        "reach": {
            "within": group.reach.within,
            "known": group.reach.known,
            "tasks": group.reach.tasks,
            "text": str(group.reach),
        },
        "types": group.task_types,
        "budgets": budgets,
        "rows": [
            _row(row, tier, group, budgets, shown[id(row)])
            for row, tier in zip(group.rows, group.tiers, strict=True)
        ],
        "comparisons": [
            {
                # Names are not unique: rows may differ in nothing but a setting.
                "pair": [numbers[id(one)], numbers[id(other)]],
                **{name: value for name, value in result._asdict().items() if name != "interval"},
                "low": result.interval.low,
                "high": result.interval.high,
            }
            for one, other, result in group.comparisons
        ],
        "controls": [vars(control) for control in group.controls],
    }


def _row(
    row: Row,
    tier: int,
    group: Group,
    budgets: Mapping[str, Sequence[float]],
    episodes: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    protocol = row.protocol.to_json()
    protocol["tasks"] = len(protocol.pop("task_ids"))
    protocol["seeds"] = row.seeds
    del protocol["seed"]
    loose = group.env == "scienceworld"
    return {
        "name": row.name,
        "label": row.label,
        "n": row.protocol.n,
        "seeds": row.seeds,
        "tier": tier,
        "status": row.status,
        "expected": row.expected,
        "errors": row.errors,
        "missing": row.missing,
        **_success(row),
        "score": row.mean(lambda episode: episode.score),
        "loose": {
            "done_and_score": row.loose("done_and_score"),
            "done_and_rise": row.loose("done_and_rise"),
        }
        if loose
        else None,
        "turns": row.mean(lambda episode: episode.cost.turns),
        "steps": row.mean(lambda episode: episode.cost.steps),
        "tokens_in": row.mean(lambda episode: episode.tokens_in),
        "tokens_out": row.mean(lambda episode: episode.tokens_out),
        "seconds_env": row.mean(lambda episode: episode.seconds.get("env")),
        "seconds_agent": row.mean(lambda episode: episode.seconds.get("agent")),
        "unreadable": row.share(lambda e: e.unreadable, lambda e: e.cost.turns),
        "wrong_form": row.share(lambda e: e.form_issues, lambda e: e.cost.turns),
        "inadmissible": row.share(lambda e: e.invalid, lambda e: e.cost.steps),
        "types": {kind: _success(row.only(kind)) for kind in group.task_types},
        "curves": {unit: row.curve(unit, points) for unit, points in budgets.items()},
        "diversity": _diversity(row),
        "protocol": protocol,
        "episodes": episodes,
    }


def _success(row: Row) -> dict[str, Any]:
    interval = row.interval
    return {
        "won": row.won,
        "finished": len(row.finished),
        "rate": row.rate,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
    }


def _diversity(row: Row) -> dict[str, dict[str, float | None]]:
    """Return each metric's mean over all episodes, over the won and over the others."""
    names = dict.fromkeys(name for episode in row.finished for name in episode.diversity)

    def of(name: str, which: Callable[[Played], bool]) -> float | None:
        return row.mean(lambda episode: episode.diversity.get(name) if which(episode) else None)

    return {
        name: {
            "all": of(name, lambda episode: True),
            "won": of(name, lambda episode: bool(episode.won)),
            "lost": of(name, lambda episode: not episode.won),
        }
        for name in names
    }


def _budgets(group: Group, unit: str) -> list[float]:
    """Return the places at which curves are drawn: whole numbers up to the greatest cost."""
    costs = [getattr(e.cost, unit) for row in group.rows for e in row.finished]
    most = max((cost for cost in costs if cost is not None), default=0)
    step = max(1, math.ceil(most / POINTS))
    return [float(budget) for budget in range(0, most + step, step)] if most else []


def _chosen_episodes(
    board: Board, folders: Sequence[RunFolder], viewer: int
) -> dict[int, list[dict[str, Any]]]:
    """Return the viewer's episodes of each row: won and other ones by turns, first tasks first."""
    shown: dict[int, list[dict[str, Any]]] = {}
    by_path = {str(folder.path): folder for folder in folders}
    for row in (row for group in board for row in group.rows):
        outcomes: dict[str, bool] = {}
        for episode in row.finished:  # the first run's come first, and are the ones that are shown
            outcomes.setdefault(episode.task_id, bool(episode.won))
        won = [task for task, solved in outcomes.items() if solved]
        lost = [task for task, solved in outcomes.items() if not solved]
        wins = min(len(won), max(viewer - len(lost), viewer // 2))
        wanted = set(won[:wins] + lost[: viewer - wins])
        found: dict[str, dict[str, Any]] = {}
        for path in row.paths[:1]:
            for result in by_path[path].latest():
                if result.task_id in wanted and result.episode is not None:
                    found[result.task_id] = _episode(result)
        shown[id(row)] = list(found.values())
    return shown


def _episode(result: Result) -> dict[str, Any]:
    """Return an episode as the viewer shows it."""
    episode, texts, replies = result.episode, result.texts, result.replies
    assert episode is not None
    return {
        "task_id": result.task_id,
        "task_type": result.task_type,
        "task": texts.task if texts else None,
        "start": texts.start if texts else None,
        "start_state": episode.start_key,
        "n": episode.n,
        "won": episode.won,
        "ended": episode.ended,
        "score": episode.best_score,
        "checkpoints": len(episode.checkpoints),
        "turns": [
            {
                "replies": list(replies[number].texts) if replies else [],
                "dropped": replies[number].dropped if replies else 0,
                "issues": list(replies[number].issues) if replies else [],
                "replicas": [
                    {
                        "action": turn.actions[i] if turn.acted[i] else None,
                        "unsent": None if turn.acted[i] else turn.actions[i] or None,
                        "admissible": turn.admissible[i],
                        "text": texts.turns[number][i] if texts else None,
                        "state": turn.state_keys[i],
                        "score": turn.scores[i],
                        "won": turn.won[i],
                        "closed": turn.closed[i],
                        "reached": [episode.checkpoints[c] for c in turn.checkpoints[i]],
                    }
                    for i in range(episode.n)
                ],
            }
            for number, turn in enumerate(episode.turns)
        ],
    }
