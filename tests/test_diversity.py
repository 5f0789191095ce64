"""Exploration metrics: values by hand, and laws on random episodes."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein
from scipy.stats import entropy

from parallel_envs import diversity
from parallel_envs.episode import Episode, Turn
from tests.test_episode import toy_episodes


def episode(*sequences: str, states: tuple[str, ...] | None = None) -> Episode:
    """Make an episode from one word a replica: a letter an action, a dot for none.

    Without `states`, the state after an action is all that the replica has done so far.
    """
    n = len(sequences)
    done = ["" for _ in sequences]
    turns = []
    for number in range(max(map(len, sequences))):
        letters = [sequence[number : number + 1].replace(".", "") for sequence in sequences]
        done = [past + letter for past, letter in zip(done, letters, strict=True)]
        keys = [f"s{word}" for word in done]
        if states is not None:
            keys = [states[i][number] for i in range(n)]
        turns.append(
            Turn(
                actions=tuple(letters),
                acted=tuple(letter != "" for letter in letters),
                admissible=tuple(letter not in ("", "x") for letter in letters),
                observations=("",) * n,
                state_keys=tuple(keys),
                checkpoints=tuple(
                    ("pqr".index(key),) if number == 0 and key in "pqr" else () for key in keys
                ),
                scores=(0.0,) * n,
                raw_scores=(0.0,) * n,
                won=(False,) * n,
                closed=(False,) * n,
                engine_done=(False,) * n,
                reward=0.0,
            )
        )
    return Episode(
        engine="toy",
        split="train",
        task_id="t",
        task_type="near",
        n=n,
        max_turns=9,
        stop="first_win",
        versions={},
        start_observation="",
        start_key="s",
        checkpoints=("at p", "at q", "at r"),
        turns=tuple(turns),
        terminated=False,
        truncated=True,
    )


ALL = [
    diversity.depth_repeat,
    diversity.width_repeat,
    diversity.transition_repeat_within,
    diversity.transition_repeat_across,
    diversity.state_coverage,
    diversity.coverage_gain,
    diversity.revisit_rate,
    diversity.jaccard_distance,
    diversity.hamming_distance,
    diversity.edit_distance,
    diversity.action_entropy,
    lambda e: diversity.distinct_n(e, 2),
    diversity.self_bleu,
    diversity.vendi_score,
    diversity.utilisation,
    diversity.invalid_rate,
    diversity.checkpoint_coverage,
]


def test_depth_and_width() -> None:
    # a b a | a a b | . c c : 8 actions; repeats within: a, a, c
    e = episode("aba", "aab", ".cc")
    assert diversity.depth_repeat(e) == pytest.approx(3 / 8)
    # turn 1: a a; turn 2: b a c; turn 3: a b c
    assert diversity.width_repeat(e) == pytest.approx(1 / 8)
    # pairs: ab ba | aa ab | cc; none twice in a replica
    assert diversity.transition_repeat_within(e) == 0
    assert diversity.transition_repeat_within(episode("ababa")) == pytest.approx(2 / 4)
    # turn 2 completes ab, aa; turn 3 ba, ab, cc
    assert diversity.transition_repeat_across(e) == 0
    assert diversity.transition_repeat_across(episode("ab", "ab", "cb")) == pytest.approx(1 / 3)


def test_looks_are_not_counted_in_width() -> None:
    e = episode("ab", "ab")
    look = replace(e.turns[0], actions=("look", "look around"))
    assert diversity.width_repeat(replace(e, turns=(look, e.turns[1]))) == pytest.approx(1 / 2)
    assert diversity.width_repeat(replace(e, turns=(look,))) is None
    assert diversity.width_repeat(replace(e, turns=(look,)), looks=()) == 0


def test_states() -> None:
    # start s; replica 0: p q p; replica 1: p p r
    e = episode("abc", "abc", states=("pqp", "ppr"))
    assert diversity.state_coverage(e) == 4
    assert diversity.coverage_gain(e) == pytest.approx(4 / 3)
    assert diversity.revisit_rate(e) == pytest.approx(1 - 4 / 8)
    assert diversity.jaccard_distance(e) == pytest.approx(1 - 2 / 4)
    # eigenvalues of [[1, .5], [.5, 1]] / 2 are 3/4 and 1/4
    expected = math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert diversity.vendi_score(e) == pytest.approx(expected)


def test_checkpoints() -> None:
    e = episode("a.", "a.", states=("ps", "rs"))
    assert diversity.checkpoint_coverage(e) == pytest.approx(2 / 3)
    assert diversity.checkpoint_coverage(permuted(e, [1])) == pytest.approx(1 / 3)
    assert diversity.checkpoint_coverage(replace(e, checkpoints=())) is None


def test_distances() -> None:
    assert diversity.hamming_distance(episode("abc", "abd")) == pytest.approx(1 / 3)
    assert diversity.hamming_distance(episode("abc", "bc.")) == 1
    assert diversity.edit_distance(episode("abc", "bc.")) == pytest.approx(1 / 3)
    assert diversity.edit_distance(episode("kitten", "sittin", "......")) == pytest.approx(
        (2 / 6 + 1 + 1) / 3
    )


def test_entropy_and_ngrams() -> None:
    assert diversity.action_entropy(episode("ab", "ab")) == pytest.approx(1)
    assert diversity.action_entropy(episode("aa", "a.")) == 0
    # 3 of a, 1 of b
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / math.log(2)
    assert diversity.action_entropy(episode("aab", "a")) == pytest.approx(expected)
    assert diversity.distinct_n(episode("aba", "ab"), 2) == pytest.approx(2 / 3)
    assert diversity.distinct_n(episode("aba", "ab"), 3) == 1


def test_self_bleu() -> None:
    assert diversity.self_bleu(episode("abcd", "abcd")) == pytest.approx(1)
    assert diversity.self_bleu(episode("ab", "cd")) == 0
    # unigrams 1/2, bigrams (0+1)/(1+1): sqrt(1/4)
    assert diversity.self_bleu(episode("ab", "cb")) == pytest.approx(0.5)


def test_use_and_validity() -> None:
    e = episode("ax", "x.", "..")
    assert diversity.utilisation(e) == pytest.approx((2 / 3 + 1 / 3) / 2)
    assert diversity.invalid_rate(e) == pytest.approx(2 / 3)


def test_undefined_is_none_and_never_zero() -> None:
    idle = episode("..", "..")
    assert {metric(idle) for metric in (diversity.depth_repeat, diversity.width_repeat)} == {None}
    assert diversity.action_entropy(idle) is diversity.invalid_rate(idle) is None
    assert diversity.hamming_distance(idle) is diversity.edit_distance(idle) is None
    assert diversity.self_bleu(idle) is diversity.distinct_n(idle, 1) is None
    assert diversity.state_coverage(idle) == diversity.coverage_gain(idle) == 1
    assert diversity.utilisation(idle) == 0
    alone = episode("ab")
    assert diversity.width_repeat(alone) is diversity.jaccard_distance(alone) is None
    assert diversity.transition_repeat_across(alone) is diversity.self_bleu(alone) is None
    assert diversity.vendi_score(alone) == diversity.coverage_gain(alone) == pytest.approx(1)
    assert diversity.transition_repeat_within(episode("a", "b")) is None
    nothing = replace(alone, turns=())
    assert diversity.utilisation(nothing) is None


@given(toy_episodes())
def test_entropy_and_distances_are_those_of_other_libraries(e: Episode) -> None:
    sequences = [e.actions_of(i) for i in range(e.n)]
    counts = Counter(action for actions in sequences for action in actions)
    if len(counts) > 1:
        expected = entropy(list(counts.values())) / math.log(len(counts))
        assert diversity.action_entropy(e) == pytest.approx(expected)
    if e.n == 2 and any(sequences):
        expected = Levenshtein.normalized_distance(*sequences)
        assert diversity.edit_distance(e) == pytest.approx(expected)


def permuted(e: Episode, order: list[int]) -> Episode:
    names = [name for name in Turn.__slots__ if name != "reward"]
    turns = tuple(
        replace(turn, **{x: tuple(getattr(turn, x)[i] for i in order) for x in names})
        for turn in e.turns
    )
    return replace(e, turns=turns, n=len(order))


@given(toy_episodes(), st.randoms())
def test_the_order_of_replicas_does_not_matter(e: Episode, random) -> None:
    order = list(range(e.n))
    random.shuffle(order)
    for metric in ALL:
        assert metric(permuted(e, order)) == pytest.approx(metric(e)), metric


@given(toy_episodes())
def test_values_are_within_their_bounds(e: Episode) -> None:
    for name, value in diversity.summary(e).items():
        if value is None:
            continue
        if name == "state_coverage":
            assert value >= 1
        elif name == "coverage_gain":
            assert 1 <= value <= e.n
        else:
            assert 0 <= value <= 1, name
    assert 1 - 1e-9 <= diversity.vendi_score(e) <= e.n + 1e-9
    for metric in ALL[8:13]:
        assert metric(e) is None or -1e-9 <= metric(e) <= 1 + 1e-9


@given(toy_episodes(), st.integers(0, 3))
def test_a_copy_of_a_replica_never_makes_it_more_diverse(e: Episode, which: int) -> None:
    copied = permuted(e, [*range(e.n), which % e.n])
    assert diversity.state_coverage(copied) == diversity.state_coverage(e)
    assert diversity.coverage_gain(copied) == pytest.approx(diversity.coverage_gain(e))
    assert diversity.checkpoint_coverage(copied) == diversity.checkpoint_coverage(e)
    assert diversity.revisit_rate(copied) >= diversity.revisit_rate(e) - 1e-9
    if all(e.turns[0].acted) and e.n == 1:
        assert diversity.vendi_score(copied) == pytest.approx(1)
        assert diversity.jaccard_distance(copied) == 0


@given(toy_episodes(), st.integers(0, 3))
def test_fewer_replicas_never_cover_more(e: Episode, which: int) -> None:
    if e.n > 1:
        rest = permuted(e, [i for i in range(e.n) if i != which % e.n])
        assert diversity.state_coverage(rest) <= diversity.state_coverage(e)
        assert diversity.checkpoint_coverage(rest) <= diversity.checkpoint_coverage(e)
