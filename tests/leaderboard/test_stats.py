"""Statistics against scipy, by hand, and by their laws."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, bootstrap

from leaderboard.stats import (
    clustered,
    mcnemar,
    paired,
    pass_at_k,
    success_curve,
    wilson,
    within_budget,
)

clusters = st.lists(st.lists(st.booleans(), min_size=1, max_size=5), min_size=1, max_size=40)
outcomes = st.dictionaries(
    st.sampled_from("abcdefghij"), st.tuples(st.booleans(), st.booleans()), min_size=1
)


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_scipys(counts: tuple[int, int]) -> None:
    successes, trials = counts
    expected = binomtest(successes, trials).proportion_ci(method="wilson")
    assert tuple(wilson(successes, trials)) == pytest.approx((expected.low, expected.high))


def test_wilson_of_the_published_rate() -> None:
    """138 wins of 140 are 98.6 %, between 94.9 and 99.6."""
    assert [round(100 * end, 1) for end in wilson(138, 140)] == [94.9, 99.6]


def test_no_trials_have_no_interval() -> None:
    assert wilson(0, 0) is clustered([]) is clustered([[], []]) is None


@pytest.mark.parametrize("counts", [(-1, 5), (6, 5), (1, 0)])
def test_impossible_counts_are_refused(counts: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="successes"):
        wilson(*counts)


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(1, 5))
def test_repeats_of_the_same_outcome_tell_nothing_new(won: list[bool], repeats: int) -> None:
    expected = wilson(sum(won), len(won))
    assert clustered([[outcome] * repeats for outcome in won]) == pytest.approx(expected)


@given(clusters)
def test_a_clustered_interval_holds_the_rate_and_is_never_narrower(
    drawn: list[list[bool]],
) -> None:
    won, trials = sum(map(sum, drawn)), sum(map(len, drawn))
    low, high = clustered(drawn)
    assert 0 <= low <= won / trials + 1e-12
    assert won / trials - 1e-12 <= high <= 1
    pooled = wilson(won, trials)
    assert high - low >= pooled.high - pooled.low - 1e-9


def test_clustered_intervals_cover_the_truth_and_pooled_ones_do_not() -> None:
    rng = np.random.default_rng(0)
    hits = {clustered: 0, "pooled": 0}
    for _ in range(400):
        chance = rng.beta(0.5, 0.5, size=60)  # tasks are easy or hard
        drawn = [list(rng.random(8) < c) for c in chance]
        low, high = clustered(drawn)
        hits[clustered] += low <= 0.5 <= high
        low, high = wilson(sum(map(sum, drawn)), 480)
        hits["pooled"] += low <= 0.5 <= high
    assert 0.92 <= hits[clustered] / 400 <= 0.98
    assert hits["pooled"] / 400 < 0.75


@given(st.integers(0, 400), st.integers(0, 400))
def test_mcnemar_is_the_exact_binomial_test(first: int, second: int) -> None:
    expected = binomtest(first, first + second).pvalue if first + second else 1.0
    assert mcnemar(first, second) == pytest.approx(expected)
    assert mcnemar(first, second) == mcnemar(second, first)


def test_mcnemar_of_many_tasks_stays_finite() -> None:
    assert mcnemar(3000, 3000) == pytest.approx(1)
    assert 0 <= mcnemar(0, 5000) < 1e-300


@given(outcomes)
def test_a_comparison_reads_the_same_from_both_sides(drawn: dict[str, tuple[bool, bool]]) -> None:
    first = {task: [one] for task, (one, _) in drawn.items()}
    second = {task: [other] for task, (_, other) in drawn.items()}
    there, back = paired(first, second), paired(second, first)
    assert there.difference == pytest.approx(-back.difference)
    assert (there.only_first, there.only_second) == (back.only_second, back.only_first)
    assert there.p == back.p
    assert there.interval.low == pytest.approx(-back.interval.high, abs=0.15)
    assert there.interval.low <= there.difference <= there.interval.high
    assert paired(first, first).difference == paired(first, first).interval.high == 0


def test_the_bootstrap_is_scipys() -> None:
    rng = np.random.default_rng(1)
    one, other = rng.random(200) < 0.6, rng.random(200) < 0.4
    first = {str(i): [bool(x)] for i, x in enumerate(one)}
    second = {str(i): [bool(x)] for i, x in enumerate(other)}
    result = paired(first, second, resamples=5000)
    expected = bootstrap(
        (one.astype(float) - other,), np.mean, method="percentile", n_resamples=5000, rng=rng
    ).confidence_interval
    assert result.interval == pytest.approx((expected.low, expected.high), abs=0.01)


def test_only_tasks_that_both_finished_are_compared() -> None:
    result = paired({"a": [True], "b": [True], "c": []}, {"a": [False], "c": [True], "d": [True]})
    assert (result.tasks, result.only_first, result.both) == (1, 1, 0)
    assert paired({"a": [True]}, {"b": [True]}) is None


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.integers(1, 7))
def test_pass_at_k_is_the_mean_over_all_draws(attempts: list[bool], k: int) -> None:
    value = pass_at_k(len(attempts), sum(attempts), k)
    draws = [any(draw) for draw in combinations(attempts, k)]
    assert value == (pytest.approx(np.mean(draws)) if draws else None)


def test_pass_at_k_of_the_paper_and_its_limits() -> None:
    assert pass_at_k(10, 3, 1) == pytest.approx(0.3)
    assert pass_at_k(200, 199, 2) == 1
    with pytest.raises(ValueError, match="k >= 1"):
        pass_at_k(3, 4, 1)


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans()), max_size=6))
def test_a_sequence_of_attempts_pays_for_its_failures(attempts: list[tuple[int, bool]]) -> None:
    spent = within_budget(attempts)
    won = [index for index, (_, success) in enumerate(attempts) if success]
    if not won:
        assert spent is None
    else:
        assert spent == sum(cost for cost, _ in attempts[: won[0] + 1])


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 100)), min_size=1),
    st.lists(st.integers(0, 120), min_size=2),
)
def test_a_curve_counts_what_is_won_within_the_budget(costs: list, budgets: list[int]) -> None:
    budgets.sort()
    curve = success_curve(costs, budgets)
    assert curve == sorted(curve)
    for budget, share in zip(budgets, curve, strict=True):
        within = sum(cost is not None and cost <= budget for cost in costs)
        assert math.isclose(share, within / len(costs))
    assert success_curve([], budgets) is None
