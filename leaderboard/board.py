"""`Board`: everything that a report shows, computed from results and free of their texts."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, combinations
from statistics import fmean
from typing import NamedTuple

from leaderboard.protocol import Protocol
from leaderboard.reach import Reach, reach
from leaderboard.result import Result
from leaderboard.stats import (
    Interval,
    Paired,
    clustered,
    paired,
    pass_at_k,
    success_curve,
    within_budget,
)
from leaderboard.store import RunFolder, StoreError
from leaderboard.verify import read_verdict

__all__ = ["Board", "Control", "Group", "Played", "Row", "group", "label", "load", "row"]

STATUSES = ("verified", "sampled", "unverified", "incomplete", "refuted")  # the best first


class Cost(NamedTuple):
    """What an episode had cost after its last turn, or when it was won."""

    turns: int
    steps: int
    tokens: int | None


class Played(NamedTuple):
    """What a report needs of one finished or failed episode.

    Attributes:
        done_and_score: Solved by the public rule "done and score > 0", which counts time-outs.
        done_and_rise: Solved by the public rule "done and the last step paid", which does too.
        form_issues: Turns of the model whose form was wrong; None without a model.
    """

    task_id: str
    task_type: str
    seconds: Mapping[str, float]
    diversity: Mapping[str, float | None]
    error: str | None
    won: bool | None = None
    score: float | None = None
    ended: str | None = None
    cost: Cost = Cost(0, 0, None)
    invalid: int = 0
    done_and_score: bool = False
    done_and_rise: bool = False
    form_issues: int | None = None
    unreadable: int | None = None
    truncated: int | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_cached: int | None = None

    @classmethod
    def of(cls, result: Result) -> Played:
        """Keep what a report needs of a result."""
        episode = result.episode
        if episode is None:
            return cls(result.task_id, result.task_type, result.seconds, {}, result.error)
        done_and_score = done_and_rise = False
        before = (0.0,) * episode.n
        for turn in episode.turns:
            for replica in range(episode.n):
                if turn.acted[replica] and turn.engine_done[replica]:
                    score = turn.raw_scores[replica]
                    done_and_score |= score > 0
                    done_and_rise |= score > before[replica]
            before = turn.raw_scores
        replies = result.replies
        tokens = None
        if result.tokens_in is not None and result.tokens_out is not None:
            tokens = result.tokens_in + result.tokens_out
        return cls(
            task_id=result.task_id,
            task_type=result.task_type,
            won=episode.won,
            score=episode.best_score,
            ended=episode.ended,
            error=None,
            cost=Cost(len(episode.turns), episode.steps, tokens),
            invalid=episode.steps - sum(sum(turn.admissible) for turn in episode.turns),
            seconds=result.seconds,
            diversity=result.diversity,
            done_and_score=done_and_score,
            done_and_rise=done_and_rise,
            form_issues=sum(bool(reply.issues) for reply in replies) if replies else None,
            unreadable=sum("no_action" in r.issues for r in replies) if replies else None,
            truncated=sum(reply.truncated for reply in replies) if replies else None,
            tokens_in=result.tokens_in,
            tokens_out=result.tokens_out,
            tokens_cached=result.tokens_cached,
        )


@dataclass(frozen=True)
class Row:
    """One line of a table: one agent under one protocol, its seeds pooled.

    Rates and means are over the episodes that finished; a mean over none is None.
    """

    label: str
    protocol: Protocol
    seeds: tuple[int, ...]
    status: str
    played: tuple[Played, ...]
    paths: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Label and number of replicas."""
        return f"{self.label} n={self.protocol.n}"

    @property
    def expected(self) -> int:
        """Number of episodes that the protocol asks for."""
        return len(self.protocol.task_ids) * len(self.seeds)

    @cached_property
    def finished(self) -> tuple[Played, ...]:
        """The episodes that have a result."""
        return tuple(episode for episode in self.played if episode.error is None)

    @property
    def errors(self) -> int:
        """Number of episodes that an error ended."""
        return len(self.played) - len(self.finished)

    @property
    def missing(self) -> int:
        """Number of episodes that were not played yet."""
        return self.expected - len(self.played)

    @cached_property
    def outcomes(self) -> Mapping[str, list[bool]]:
        """Successes of the finished episodes, by task."""
        found: dict[str, list[bool]] = defaultdict(list)
        for episode in self.finished:
            found[episode.task_id].append(bool(episode.won))
        return found

    @property
    def won(self) -> int:
        """Number of episodes that were won."""
        return sum(bool(episode.won) for episode in self.finished)

    @property
    def rate(self) -> float | None:
        """Share of the finished episodes that were won."""
        return self.won / len(self.finished) if self.finished else None

    @cached_property
    def interval(self) -> Interval | None:
        """95 % interval of the rate; seeds of one task are a cluster."""
        return clustered(list(self.outcomes.values()))

    def mean(self, of: Callable[[Played], float | None]) -> float | None:
        """Return the mean of what `of` gives for the finished episodes, without those of None."""
        values = [value for episode in self.finished if (value := of(episode)) is not None]
        return fmean(values) if values else None

    def share(
        self, part: Callable[[Played], float | None], of: Callable[[Played], float | None]
    ) -> float | None:
        """Return the sum of one thing over the sum of another, None where the latter is 0."""
        whole = sum(of(episode) or 0 for episode in self.finished)
        if not whole or all(part(episode) is None for episode in self.finished):
            return None
        return sum(part(episode) or 0 for episode in self.finished) / whole

    def loose(self, rule: str) -> float | None:
        """Return the success rate by a looser public rule; see `Played`."""
        return self.mean(lambda episode: float(getattr(episode, rule)))

    def only(self, task_type: str) -> Row:
        """Return the row of one type of task."""
        played = tuple(episode for episode in self.played if episode.task_type == task_type)
        return Row(task_type, self.protocol, self.seeds, self.status, played)

    def curve(self, unit: str, budgets: Sequence[float]) -> list[float] | None:
        """Return the success within budgets of turns, steps or tokens of an episode."""
        costs = [getattr(episode.cost, unit) for episode in self.finished]
        if unit == "tokens" and any(cost is None for cost in costs):
            return None
        return success_curve(
            [
                cost if episode.won else None
                for cost, episode in zip(costs, self.finished, strict=True)
            ],
            budgets,
        )


