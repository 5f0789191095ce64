"""Statistics of the tables: intervals, comparisons on the same tasks, pass@k, equal budgets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

__all__ = [
    "Interval",
    "Paired",
    "clustered",
    "mcnemar",
    "paired",
    "pass_at_k",
    "success_curve",
    "wilson",
    "within_budget",
]

Z95 = 1.959963984540054  # standard normal quantile of a 95 % interval


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float


def wilson(successes: float, trials: float, z: float = Z95) -> Interval | None:
    """Return the score interval of a binomial rate; None without trials.

    Args:
        successes: Number of successes; a fraction where trials are an effective number.
        trials: Number of independent trials.
        z: Standard normal quantile; the default gives 95 %.

    Source:
        E. B. Wilson, Probable inference, the law of succession, and statistical inference,
        Journal of the American Statistical Association 22 (1927).

    Example:
        >>> low, high = wilson(138, 140)
        >>> f"{low:.3f} {high:.3f}"
        '0.949 0.996'
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"successes must be in 0..{trials}, not {successes}")
    if trials == 0:
        return None
    rate = successes / trials
    shrink = 1 + z * z / trials
    middle = (rate + z * z / (2 * trials)) / shrink
    half = z / shrink * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    # At the ends the formula gives 0 and 1 but for rounding.
    low = middle - half if successes > 0 else 0.0
    high = middle + half if successes < trials else 1.0
    return Interval(max(0.0, low), min(1.0, high))


def clustered(outcomes: Sequence[Sequence[bool]], z: float = Z95) -> Interval | None:
    """Return the interval of a rate whose trials come in clusters, such as seeds of one task.

    Repeats of one task tell less than as many tasks. The design effect, the variance of the rate
    with clusters over that without, shrinks the number of trials that Wilson's interval is given.
    With one trial a cluster it is Wilson's interval; with every trial m times over, Wilson's of the
    clusters. Where all trials agree the effect is unknown and each cluster counts as one trial.

    Args:
        outcomes: Successes of the trials of each cluster.
        z: Standard normal quantile.

    Source:
        L. Kish, Survey Sampling (1965); clustered errors for evaluations: E. Miller, Adding Error
        Bars to Evals (2411.00640).

    Example:
        >>> tasks = [[True], [False], [True], [True]]
        >>> clustered([task * 3 for task in tasks]) == wilson(3, 4)
        True
    """
    filled = [cluster for cluster in outcomes if cluster]
    trials = sum(map(len, filled))
    if not trials:
        return None
    rate = sum(map(sum, filled)) / trials
    if rate in (0, 1):
        return wilson(rate * len(filled), len(filled), z)
    spread = sum((sum(cluster) - rate * len(cluster)) ** 2 for cluster in filled)
    effect = spread / (trials * rate * (1 - rate))
    # Clusters that happen to vary less than chance are no reason for a narrower interval.
    effective = trials / max(effect, 1.0)
    return wilson(rate * effective, effective, z)


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the two-sided exact p-value that two agents win equally often on the same tasks.

    Args:
        only_first: Tasks that only the first agent won.
        only_second: Tasks that only the second agent won.

    Source:
        Q. McNemar, Note on the sampling error of the difference between correlated proportions or
        percentages, Psychometrika 12 (1947), with the binomial instead of its approximation.

    Example:
        >>> mcnemar(8, 1)
        0.0390625
    """
    differ = only_first + only_second
    tail = sum(math.comb(differ, k) for k in range(min(only_first, only_second) + 1))
    return min(1.0, 2 * tail / (1 << differ))


class Paired(NamedTuple):
    """Two agents on the same tasks.

    Attributes:
        tasks: Tasks that both finished.
        both: Tasks that both won, where each task was played once.
        only_first: Tasks that only the first won.
        only_second: Tasks that only the second won.
        p: Exact McNemar p-value; with repeats, of a task's majority.
        difference: Rate of the first minus rate of the second.
        interval: 95 % bootstrap interval of the difference.
    """

    tasks: int
    both: int
    only_first: int
    only_second: int
    p: float
    difference: float
    interval: Interval


def paired(
    first: Mapping[str, Sequence[bool]],
    second: Mapping[str, Sequence[bool]],
    *,
    resamples: int = 2000,
    seed: int = 0,
) -> Paired | None:
    """Compare two agents on the tasks that both finished; None when there is none.

    The bootstrap draws tasks, not episodes, so that seeds of one task stay together (B. Efron,
    Bootstrap methods: another look at the jackknife, Annals of Statistics 7, 1979; percentiles).

    Args:
        first: Successes of the first agent's episodes, by task.
        second: Successes of the second agent's.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.

    Example:
        >>> one = {"a": [True], "b": [True], "c": [False]}
        >>> other = {"a": [True], "b": [False], "c": [False]}
        >>> result = paired(one, other)
        >>> result.only_first, result.only_second, result.p, round(result.difference, 3)
        (1, 0, 1.0, 0.333)
    """
    tasks = sorted(task for task in first if first[task] and second.get(task))
    if not tasks:
        return None
    ours = np.array([np.mean(first[task]) for task in tasks])
    theirs = np.array([np.mean(second[task]) for task in tasks])
    won, lost = ours > 0.5, theirs > 0.5
    only_first, only_second = int((won & ~lost).sum()), int((lost & ~won).sum())
    differences = ours - theirs
    drawn = np.random.default_rng(seed).integers(len(tasks), size=(resamples, len(tasks)))
    low, high = np.quantile(differences[drawn].mean(axis=1), [0.025, 0.975])
    return Paired(
        tasks=len(tasks),
        both=int((won & lost).sum()),
        only_first=only_first,
        only_second=only_second,
        p=mcnemar(only_first, only_second),
        difference=float(differences.mean()),
        interval=Interval(float(low), float(high)),
    )


def pass_at_k(attempts: int, successes: int, k: int) -> float | None:
    """Return the chance that k of the attempts, drawn without repeats, hold a success.

    1 - C(n-c, k) / C(n, k), the unbiased estimate from n attempts of which c succeeded. None with
    fewer than k attempts.

    Source:
        M. Chen et al., Evaluating large language models trained on code (2107.03374).

    Example:
        >>> round(pass_at_k(4, 1, 2), 9)
        0.5
    """
    if not 0 <= successes <= attempts or k < 1:
        raise ValueError(f"needs 0 <= {successes} <= {attempts} and k >= 1, not k = {k}")
    if attempts < k:
        return None
    return 1 - math.comb(attempts - successes, k) / math.comb(attempts, k)


def within_budget(attempts: Sequence[tuple[float, bool]]) -> float | None:
    """Return what a sequence of attempts has cost when the first succeeds, None if none does.

    Args:
        attempts: Cost and success of each, in the order in which they are made.

    Example:
        >>> within_budget([(25, False), (8, True), (3, True)])
        33.0
    """
    spent = 0.0
    for cost, won in attempts:
        spent += cost
        if won:
            return spent
    return None


def success_curve(costs: Sequence[float | None], budgets: ArrayLike) -> list[float] | None:
    """Return the share of episodes that are won within each budget; None without episodes.

    Args:
        costs: What each episode cost until it was won, None where it was not.
        budgets: Budgets, in the unit of the costs (turns, environment steps or tokens).

    Example:
        >>> success_curve([3, None, 8, 8], [2, 3, 10])
        [0.0, 0.25, 0.75]
    """
    if not costs:
        return None
    won = np.sort([cost for cost in costs if cost is not None])
    shares = np.searchsorted(won, np.asarray(budgets, dtype=float), side="right") / len(costs)
    return [float(share) for share in shares]
