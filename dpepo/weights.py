"""The step weight W of DPEPO (arXiv 2604.24320): how little a turn repeats what was done.

Names: replica i has sent the actions h_i before this turn and is sent a_i now; if h_i is not empty,
p_i = (last of h_i, a_i) is its transition. Only replicas that act count:

- d_i, depth: how often a_i is in h_i;
- m_i, depth: how often p_i is among the consecutive pairs of h_i;
- M_i, width: how often p_i is among the consecutive pairs of (h_j, a_j) of other acting replicas j;
- c, width: number of this turn's actions, less the number of different ones, looks left out.

A replica without a past has no transition, so m_i = M_i = 0. The modes put the same counts together
in different ways:

- ``code``, as the authors released it: W = (ω^c + mean_i q_i)/2 in (0, 1], where
  q_i = (α^d_i + γ^m_i + β^M_i)/3. With v, the number of this turn's observations that say the
  engine knows no such action, W = (ω^c + mean_i q_i + invalid_penalty^v)/3.
- ``paper``, as published: W = (mean_i α^d_i + ω^c + mean_i γ^m_i + mean_i β^M_i)/2 in (0, 2]. The
  paper has no term for v.
- ``paper_norm``: half of ``paper``, in (0, 1].

A turn in which no replica acts has W = no_action_penalty. A factor of 1 switches its term off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from parallel_envs.diversity import LOOKS
from parallel_envs.episode import Episode, text_hash

__all__ = [
    "DEFAULT",
    "UNKNOWN_ACTION",
    "Mode",
    "WeightConfig",
    "episode_weights",
    "expert_progress",
    "mean_weight",
    "shape",
    "step_weight",
]

Mode = Literal["code", "paper", "paper_norm"]

UNKNOWN_ACTION = "No known action matches that input."  # ScienceWorld's


@dataclass(frozen=True, slots=True)
class WeightConfig:
    """What a repetition costs; the values are those of the paper's ALFWorld runs.

    Attributes:
        alpha: Factor for each time that the replica has sent the action before.
        omega: Factor for each action that another replica is sent in the same turn.
        gamma: Factor for each time that the replica has made the transition before.
        beta: Factor for each time that another acting replica has made the transition.
        invalid_penalty: Factor for each action that the engine does not know.
        no_action_penalty: W of a turn in which no replica acts.
        looks: Actions that are left out of the width count. The release exempts ALFWorld's spelling
            alone.
        mode: How the counts are put together.

    Raises:
        ValueError: A factor is outside (0, 1], or the mode is unknown.
    """

    alpha: float = 0.8
    omega: float = 0.8
    gamma: float = 0.95
    beta: float = 0.95
    invalid_penalty: float = 0.95
    no_action_penalty: float = 0.5
    looks: Collection[str] = LOOKS
    mode: Mode = "code"

    def __post_init__(self) -> None:
        factors = ("alpha", "omega", "gamma", "beta", "invalid_penalty", "no_action_penalty")
        for name in factors:
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(
                    f"{name} must be in (0, 1], not {getattr(self, name)!r}; 1 switches it off"
                )
        if self.mode not in get_args(Mode):
            raise ValueError(f"mode must be one of {', '.join(get_args(Mode))}, not {self.mode!r}")
        if isinstance(self.looks, str):
            raise ValueError(f"looks must be a set of actions, not the string {self.looks!r}")


DEFAULT = WeightConfig()


def step_weight(
    history: Sequence[Sequence[str]],
    actions: Sequence[str],
    config: WeightConfig = DEFAULT,
    *,
    unknown: int | None = None,
    invalid: Sequence[str] = (),
) -> float:
    """Return W of one turn, rounded to 4 places as in the release.

    Args:
        history: h_1 … h_n, the actions sent to each replica before this turn. Blanks are joined, as
            everywhere in this project.
        actions: This turn's n actions, ``""`` for a replica that is left alone.
        config: Factors and mode.
        unknown: v, how many of this turn's observations say that the engine knows no such action;
            None leaves the term out.
        invalid: Actions that the model wrote but that reached no replica, such as those for a
            replica that does not exist. They count in the width, and in nothing else.

    Returns:
        W in (0, 1], in mode ``paper`` in (0, 2]; the less redundant, the higher.

    Raises:
        ValueError: `history` and `actions` differ in length, or `unknown` is negative.

    Source:
        arXiv 2604.24320; mode ``code`` after the authors' release, with the written index honoured
        and the terms for ScienceWorld combined, where the release keeps the last one only.

    Example:
        >>> step_weight([[], []], ("go to desk 1", "go to bed 1"))
        1.0
        >>> step_weight([["go to desk 1"], []], ("go to desk 1", "go to desk 1"))
        0.8833
        >>> step_weight([[], []], ("", ""))
        0.5
    """
    if len(history) != len(actions):
        raise ValueError(
            f"history has {len(history)} replicas and actions {len(actions)}; give each replica "
            "one sequence of past actions and one action, '' to leave it alone"
        )
    if unknown is not None and unknown < 0:
        raise ValueError(f"unknown must be a count of observations or None, not {unknown}")
    acting = [replica for replica, action in enumerate(actions) if action != ""]
    if not acting:
        return config.no_action_penalty
    past = [[_joined(action) for action in history[i]] for i in acting]
    now = [_joined(actions[i]) for i in acting]

    depth = [h.count(a) for h, a in zip(past, now, strict=True)]
    depth_pairs, width_pairs = _transition_counts(past, now)
    alpha = _mean_power(config.alpha, depth)
    gamma = _mean_power(config.gamma, depth_pairs)
    beta = _mean_power(config.beta, width_pairs)
    omega = config.omega ** _width([*now, *map(_joined, invalid)], config.looks)

    if config.mode == "paper":
        weight = (alpha + omega + gamma + beta) / 2
    elif config.mode == "paper_norm":
        weight = (alpha + omega + gamma + beta) / 4
    else:
        terms = [omega, (alpha + gamma + beta) / 3]
        if unknown is not None:
            terms.append(config.invalid_penalty**unknown)
        weight = sum(terms) / len(terms)
    return round(weight, 4)


def episode_weights(
    episode: Episode, config: WeightConfig = DEFAULT, *, unknown_action: str | None = None
) -> tuple[float, ...]:
    """Return W of every turn of an episode, by the actions that were sent.

    An action given to a replica that had ended was not sent, so it counts nowhere.

    Args:
        episode: The record.
        config: Factors and mode.
        unknown_action: The observation by which the engine says that it knows no such action
            (`UNKNOWN_ACTION` for ScienceWorld); None leaves the term for v out.

    Example:
        >>> from parallel_envs import ParallelTextEnv
        >>> from parallel_envs.toy import ToyTasks
        >>> env = ParallelTextEnv(ToyTasks(), n=2, max_turns=2)
        >>> _ = env.reset(seed=0), env.step(("go east", "go west"))
        >>> *_, info = env.step(("go east", "go east"))
        >>> episode_weights(info["record"])
        (1.0, 0.8833)
    """
    refusal = None if unknown_action is None else text_hash(unknown_action)
    history: list[list[str]] = [[] for _ in range(episode.n)]
    weights = []
    for turn in episode.turns:
        sent = [a if acted else "" for a, acted in zip(turn.actions, turn.acted, strict=True)]
        shown = zip(turn.observations, turn.acted, strict=True)
        unknown = None if refusal is None else sum(acted and key == refusal for key, acted in shown)
        weights.append(step_weight(history, sent, config, unknown=unknown))
        for past, action in zip(history, sent, strict=True):
            if action != "":
                past.append(action)
    return tuple(weights)


def mean_weight(
    episode: Episode, config: WeightConfig = DEFAULT, *, unknown_action: str | None = None
) -> float | None:
    """Return the mean of `episode_weights`, an exploration metric; None without turns.

    In (0, 1], in mode ``paper`` in (0, 2]; high is diverse.
    """
    weights = episode_weights(episode, config, unknown_action=unknown_action)
    return float(np.mean(weights)) if weights else None


def shape(advantage: npt.ArrayLike, weight: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return A' = A·W where A ≥ 0, else A·(2 - W): redundancy lowers every advantage.

    Args:
        advantage: A, any shape.
        weight: W, of a shape that broadcasts with it.

    Source:
        arXiv 2604.24320. With W = 1, A' = A; at W = 2 (mode ``paper``) a failure costs nothing.

    Example:
        >>> shape([1.0, -1.0], 0.8).tolist()
        [0.8, -1.2]
    """
    a, w = np.asarray(advantage, np.float64), np.asarray(weight, np.float64)
    return np.where(a >= 0, a * w, a * (2 - w))