@dataclass(frozen=True)
class Control:
    """n parallel replicas beside n sequential attempts of the same agent, at equal budgets.

    Attributes:
        parallel: Name of the row with n replicas.
        sequential: Name of the row with one replica and at least n seeds.
        n: Number of replicas, and of attempts.
        unit: ``"steps"`` or ``"tokens"``.
        budgets: Budgets of one task.
        parallel_success: Success of the replicas within each budget.
        sequential_success: Success of attempts, one after the other in the order of their seeds,
            within each budget.
        pass_at_n: Unbiased success of n attempts without a budget.
    """

    parallel: str
    sequential: str
    n: int
    unit: str
    budgets: tuple[float, ...]
    parallel_success: tuple[float, ...]
    sequential_success: tuple[float, ...]
    pass_at_n: float | None


@dataclass(frozen=True)
class Group:
    """Rows that can be compared: the same tasks under the same limits.

    Attributes:
        env: Short name of the environment.
        split: Split of the tasks.
        tasks: Number of tasks.
        max_turns: Turn limit.
        stop: Stop rule.
        reach: What the turn limit can reach at all.
        rows: The rows, best first.
        tiers: For each row, the number of its tier: rows of one tier are statistically tied with
            its first (exact McNemar, p >= 0.05).
    """

    env: str
    split: str
    tasks: int
    max_turns: int
    stop: str
    reach: Reach
    rows: tuple[Row, ...]
    tiers: tuple[int, ...] = field(default=())

    @property
    def task_types(self) -> list[str]:
        """The types of the tasks, sorted."""
        return sorted({episode.task_type for item in self.rows for episode in item.played})

    @cached_property
    def comparisons(self) -> list[tuple[Row, Row, Paired]]:
        """Every pair of rows on the tasks that both finished, the better row first."""
        return [
            (one, other, result)
            for one, other in combinations(self.rows, 2)
            if (result := paired(one.outcomes, other.outcomes)) is not None
        ]

    @cached_property
    def controls(self) -> list[Control]:
        """Each row of several replicas that has a sequential counterpart, in steps and tokens."""
        found = []
        for one in self.rows:
            for other in self.rows:
                same = one.protocol.agent == other.protocol.agent and (
                    one.protocol.settings == other.protocol.settings
                )
                if same and one.protocol.n > 1 == other.protocol.n:
                    found += [c for unit in ("steps", "tokens") if (c := control(one, other, unit))]
        return found


Board = list[Group]


