"""Advantage estimators by name: pure functions of a batch of turn `Rows`.

A row is one turn of one trajectory: one prompt and its response. Rows of one group are attempts at
one task from one start, and an advantage compares a row with its own group only. In all estimators
a group whose values are equal, or that has one member, gives zeros; nothing is ever divided by
rounding dust. The order of the rows does not matter.

What else a method's name stands for is elsewhere: the ratio of GSPO and the asymmetric clip of DAPO
in `dpepo.losses`; DAPO's dynamic sampling is `mixed_groups`.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from agents.registry import look_up
from dpepo.weights import shape

__all__ = [
    "Estimator",
    "Over",
    "Rows",
    "anchor_groups",
    "discounted_returns",
    "dpepo",
    "estimator",
    "estimator_names",
    "gigpo",
    "grpo",
    "mixed_groups",
    "rloo",
]

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Estimator = Callable[..., Floats]
Over = Literal["turns", "trajectories"]

EPSILON = 1e-6  # added to a standard deviation, as in the papers' code
DUST = 1e-8  # values that differ by less than this (relative above 1) are equal
LARGEST = 1e100  # squares of rewards must stay finite


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows:
    """A batch of R turn rows, in any order; turns after a win are left out. Lists become arrays.

    Attributes:
        group: Task of the row, (R,) integers.
        trajectory: Attempt that the row belongs to, (R,) integers, unique in the whole batch.
        turn: Number of the turn in its trajectory, (R,) integers.
        reward: What the turn paid, (R,). A trajectory's return is their sum.
        weight: W of the turn (`dpepo.weights`), (R,) in [0, 2]; `dpepo` needs it.
        anchor: What the turn started from, R strings: the observation's text, or a state key;
            `gigpo` needs it.

    Raises:
        ValueError: The arrays do not describe a batch; the message says where.

    Example:
        >>> Rows(group=[7, 7, 7], trajectory=[0, 0, 1], turn=[0, 1, 0], reward=[0, 1, 0]).returns
        array([1., 1., 0.])
    """

    group: Ints
    trajectory: Ints
    turn: Ints
    reward: Floats
    weight: Floats | None = None
    anchor: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for name in ("group", "trajectory", "turn"):
            self._set(name, _vector(name, getattr(self, name), integer=True))
        self._set("reward", _vector("reward", self.reward))
        if self.weight is not None:
            self._set("weight", _vector("weight", self.weight))
        for name in ("trajectory", "turn", "reward", "weight", "anchor"):
            value = getattr(self, name)
            if value is not None and len(value) != len(self.group):
                raise ValueError(
                    f"group has {len(self.group)} rows and {name} {len(value)}; "
                    "every field has one item for each row"
                )
        _require("reward", self.reward, np.abs(self.reward) <= LARGEST, "finite")
        if self.weight is not None:
            _require("weight", self.weight, (self.weight >= 0) & (self.weight <= 2), "in [0, 2]")
        self._require_trajectories()

    def __len__(self) -> int:
        return len(self.group)

    @property
    def returns(self) -> Floats:
        """Return of each row's trajectory, (R,): the undiscounted sum of its rewards."""
        _, which = _trajectories(self)
        return _sums(self.reward, which)[which]

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _require_trajectories(self) -> None:
        """Raise unless each trajectory has one group, and each of its turns one row."""
        first, which = _trajectories(self)
        strays = np.flatnonzero(self.group != self.group[first][which])
        if strays.size:
            row = strays[0]
            raise ValueError(
                f"trajectory {self.trajectory[row]} is in groups {self.group[first][which][row]} "
                f"and {self.group[row]}; number them through the whole batch, not in each group"
            )
        turns, counts = np.unique([self.trajectory, self.turn], axis=1, return_counts=True)
        if counts.max(initial=0) > 1:
            trajectory, turn = turns[:, np.argmax(counts)]
            raise ValueError(f"trajectory {trajectory} has two rows for turn {turn}")


