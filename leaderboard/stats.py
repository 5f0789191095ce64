"""Statistics of the tables."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["Interval", "wilson"]


class Interval(NamedTuple):
    """A confidence interval of a rate, both ends in [0, 1]."""

    low: float
    high: float


def wilson(successes: int, trials: int, z: float = 1.959963984540054) -> Interval | None:
    """Return the score interval of a binomial rate; None without trials.

    Args:
        successes: Number of successes.
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
    return Interval(max(0.0, middle - half), min(1.0, middle + half))
