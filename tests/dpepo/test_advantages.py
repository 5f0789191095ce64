"""Advantage estimators: values by hand, and laws on random batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpepo.advantages import (
    Rows,
    anchor_groups,
    discounted_returns,
    dpepo,
    estimator,
    estimator_names,
    gigpo,
    grpo,
    mixed_groups,
    rloo,
)
from dpepo.weights import shape

# Every estimator in every variant.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "rloo": ("rloo", {}),
    "gigpo-similar": ("gigpo", {"similarity": 0.6}),
} | {
    f"{name}-{over}-{'std' if std else 'mean'}": (name, {"over": over, "std": std})
    for name in ("grpo", "dpepo", "gigpo")
    for over in ("turns", "trajectories")
    for std in (True, False)
}
each = pytest.mark.parametrize("variant", VARIANTS)


def advantages(variant: str, rows: Rows) -> np.ndarray:
    name, options = VARIANTS[variant]
    return estimator(name)(rows, **options)


def trajectories(*lengths_and_returns: tuple[int, float], group: int = 0) -> Rows:
    """One group of trajectories; the last turn pays the return."""
    lengths = [length for length, _ in lengths_and_returns]
    reward = [0.0] * sum(lengths)
    for end, (_, value) in zip(np.cumsum(lengths), lengths_and_returns, strict=True):
        reward[end - 1] = value
    return Rows(
        group=np.full(sum(lengths), group),
        trajectory=np.repeat(np.arange(len(lengths)), lengths),
        turn=np.concatenate([np.arange(length) for length in lengths]),
        reward=np.array(reward),
        weight=np.ones(sum(lengths)),
        anchor=["start"] * sum(lengths),
    )


def select(rows: Rows, order: np.ndarray) -> Rows:
    return Rows(
        group=rows.group[order],
        trajectory=rows.trajectory[order],
        turn=rows.turn[order],
        reward=rows.reward[order],
        weight=rows.weight[order],
        anchor=[rows.anchor[i] for i in order],
    )


any_reward = st.sampled_from([0.0, 0.0, 1.0, 0.35, -0.25]) | st.floats(-1e6, 1e6)


@st.composite
def batches(draw: st.DrawFn, rewards: st.SearchStrategy[float] = any_reward) -> Rows:
    """Draw up to 4 groups of up to 4 trajectories of up to 4 turns."""
    columns: dict[str, list[Any]] = {"group": [], "trajectory": [], "turn": []}
    shapes = draw(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), max_size=4))
    trajectory = 0
    for group, lengths in enumerate(shapes):
        for length in lengths:
            for turn in range(length):
                for name, value in zip(columns, (group, trajectory, turn), strict=True):
                    columns[name].append(value)
            trajectory += 1
    size = len(columns["turn"])

    def row_values(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=size, max_size=size))

    return Rows(
        **columns,
        reward=row_values(rewards),
        weight=row_values(st.floats(0, 2)),
        anchor=row_values(st.sampled_from(["a hall", "a hall.", "a room", "x"])),
    )


def test_grpo_over_turns_and_trajectories() -> None:
    rows = trajectories((2, 1), (4, 0))
    assert grpo(rows) == pytest.approx([1.291] * 2 + [-0.645] * 4, abs=6e-4)
    assert grpo(rows, over="trajectories") == pytest.approx([0.707] * 2 + [-0.707] * 4, abs=2e-4)
    assert grpo(rows, std=False) == pytest.approx([2 / 3] * 2 + [-1 / 3] * 4)
    assert grpo(rows, std=False, over="trajectories") == pytest.approx([0.5] * 2 + [-0.5] * 4)


def test_seven_wins_of_eight() -> None:
    rows = trajectories(*[(3, 1)] * 7, (5, 0))
    found = grpo(rows, over="trajectories")
    assert found == pytest.approx([0.354] * 21 + [-2.475] * 5, abs=6e-4)


def test_dpepo_weighs_after_the_normalisation() -> None:
    rows = replace(trajectories((1, 1), (1, 0)), weight=np.array([0.8, 0.8]))
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    assert dpepo(rows) == pytest.approx([0.8 * a, -1.2 * a])
    # all lost: diversity has no effect
    lost = replace(trajectories((1, 0), (1, 0)), weight=np.array([0.1, 1.0]))
    assert dpepo(lost).tolist() == [0, 0]


def test_rloo_and_its_dust() -> None:
    assert rloo(trajectories((2, 1), (4, 0), (1, 0))) == pytest.approx([1] * 2 + [-0.5] * 5)
    # Field report: dividing by the spread of the other seven gave 4000-fold advantages.
    rows = trajectories(*[(1, 0.35)] * 7, (1, -0.25))
    assert rloo(rows) == pytest.approx([0.6 / 7] * 7 + [-0.6])


def test_returns_of_gigpo() -> None:
    rows = trajectories((3, 10))
    assert discounted_returns(rows, 0.95) == pytest.approx([9.025, 9.5, 10])
    # a turn that is missing is discounted too
    rows = replace(rows, turn=np.array([0, 1, 3]))
    assert discounted_returns(rows, 0.5) == pytest.approx([10 / 8, 10 / 4, 10])
    # penalties on the way are part of it
    rows = replace(trajectories((2, 10)), reward=np.array([-0.1, 10]))
    assert discounted_returns(rows, 0.5) == pytest.approx([4.9, 10])


def test_gigpo_by_hand() -> None:
    # A win hall → desk, a loss hall → hall; in the hall G = 9.5, 0, 0.
    rows = replace(trajectories((2, 10), (2, 0)), anchor=["hall", "desk", "hall", "hall"])
    episode = np.array([5, 5, -5, -5])
    step = np.array([9.5 * 2 / 3, 0, -9.5 / 3, -9.5 / 3])
    assert gigpo(rows, std=False) == pytest.approx(episode + step)
    assert gigpo(rows, std=False, omega=0.5) == pytest.approx(episode + step / 2)
    normed = episode / np.std(episode, ddof=1) + step / np.std([9.5, 0, 0], ddof=1)
    assert gigpo(rows) == pytest.approx(normed, abs=1e-5)


def test_anchors_are_kept_inside_their_task_and_clustered_by_the_first() -> None:
    rows = trajectories((4, 0))
    rows = replace(rows, anchor=["abcdefghij", "abcdefghiX", "abcdefghYX", "abcdefghij"])
    assert anchor_groups(rows).tolist() == [0, 1, 2, 0]
    # the third is 0.9 like the second, 0.8 like the first, which leads the cluster
    assert anchor_groups(rows, 0.9).tolist() == [0, 0, 1, 0]
    assert anchor_groups(rows, 0.8).tolist() == [0, 0, 0, 0]
    # turns lead in their own order, in whatever order the rows stand
    assert anchor_groups(select(rows, np.array([2, 1, 3, 0])), 0.9).tolist() == [1, 0, 0, 0]
    two = Rows(group=[0, 1], trajectory=[0, 1], turn=[0, 0], reward=[0, 0], anchor=["hall", "hall"])
    assert anchor_groups(two).tolist() == anchor_groups(two, 0.5).tolist() == [0, 1]


def test_long_texts_are_compared_letter_by_letter() -> None:
    text = "You see a desk and a bed. " * 20
    rows = replace(trajectories((2, 0)), anchor=[text + "1", text + "2"])
    assert anchor_groups(rows, 0.99).tolist() == [0, 0]


def test_mixed_groups() -> None:
    won, lost = trajectories((1, 1), (1, 1)), trajectories((1, 0), (1, 1))
    assert mixed_groups(won).tolist() == [False, False]
    assert mixed_groups(lost).tolist() == [True, True]


@each
@pytest.mark.parametrize(
    "rows",
    [
        trajectories((1, 0.35)),
        trajectories((4, 1)),
        trajectories(*[(1, 0.1 + 0.2), (1, 0.3)] * 4),
        trajectories(*[(1, 1e10 / 3), (1, 1e10 / 3 + 1e-5)] * 4),
        trajectories((1, 1e-9), (1, 0)),
        trajectories(*[(1, 0)] * 8),
    ],
    ids=["one row", "one trajectory", "rounding", "large values", "dust", "all lost"],
)
def test_equal_or_single_gives_zero(variant, rows) -> None:
    if "gigpo" in variant:  # whose steps differ by discount inside one trajectory
        rows = replace(rows, anchor=[str(turn) for turn in rows.turn])
    assert advantages(variant, rows).tolist() == [0] * len(rows)


@each
@settings(max_examples=30)
@given(rows=batches())
def test_finite_and_of_one_value_a_row(variant, rows) -> None:
    found = advantages(variant, rows)
    assert found.shape == (len(rows),)
    assert found.dtype == np.float64
    assert np.isfinite(found).all()
    if variant.startswith("grpo") and variant.endswith("std"):
        for group in np.unique(rows.group):
            size = (rows.group == group).sum()
            assert np.abs(found[rows.group == group]).max() <= (size - 1) / np.sqrt(size) + 1e-9


@each
@settings(max_examples=30)
@given(rows=batches(st.sampled_from([0.0, 1.0, 0.35, -0.25])), random=st.randoms())
def test_the_order_of_rows_does_not_matter(variant, rows, random) -> None:
    order = list(range(len(rows)))
    random.shuffle(order)
    order = np.array(order, int)
    shuffled = advantages(variant, select(rows, order))
    assert shuffled == pytest.approx(advantages(variant, rows)[order], abs=1e-9)


@each
@settings(max_examples=30)
@given(rows=batches(), add=st.floats(-10, 10))
def test_groups_do_not_influence_one_another(variant, rows, add) -> None:
    first = rows.group == 0
    changed = replace(rows, reward=np.where(first, rows.reward, 3 * rows.reward + add))
    assert (advantages(variant, changed)[first] == advantages(variant, rows)[first]).all()


@given(batches(st.sampled_from([0.0, 1.0, 0.5])))
def test_normalised_inside_groups(rows) -> None:
    found = grpo(rows)
    for group in np.unique(rows.group):
        values = found[rows.group == group]
        assert values.mean() == pytest.approx(0, abs=1e-9)
        if mixed_groups(rows)[rows.group == group].any():
            assert values.std(ddof=1) == pytest.approx(1, abs=1e-4)
    per_trajectory = grpo(rows, over="trajectories")
    _, first = np.unique(rows.trajectory, return_index=True)
    for group in np.unique(rows.group):
        values = per_trajectory[first][rows.group[first] == group]
        assert values.mean() == pytest.approx(0, abs=1e-9)


@given(batches(), st.sampled_from(["turns", "trajectories"]), st.booleans())
def test_a_weight_of_one_is_grpo(rows, over, std) -> None:
    plain = replace(rows, weight=np.ones(len(rows)))
    assert (dpepo(plain, std=std, over=over) == grpo(rows, std=std, over=over)).all()
    assert (dpepo(rows, std=std) == shape(grpo(rows, std=std), rows.weight)).all()


@given(batches(), st.floats(0, 1))
def test_redundancy_never_raises_an_advantage(rows, factor) -> None:
    lower = replace(rows, weight=rows.weight * factor)
    assert (dpepo(lower) <= dpepo(rows)).all()


@given(batches(), st.booleans())
def test_gigpo_with_anchors_of_their_own_is_its_episode_part(rows, std) -> None:
    alone = replace(rows, anchor=[str(row) for row in range(len(rows))])
    assert (gigpo(alone, std=std) == grpo(rows, std=std)).all()


@given(batches(st.sampled_from([0.0, 1.0])))
def test_rloo_is_the_mean_of_the_others(rows) -> None:
    found = rloo(rows)
    returns = dict(zip(rows.trajectory.tolist(), rows.returns.tolist(), strict=True))
    groups = dict(zip(rows.trajectory.tolist(), rows.group.tolist(), strict=True))
    for row, trajectory in enumerate(rows.trajectory.tolist()):
        others = [
            value
            for other, value in returns.items()
            if other != trajectory and groups[other] == groups[trajectory]
        ]
        expected = returns[trajectory] - np.mean(others) if others else 0
        assert found[row] == pytest.approx(expected)


@given(batches(), st.floats(0.1, 1))
def test_a_likeness_of_one_is_equality(rows, similarity) -> None:
    exact, similar = anchor_groups(rows), anchor_groups(rows, similarity)
    assert (anchor_groups(rows, 1.0) == exact).all()
    # clusters only join what exact matching separates
    assert len(np.unique(np.stack([exact, similar]), axis=1).T) == len(np.unique(exact))


def test_the_registry() -> None:
    assert set(estimator_names()) == {"grpo", "dpepo", "gigpo", "rloo"}
    with pytest.raises(ValueError, match="did you mean 'gigpo'"):
        estimator("gipo")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group": [0, 1, 0]}, "trajectory 4 is in groups"),
        ({"turn": [0, 0, 0]}, "trajectory 4 has two rows for turn 0"),
        ({"turn": [0, 1]}, "group has 3 rows and turn 2"),
        ({"anchor": ["x"]}, "group has 3 rows and anchor 1"),
        ({"trajectory": [0.5, 0.5, 1]}, "trajectory must hold integers"),
        ({"reward": [[0, 1, 0]]}, "one dimension"),
        ({"reward": [0, 1, np.nan]}, "reward must be finite, not nan as in row 2"),
        ({"reward": [0, np.inf, 0]}, "reward must be finite, not inf as in row 1"),
        ({"weight": [1, 1, 2.5]}, "weight must be in .*, not 2.5 as in row 2"),
    ],
)
def test_rows_are_checked(change, message) -> None:
    good = {"group": [0] * 3, "trajectory": [4, 4, 5], "turn": [0, 1, 0], "reward": [0, 1, 0]}
    rows = Rows(**good)
    assert len(rows) == 3
    with pytest.raises(ValueError, match=message):
        Rows(**(good | change))
    with pytest.raises(ValueError, match="rows with weight"):
        dpepo(rows)
    with pytest.raises(ValueError, match="rows with anchor"):
        gigpo(rows)


def test_options_are_checked() -> None:
    rows = trajectories((1, 0))
    with pytest.raises(ValueError, match="over must be"):
        grpo(rows, over="rows")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="gamma must be"):
        gigpo(rows, gamma=1.5)
    with pytest.raises(ValueError, match="similarity must be"):
        gigpo(rows, similarity=0)