def grpo(rows: Rows, *, std: bool = True, over: Over = "turns") -> Floats:
    """GRPO: (R - mean) / (std + 1e-6) of the returns R in the group; every turn gets the same.

    Args:
        rows: The batch.
        std: Whether to divide by the standard deviation (ddof 1); False is Dr. GRPO.
        over: What the mean and the deviation are over. ``"turns"``, as in the code of DPEPO and
            GiGPO, counts a return once for each turn, so long trajectories weigh more;
            ``"trajectories"`` is the published form.

    Returns:
        Advantages, (R,). With `std`, none is greater in size than (N - 1)/√N for N members.

    Source:
        Shao et al., DeepSeekMath, arXiv 2402.03300; Dr. GRPO: Liu et al., arXiv 2503.20783.

    Example:
        >>> rows = Rows(
        ...     group=[0] * 6,
        ...     trajectory=[0, 0, 1, 1, 1, 1],
        ...     turn=[0, 1, 0, 1, 2, 3],
        ...     reward=[0, 1, 0, 0, 0, 0],
        ... )
        >>> grpo(rows).round(3).tolist()
        [1.291, 1.291, -0.645, -0.645, -0.645, -0.645]
        >>> grpo(rows, over="trajectories").round(3).tolist()
        [0.707, 0.707, -0.707, -0.707, -0.707, -0.707]
    """
    if over == "turns":
        return _standardised(rows.returns, rows.group, std)
    if over == "trajectories":
        first, which = _trajectories(rows)
        return _standardised(rows.returns[first], rows.group[first], std)[which]
    raise ValueError(f"over must be 'turns' or 'trajectories', not {over!r}")


def dpepo(rows: Rows, *, std: bool = True, over: Over = "turns") -> Floats:
    """DPEPO: `grpo`, then A·W where A ≥ 0, else A·(2 - W).

    W acts after the normalisation, so a group that is all won or all lost stays at 0.

    Source:
        arXiv 2604.24320.
    """
    if rows.weight is None:
        raise ValueError("dpepo needs rows with weight; dpepo.weights.episode_weights gives it")
    return shape(grpo(rows, std=std, over=over), rows.weight)


def rloo(rows: Rows) -> Floats:
    """RLOO: a trajectory's return less the mean of the *other* returns of its group.

    Source:
        Kool et al. 2019; Ahmadian et al., arXiv 2402.14740.
    """
    first, which = _trajectories(rows)
    groups = rows.group[first]
    _, member, counts = np.unique(groups, return_inverse=True, return_counts=True)
    # R - (N·mean - R)/(N - 1) = (R - mean)·N/(N - 1)
    scale = (counts / np.maximum(counts - 1, 1))[member]
    return (_standardised(rows.returns[first], groups, std=False) * scale)[which]


def gigpo(
    rows: Rows,
    *,
    std: bool = True,
    over: Over = "turns",
    gamma: float = 0.95,
    omega: float = 1.0,
    similarity: float | None = None,
) -> Floats:
    """GiGPO: A^E + ω·A^S, where A^S compares rows that start from the same anchor.

    A^E is `grpo`. A^S = (G - mean) / F over the rows of an anchor group, G the discounted return
    from the row on; 0 for a row whose anchor no other row shares.

    Args:
        rows: The batch, with anchors.
        std: F of both parts is std + 1e-6, else 1 ("mean_std_norm" and "mean_norm").
        over: As in `grpo`.
        gamma: Discount of G.
        omega: Weight of A^S.
        similarity: As in `anchor_groups`.

    Source:
        Feng et al., arXiv 2505.10978. It is sequential: for n replicas the paper defines no anchor;
        rows that share one visit the same state, whatever the caller takes for a state.
    """
    steps = _standardised(discounted_returns(rows, gamma), anchor_groups(rows, similarity), std)
    return grpo(rows, std=std, over=over) + omega * steps


def discounted_returns(rows: Rows, gamma: float) -> Floats:
    """Return G_t = Σ_{k≥t} γ^(k-t) r_k of each row over the turns k of its trajectory, (R,).

    Example:
        >>> win = Rows(group=[0] * 3, trajectory=[0] * 3, turn=[0, 1, 2], reward=[0, 0, 10])
        >>> discounted_returns(win, 0.95).round(3).tolist()
        [9.025, 9.5, 10.0]
    """
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma must be in [0, 1], not {gamma}")
    result = rows.reward.copy()
    order = np.lexsort((rows.turn, rows.trajectory))
    for row, later in zip(order[-2::-1], order[:0:-1], strict=True):
        if rows.trajectory[row] == rows.trajectory[later]:
            gap = int(rows.turn[later] - rows.turn[row])
            result[row] += gamma**gap * result[later]
    return result