def expert_progress(expert: Sequence[str], sent: Sequence[Sequence[str]]) -> float:
    """Return how far the best replica followed an expert plan: max_i LOS_i / len(expert).

    The process-reward variant puts it in the place of the 0 of a lost episode, before
    normalisation. LOS is the greedy ordered match: it waits for the next action of the plan, so one
    that never comes blocks all later ones. It is not the longest common subsequence.

    Args:
        expert: The plan.
        sent: The actions sent to each replica.

    Returns:
        A share in [0, 1], rounded to 5 places as in the release; 0 without a plan.

    Example:
        >>> expert_progress(["open door", "go hall", "take key"], [["look", "open door"], []])
        0.33333
        >>> expert_progress(["open door", "go hall", "take key"], [["go hall", "take key"]])
        0.0
    """
    if not expert:
        return 0.0
    plan = [_joined(action) for action in expert]
    best = max((_ordered_match(plan, actions) for actions in sent), default=0)
    return round(best / len(plan), 5)


def _joined(action: str) -> str:
    return " ".join(action.split())


def _transition_counts(
    past: Sequence[Sequence[str]], now: Sequence[str]
) -> tuple[list[int], list[int]]:
    """Return m_i and M_i of the acting replicas."""
    pairs = [Counter(pairwise((*h, a))) for h, a in zip(past, now, strict=True)]
    depth, width = [], []
    for i, h in enumerate(past):
        own = (h[-1], now[i]) if h else None
        depth.append(pairs[i][own] - 1 if own else 0)  # less the transition of this turn itself
        width.append(sum(pairs[j][own] for j in range(len(past)) if j != i) if own else 0)
    return depth, width


def _width(actions: Sequence[str], looks: Collection[str]) -> int:
    counted = [action for action in actions if action not in looks]
    return len(counted) - len(set(counted))


def _mean_power(factor: float, counts: Sequence[int]) -> float:
    return sum(factor**count for count in counts) / len(counts)


def _ordered_match(plan: Sequence[str], actions: Sequence[str]) -> int:
    found = 0
    for action in actions:
        if found < len(plan) and _joined(action) == plan[found]:
            found += 1
    return found
