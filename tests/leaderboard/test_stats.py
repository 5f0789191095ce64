"""Statistics against scipy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from leaderboard.stats import wilson


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_scipys(counts: tuple[int, int]) -> None:
    successes, trials = counts
    expected = binomtest(successes, trials).proportion_ci(method="wilson")
    assert tuple(wilson(successes, trials)) == pytest.approx((expected.low, expected.high))


def test_wilson_of_the_published_rate() -> None:
    """138 wins of 140 are 98.6 %, between 94.9 and 99.6."""
    assert [round(100 * end, 1) for end in wilson(138, 140)] == [94.9, 99.6]


def test_no_trials_have_no_interval() -> None:
    assert wilson(0, 0) is None


@pytest.mark.parametrize("counts", [(-1, 5), (6, 5), (1, 0)])
def test_impossible_counts_are_refused(counts: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="successes"):
        wilson(*counts)