def anchor_groups(rows: Rows, similarity: float | None = None) -> Ints:
    """Return a number for each row, equal for rows of one group that share an anchor, (R,).

    Args:
        rows: The batch, with anchors.
        similarity: None asks for equal texts. Else a text joins the first cluster of its group
            whose first member has at least this difflib ratio to it, in (0, 1]; texts are taken in
            the order of trajectory and turn.

    Example:
        >>> texts = ["a desk and a bed", "a desk and a bell", "a hall"]
        >>> rows = Rows(
        ...     group=[0] * 3, trajectory=[0] * 3, turn=[0, 1, 2], reward=[0] * 3, anchor=texts
        ... )
        >>> anchor_groups(rows).tolist(), anchor_groups(rows, 0.9).tolist()
        ([0, 1, 2], [0, 0, 1])
    """
    if rows.anchor is None:
        raise ValueError("gigpo needs rows with anchor: for each, the observation it started from")
    if similarity is not None and not 0 < similarity <= 1:
        raise ValueError(f"similarity must be in (0, 1] or None, not {similarity}")
    result = np.empty(len(rows), np.int64)
    known: dict[tuple[int, str], int] = {}
    firsts: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
    count = 0
    for row in np.lexsort((rows.turn, rows.trajectory)).tolist():
        group, text = int(rows.group[row]), rows.anchor[row]
        if (group, text) not in known:
            near = _first_near(text, firsts[group], similarity)
            if near is None:
                near, count = count, count + 1
                firsts[group].append((text, near))
            known[group, text] = near
        result[row] = known[group, text]
    return result


def mixed_groups(rows: Rows) -> Bools:
    """Return which rows are of a group whose returns differ, (R,): the others teach nothing.

    DAPO's dynamic sampling keeps these and draws new tasks in place of the others.

    Source:
        Yu et al., DAPO, arXiv 2503.14476.
    """
    _, which = np.unique(rows.group, return_inverse=True)
    return ~_flat(rows.returns, which)


# GRPO's advantage serves GSPO and DAPO too, whose difference is in the loss.
_ESTIMATORS: dict[str, Estimator] = {"dpepo": dpepo, "gigpo": gigpo, "grpo": grpo, "rloo": rloo}


def estimator_names() -> tuple[str, ...]:
    """Return the names that `estimator` knows."""
    return tuple(_ESTIMATORS)


def estimator(name: str) -> Estimator:
    """Return an estimator: a function of `Rows`, with its options as keywords.

    Raises:
        ValueError: There is no estimator of that name.

    Example:
        >>> rows = Rows(group=[0, 0], trajectory=[0, 1], turn=[0, 0], reward=[1, 0])
        >>> estimator("rloo")(rows).tolist()
        [1.0, -1.0]
    """
    return look_up(name, _ESTIMATORS, "estimator")


def _standardised(values: Floats, groups: Ints, std: bool) -> Floats:
    """Return values less their group's mean, with `std` over its deviation; 0 in flat groups."""
    _, which, counts = np.unique(groups, return_inverse=True, return_counts=True)
    centred = values - (_sums(values, which) / counts)[which]
    if std:
        spread = np.sqrt(_sums(centred**2, which) / np.maximum(counts - 1, 1))
        centred = centred / (spread + EPSILON)[which]
    return np.where(_flat(values, which), 0.0, centred)


def _sums(values: Floats, which: npt.NDArray[np.intp]) -> Floats:
    return np.asarray(np.bincount(which, values), np.float64)


def _flat(values: Floats, which: npt.NDArray[np.intp]) -> Bools:
    """Return for each value whether its group, numbered 0…, has no spread beyond rounding."""
    high = np.full(which.max(initial=-1) + 1, -np.inf)
    low = -high
    np.maximum.at(high, which, values)
    np.minimum.at(low, which, values)
    size = np.maximum(1.0, np.maximum(np.abs(high), np.abs(low)))
    return (high - low <= DUST * size)[which]


def _trajectories(rows: Rows) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return one row of each trajectory, and for each row the place of its trajectory there."""
    _, first, which = np.unique(rows.trajectory, return_index=True, return_inverse=True)
    return first, which


def _first_near(
    text: str, firsts: Sequence[tuple[str, int]], similarity: float | None
) -> int | None:
    if similarity is None:
        return None
    # difflib's "junk" rule would drop every common letter of texts from 200 letters on.
    matcher = difflib.SequenceMatcher(None, b=text, autojunk=False)
    for first, number in firsts:
        matcher.set_seq1(first)
        # The two quick ratios are upper bounds.
        ratios = (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)
        if all(ratio() >= similarity for ratio in ratios):
            return number
    return None


def _vector(name: str, value: Any, *, integer: bool = False) -> Any:
    array = np.array(value)
    if array.ndim != 1:
        raise ValueError(f"{name} must have one dimension, not the shape {array.shape}")
    if integer and array.size and not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} must hold integers, not {array.dtype}")
    return array.astype(np.int64 if integer else np.float64)


def _require(name: str, values: Floats, good: Bools, what: str) -> None:
    if not good.all():
        row = int(np.argmin(good))
        raise ValueError(f"{name} must be {what}, not {values[row]} as in row {row}")