def control(parallel: Row, sequential: Row, unit: str) -> Control | None:
    """Compare n replicas with n attempts; None without n seeds or without that unit.

    Only tasks that both finished, the sequential row n times, are compared.
    """
    n = parallel.protocol.n
    if len(sequential.seeds) < n:
        return None
    attempts: dict[str, list[Played]] = defaultdict(list)
    for episode in sequential.finished:  # in the order of the seeds
        attempts[episode.task_id].append(episode)
    pairs = [
        (episode, attempts[episode.task_id])
        for episode in parallel.finished
        if len(attempts[episode.task_id]) >= n
    ]
    everything = [e for episode, tries in pairs for e in (episode, *tries)]
    if not pairs or any(getattr(episode.cost, unit) is None for episode in everything):
        return None
    ours = [getattr(e.cost, unit) if e.won else None for e, _ in pairs]
    theirs = [
        within_budget([(getattr(t.cost, unit), bool(t.won)) for t in tries[:n]])
        for _, tries in pairs
    ]
    top = max(
        max(getattr(e.cost, unit) for e, _ in pairs),
        max(sum(getattr(t.cost, unit) for t in tries[:n]) for _, tries in pairs),
    )
    budgets = tuple(top * part / 8 for part in range(1, 9))
    chances = [pass_at_k(len(tries), sum(bool(t.won) for t in tries), n) for _, tries in pairs]
    return Control(
        parallel=parallel.name,
        sequential=sequential.name,
        n=n,
        unit=unit,
        budgets=budgets,
        parallel_success=tuple(success_curve(ours, budgets) or ()),
        sequential_success=tuple(success_curve(theirs, budgets) or ()),
        pass_at_n=fmean(chance for chance in chances if chance is not None),
    )


def row(
    name: str,
    runs: Sequence[tuple[Protocol, str, Iterable[Result]]],
    paths: Sequence[str] = (),
) -> Row:
    """Pool the runs of one agent that differ in nothing but their seed.

    Args:
        name: Name of the line.
        runs: Protocol, verification status and results of each run.
        paths: Folders of the runs.
    """
    return Row(
        label=name,
        protocol=runs[0][0],
        seeds=tuple(protocol.seed for protocol, _, _ in runs),
        status=max((status for _, status, _ in runs), key=STATUSES.index),
        played=tuple(Played.of(result) for _, _, results in runs for result in results),
        paths=tuple(paths),
    )


def load(folders: Sequence[RunFolder]) -> Board:
    """Read runs and put together what can be compared.

    Raises:
        StoreError: A run is damaged, or two folders hold the same one.
    """
    groups: dict[tuple[object, ...], dict[str, list[tuple[Protocol, RunFolder]]]] = {}
    for folder in folders:
        protocol = folder.protocol()
        key = (protocol.env, protocol.split, protocol.tasks_hash, protocol.max_turns, protocol.stop)
        who = json.dumps(
            [protocol.agent, protocol.n, protocol.settings, protocol.versions], sort_keys=True
        )
        groups.setdefault(key, {}).setdefault(who, []).append((protocol, folder))
    board = []
    for members in groups.values():
        rows = []
        for runs in members.values():
            runs.sort(key=lambda run: run[0].seed)
            seeds = [protocol.seed for protocol, _ in runs]
            if len(set(seeds)) < len(seeds):
                paths = ", ".join(str(folder.path) for _, folder in runs)
                raise StoreError(
                    f"the same run is there twice ({paths}); take one away, none is preferred"
                )
            made = row(
                label(runs[0][0]),
                [(protocol, read_verdict(folder), folder.latest()) for protocol, folder in runs],
                [str(folder.path) for _, folder in runs],
            )
            rows.append(made)
        board.append(group(rows))
    return sorted(board, key=lambda item: (item.env, item.split, -item.tasks, item.max_turns))


def group(rows: Sequence[Row]) -> Group:
    """Rank rows of one protocol; rows without a result come last."""
    protocol = rows[0].protocol
    ranked = sorted(rows, key=lambda item: (-(-1 if item.rate is None else item.rate), item.label))
    return Group(
        env=protocol.env,
        split=protocol.split,
        tasks=len(protocol.task_ids),
        max_turns=protocol.max_turns,
        stop=protocol.stop,
        reach=reach(protocol.env, protocol.task_ids, protocol.max_turns),
        rows=tuple(ranked),
        tiers=tuple(accumulate(_steps_down(ranked))),
    )


def _steps_down(ranked: Sequence[Row]) -> Iterable[int]:
    """Yield 1 for each row that is worse than the first of its predecessor's tier, else 0."""
    first: Row | None = None
    for item in ranked:
        result = paired(first.outcomes, item.outcomes) if first else None
        if first is None or (result is not None and result.p < 0.05):
            first = item
            yield 1
        else:
            yield 0


def label(protocol: Protocol) -> str:
    """Return the name of an agent, and of its model if it has one."""
    model = protocol.settings.get("model")
    extra = f" {model}" if model and model != protocol.agent else ""
    return f"{protocol.agent}{extra}"
