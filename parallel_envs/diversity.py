"""How diversely an episode explored: pure functions over an `Episode`.

Every function gives its formula with these names: n replicas; replica i's sent actions a_i, of
length T_i, with blanks joined; its states S_i, the start included; n_t replicas that acted in turn
t, with u_t distinct actions. Where a metric is undefined it is None, never 0. None of them looks at
success, which confounds all of them: a win ends an episode early, so compare at equal numbers of
turns or split by outcome.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import combinations, pairwise
from typing import Any, TypeVar

import numpy as np

from parallel_envs.episode import Episode

__all__ = [
    "LOOKS",
    "action_entropy",
    "checkpoint_coverage",
    "coverage_gain",
    "depth_repeat",
    "distinct_n",
    "edit_distance",
    "hamming_distance",
    "invalid_rate",
    "jaccard_distance",
    "revisit_rate",
    "self_bleu",
    "state_coverage",
    "summary",
    "transition_repeat_across",
    "transition_repeat_within",
    "utilisation",
    "vendi_score",
    "width_repeat",
]

T = TypeVar("T")

# Looking around in several replicas at once wastes nothing but the turn.
LOOKS = frozenset({"look", "look around"})


def depth_repeat(episode: Episode) -> float | None:
    """Share of actions that their own replica had played before: Σ(T_i - distinct_i) / ΣT_i.

    In [0, 1), low is diverse. None when nothing was played.
    """
    return _repeats(episode.actions_of(i) for i in range(episode.n))


def width_repeat(episode: Episode, looks: Collection[str] = LOOKS) -> float | None:
    """Share of actions that another replica played in the same turn: Σ(n_t - u_t) / Σn_t.

    In [0, (n-1)/n], low is diverse. Actions in `looks` are left out. None when no turn has two
    actions left, so always for n = 1.
    """
    turns = [[action for action in turn if action not in looks] for turn in _played(episode)]
    return _repeats(turns) if any(len(turn) > 1 for turn in turns) else None


def transition_repeat_within(episode: Episode) -> float | None:
    """`depth_repeat` of pairs of consecutive actions of a replica.

    In [0, 1), low is diverse. None when no replica acted twice.
    """
    return _repeats(tuple(pairwise(episode.actions_of(i))) for i in range(episode.n))


def transition_repeat_across(episode: Episode) -> float | None:
    """`width_repeat` of pairs: an action with the one that its replica played before it.

    In [0, (n-1)/n], low is diverse. None when no turn completes two pairs.
    """
    last: dict[int, str] = {}
    turns = []
    for turn in episode.turns:
        pairs = []
        for replica in np.flatnonzero(turn.acted).tolist():
            action = " ".join(turn.actions[replica].split())
            if replica in last:
                pairs.append((last[replica], action))
            last[replica] = action
        turns.append(pairs)
    return _repeats(turns) if any(len(pairs) > 1 for pairs in turns) else None


def state_coverage(episode: Episode) -> int:
    """Number of different states that any replica was in: |∪S_i|. At least 1; high is diverse."""
    return len(set().union(*_states(episode)))


def checkpoint_coverage(episode: Episode) -> float | None:
    """Share of the task's checkpoints that any replica reached: |∪ reached_i| / checkpoints.

    Checkpoints are places, objects and key states that the engine's facts and the goal define
    (`Episode.checkpoints`), the same for every agent: Exploration Checkpoint Coverage (Ye et al.
    2026, 2605.16143) over replicas. In [0, 1], high is good. None where the task has none.
    """
    if not episode.checkpoints:
        return None
    reached = {
        number for turn in episode.turns for numbers in turn.checkpoints for number in numbers
    }
    return len(reached) / len(episode.checkpoints)


def coverage_gain(episode: Episode) -> float:
    """What all replicas cover over what the best one does: |∪S_i| / max|S_i|, in [1, n]."""
    return state_coverage(episode) / max(map(len, _states(episode)))


def revisit_rate(episode: Episode) -> float:
    """Share of visits to a state that was visited before, by any replica: 1 - |∪S_i| / visits.

    In [0, 1), low is diverse. Each replica's start is a visit.
    """
    visits = sum(len(episode.visits_of(i)) for i in range(episode.n))
    return 1 - state_coverage(episode) / visits


def jaccard_distance(episode: Episode) -> float | None:
    """Mean over pairs of replicas of 1 - |S_i ∩ S_j| / |S_i ∪ S_j| (Jaccard 1912).

    In [0, 1], high is diverse. None for n = 1.
    """
    return _mean_of_pairs(_states(episode), lambda one, other: 1 - _jaccard(one, other))


def hamming_distance(episode: Episode) -> float | None:
    """Mean over pairs of replicas of the share of places where their actions differ.

    The shorter sequence is padded. In [0, 1], high is diverse. None when all pairs are empty.
    """

    def distance(one: Sequence[str], other: Sequence[str]) -> float:
        same = sum(a == b for a, b in zip(one, other, strict=False))
        return 1 - same / max(len(one), len(other))

    return _mean_of_pairs(_sequences(episode), distance)


def edit_distance(episode: Episode) -> float | None:
    """Mean over pairs of replicas of Levenshtein distance / longer length of their actions.

    In [0, 1], high is diverse. None when all pairs are empty.
    """

    def distance(one: Sequence[str], other: Sequence[str]) -> float:
        return _levenshtein(one, other) / max(len(one), len(other))

    return _mean_of_pairs(_sequences(episode), distance)


def action_entropy(episode: Episode) -> float | None:
    """Entropy of all actions over its greatest value: -Σp log p / log(support) (Shannon 1948).

    In [0, 1], high is diverse; 0 when one action was all. None when nothing was played.
    """
    counts = Counter(action for actions in _sequences(episode) for action in actions)
    if not counts:
        return None
    if len(counts) == 1:
        return 0.0
    shares = np.array(list(counts.values())) / counts.total()
    return float(-(shares * np.log(shares)).sum() / math.log(len(counts)))


def distinct_n(episode: Episode, n: int) -> float | None:
    """Share of different n-grams of actions among all of them (Li et al. 2016, 1510.03055).

    In (0, 1], high is diverse. It falls with length: compare at equal lengths. None when no
    replica acted n times.
    """
    grams = [gram for actions in _sequences(episode) for gram in _ngrams(actions, n)]
    return len(set(grams)) / len(grams) if grams else None


def self_bleu(episode: Episode, order: int = 4) -> float | None:
    """Mean BLEU of each replica's actions against the others' (Zhu et al. 2018, 1802.01886).

    An action is a token; precisions are add-one smoothed. In [0, 1], low is diverse. None when
    fewer than two replicas acted.
    """
    sequences = [actions for actions in _sequences(episode) if actions]
    if len(sequences) < 2:
        return None
    scores = [
        _bleu(actions, [*sequences[:i], *sequences[i + 1 :]], order)
        for i, actions in enumerate(sequences)
    ]
    return float(np.mean(scores))


def vendi_score(episode: Episode) -> float:
    """Effective number of different replicas: exp(-Σλ log λ) (Friedman and Dieng 2210.02410).

    λ are the eigenvalues of the matrix of Jaccard similarities of the S_i, divided by n. In [1, n],
    high is diverse.
    """
    states = _states(episode)
    kernel = np.array([[_jaccard(one, other) for other in states] for one in states])
    eigenvalues = np.linalg.eigvalsh(kernel / len(states))
    positive = eigenvalues[eigenvalues > 1e-12]
    return float(np.exp(-(positive * np.log(positive)).sum()))


def utilisation(episode: Episode) -> float | None:
    """Mean share of replicas that acted in a turn: mean n_t / n, in [0, 1]. None without turns."""
    shares = [sum(turn.acted) / episode.n for turn in episode.turns]
    return float(np.mean(shares)) if shares else None


def invalid_rate(episode: Episode) -> float | None:
    """Share of sent actions that were not in the admissible list, in [0, 1], low is good.

    None when nothing was sent.
    """
    sent = episode.steps
    good = sum(sum(turn.admissible) for turn in episode.turns)
    return (sent - good) / sent if sent else None


def summary(episode: Episode) -> dict[str, float | None]:
    """Return the metrics that are quick to compute, by name; ``info["diversity"]`` has them.

    Example:
        >>> from parallel_envs import ParallelTextEnv
        >>> from parallel_envs.toy import ToyTasks
        >>> env = ParallelTextEnv(ToyTasks(), n=2, max_turns=2)
        >>> _ = env.reset(seed=0), env.step(("go east", "go west"))
        >>> *_, info = env.step(("go east", "go west"))
        >>> info["diversity"]["depth_repeat"], info["diversity"]["width_repeat"]
        (0.5, 0.0)
        >>> info["diversity"]["state_coverage"], round(info["diversity"]["coverage_gain"], 2)
        (5, 1.67)
    """
    metrics: list[Callable[[Episode], float | None]] = [
        depth_repeat,
        width_repeat,
        transition_repeat_within,
        transition_repeat_across,
        state_coverage,
        coverage_gain,
        checkpoint_coverage,
        revisit_rate,
        jaccard_distance,
        action_entropy,
        utilisation,
        invalid_rate,
    ]
    return {metric.__name__: metric(episode) for metric in metrics}


def _sequences(episode: Episode) -> list[tuple[str, ...]]:
    return [episode.actions_of(i) for i in range(episode.n)]


def _states(episode: Episode) -> list[set[str]]:
    return [set(episode.visits_of(i)) for i in range(episode.n)]


def _played(episode: Episode) -> Iterator[list[str]]:
    """Yield the actions sent in each turn."""
    for turn in episode.turns:
        yield [
            " ".join(action.split())
            for action, acted in zip(turn.actions, turn.acted, strict=True)
            if acted
        ]


def _repeats(groups: Any) -> float | None:
    """Return Σ(size - distinct) / Σsize over groups, None when all are empty."""
    groups = list(groups)
    total = sum(map(len, groups))
    return sum(len(group) - len(set(group)) for group in groups) / total if total else None


def _mean_of_pairs(items: Sequence[T], distance: Callable[[Any, Any], float]) -> float | None:
    distances = [distance(one, other) for one, other in combinations(items, 2) if one or other]
    return float(np.mean(distances)) if distances else None


def _jaccard(one: set[str], other: set[str]) -> float:
    return len(one & other) / len(one | other)


def _ngrams(actions: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(actions[i : i + n]) for i in range(len(actions) - n + 1)]


def _levenshtein(one: Sequence[str], other: Sequence[str]) -> int:
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, start=1):
        previous, row[0] = row[0], i
        for j, b in enumerate(other, start=1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1]


def _bleu(actions: Sequence[str], references: Sequence[Sequence[str]], order: int) -> float:
    """BLEU (Papineni et al. 2002) with add-one smoothing above unigrams (Lin and Och 2004)."""
    logs = []
    for n in range(1, min(order, len(actions)) + 1):
        counts = Counter(_ngrams(actions, n))
        most: Counter[tuple[str, ...]] = Counter()
        for reference in references:
            most |= Counter(_ngrams(reference, n))
        matches = (counts & most).total()
        total = counts.total()
        if n == 1 and matches == 0:
            return 0.0
        smooth = 0 if n == 1 else 1
        logs.append(math.log((matches + smooth) / (total + smooth)))
    closest = min((abs(len(r) - len(actions)), len(r)) for r in references)[1]
    brevity = min(0.0, 1 - closest / len(actions))
    return math.exp(brevity + sum(logs) / len(logs))
