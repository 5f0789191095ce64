"""The step weight: values by hand, and laws on random turns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpepo.weights import (
    UNKNOWN_ACTION,
    WeightConfig,
    episode_weights,
    expert_progress,
    mean_weight,
    shape,
    step_weight,
)
from parallel_envs import ParallelTextEnv
from parallel_envs.episode import Episode, text_hash
from parallel_envs.toy import ToyTasks
from tests.test_episode import toy_episodes

MODES = ("code", "paper", "paper_norm")
HIGHEST = {"code": 1, "paper": 2, "paper_norm": 1}
# The state of the paper's figure: replica 3 is left alone.
FIGURE = [["A4"], ["A1", "A2"], ["A1", "A4", "A3"], ["A2", "A3", "A4"]]
FIGURE_TURN = ("A3", "A3", "", "A3")

actions = st.sampled_from(["a", "b", "c", "look"])


@st.composite
def turns(draw: st.DrawFn) -> tuple[list[list[str]], list[str]]:
    """Draw a history and a joint action with at least one action in it."""
    n = draw(st.integers(1, 4))
    history = [draw(st.lists(actions, max_size=6)) for _ in range(n)]
    joint = [draw(actions | st.just("")) for _ in range(n)]
    joint[draw(st.integers(0, n - 1))] = draw(actions)
    return history, joint


def episode(*sequences: str) -> Episode:
    """Play one word a replica: a letter an action, a dot for none."""
    env = ParallelTextEnv(ToyTasks(), n=len(sequences))
    env.reset(seed=0)
    for joint in zip(*sequences, strict=True):
        env.step(tuple(letter.replace(".", "") for letter in joint))
    return env.record()


def test_the_state_of_the_figure() -> None:
    # q = (1 + 1 + .95)/3, twice, and (.8 + 1 + .95)/3; c = 2
    assert step_weight(FIGURE, FIGURE_TURN) == 0.8006
    # means: α (1 + 1 + .8)/3, γ 1, β .95; ω^2 = .64
    assert step_weight(FIGURE, FIGURE_TURN, WeightConfig(mode="paper")) == 1.7617
    assert step_weight(FIGURE, FIGURE_TURN, WeightConfig(mode="paper_norm")) == 0.8808


def test_first_turn() -> None:
    start: list[list[str]] = [[], [], [], []]
    assert step_weight(start, ("a", "b", "c", "d")) == 1
    assert step_weight(start, ("a", "a", "a", "a")) == 0.756
    assert step_weight(start, ("look", "look", "look", "look")) == 1
    assert step_weight(start, ("look around",) * 4) == 1
    assert step_weight(start, ("look",) * 4, WeightConfig(looks=())) == 0.756


def test_one_replica_and_the_same_action_a_fourth_time() -> None:
    # α^3 = .512, the pair is there twice, β^0 = 1
    assert step_weight([["a", "a", "a"]], ("a",)) == 0.9024


def test_looks_count_in_the_depth() -> None:
    # the pair (look, look) is new, for there was one look only
    assert step_weight([["look"]], ("look",)) == round((1 + (0.8 + 1 + 1) / 3) / 2, 4)


def test_the_width_of_transitions_includes_this_turn() -> None:
    # Both make (a, b) now: M = 1 each; c = 1
    expected = (0.8 + (1 + 1 + 0.95) / 3) / 2
    assert step_weight([["a"], ["a"]], ("b", "b")) == round(expected, 4)
    # A replica without a past has no transition to share.
    assert step_weight([["a"], []], ("b", "b")) == 0.9
    # One that made it earlier but is idle now does not count.
    assert step_weight([["a"], ["a", "b"]], ("b", "")) == 1


def test_unknown_actions_are_a_third_term() -> None:
    width, mean_q = 0.64, (2 * (1 + 1 + 0.95) / 3 + (0.8 + 1 + 0.95) / 3) / 3
    for v in range(4):
        expected = round((width + mean_q + 0.95**v) / 3, 4)
        assert step_weight(FIGURE, FIGURE_TURN, unknown=v) == expected
    half = WeightConfig(invalid_penalty=0.5)
    assert step_weight([[]], ("zzz",), half, unknown=1) == round((1 + 1 + 0.5) / 3, 4)
    paper = WeightConfig(mode="paper")
    assert step_weight([[]], ("zzz",), paper, unknown=1) == step_weight([[]], ("zzz",), paper)


def test_a_turn_without_a_valid_action_has_the_penalty() -> None:
    for mode in MODES:
        config = WeightConfig(mode=mode, no_action_penalty=0.4)
        assert step_weight([["a"], []], ("", ""), config) == 0.4
        assert step_weight([["a"], []], ("", ""), config, invalid=("a", "b")) == 0.4
        assert step_weight([["a"], []], ("", ""), config, unknown=0) == 0.4


def test_invalid_items_count_in_the_width_alone() -> None:
    assert step_weight([[]], ("a",), invalid=("a",)) == 0.9
    assert step_weight([[]], ("a",), invalid=("b", "b")) == 0.9
    assert step_weight([[]], ("a",), invalid=("b", "look", "look")) == 1


def test_the_index_is_honoured() -> None:
    # The same action in the replica that has not seen it is no repetition.
    assert step_weight([["a"], []], ("", "a")) == 1
    assert step_weight([["a"], []], ("a", "")) < 1


def test_blanks_do_not_make_an_action_new() -> None:
    assert step_weight([["go  to desk 1"]], (" go to desk 1",)) == step_weight([["a"]], ("a",))


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="history has 1 replicas and actions 2"):
        step_weight([[]], ("a", "b"))
    with pytest.raises(ValueError, match="count of observations"):
        step_weight([[]], ("a",), unknown=-1)
    for name in ("alpha", "omega", "gamma", "beta", "invalid_penalty", "no_action_penalty"):
        for value in (0, 1.1, -0.5, float("nan")):
            with pytest.raises(ValueError, match=f"{name} must be in"):
                WeightConfig(**{name: value})
    with pytest.raises(ValueError, match="code, paper, paper_norm"):
        WeightConfig(mode="figure")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="set of actions"):
        WeightConfig(looks="look")


@pytest.mark.parametrize("mode", MODES)
@given(turn=turns(), unknown=st.none() | st.integers(0, 4))
def test_bounds(mode, turn, unknown) -> None:
    assert 0 < step_weight(*turn, WeightConfig(mode=mode), unknown=unknown) <= HIGHEST[mode]


@given(turns())
def test_the_normalised_form_is_half_of_the_papers(turn) -> None:
    paper, norm = (step_weight(*turn, WeightConfig(mode=mode)) for mode in MODES[1:])
    assert norm == pytest.approx(paper / 2, abs=1e-4)


@given(turns())
def test_factors_of_one_switch_everything_off(turn) -> None:
    off = WeightConfig(alpha=1, omega=1, gamma=1, beta=1)
    assert step_weight(*turn, off) == 1
    assert step_weight(*turn, replace(off, mode="paper")) == 2


@pytest.mark.parametrize("mode", MODES)
@given(turn=turns(), random=st.randoms())
def test_the_order_of_replicas_does_not_matter(mode, turn, random) -> None:
    history, joint = turn
    order = list(range(len(joint)))
    random.shuffle(order)
    config = WeightConfig(mode=mode)
    shuffled = step_weight([history[i] for i in order], [joint[i] for i in order], config)
    assert shuffled == pytest.approx(step_weight(history, joint, config), abs=1e-4)


@pytest.mark.parametrize("mode", MODES)
@given(turn=turns(), data=st.data())
def test_a_new_action_never_lowers_the_weight(mode, turn, data) -> None:
    history, joint = turn
    acting = [i for i, action in enumerate(joint) if action]
    changed = list(joint)
    changed[data.draw(st.sampled_from(acting))] = "something new"
    config = WeightConfig(mode=mode)
    assert step_weight(history, changed, config) >= step_weight(history, joint, config) - 1e-9


@pytest.mark.parametrize("mode", MODES)
@given(turn=turns(), earlier=actions, data=st.data())
def test_a_longer_past_never_raises_the_weight(mode, turn, earlier, data) -> None:
    history, joint = turn
    longer = [list(past) for past in history]
    longer[data.draw(st.integers(0, len(joint) - 1))].insert(0, earlier)
    config = WeightConfig(mode=mode)
    assert step_weight(longer, joint, config) <= step_weight(history, joint, config) + 1e-9


@given(turns(), st.integers(0, 3))
def test_unknown_actions_never_raise_the_weight(turn, v) -> None:
    assert step_weight(*turn, unknown=v + 1) < step_weight(*turn, unknown=v)


def test_the_turns_of_an_episode() -> None:
    e = episode("aaaa")
    # α^d with d = 0, 1, 2, 3 and γ^m with m = 0, 0, 1, 2
    q = [1, (0.8 + 2) / 3, (0.64 + 0.95 + 1) / 3, (0.512 + 0.95**2 + 1) / 3]
    assert episode_weights(e) == pytest.approx([(1 + x) / 2 for x in q], abs=1e-4)
    assert episode_weights(e)[-1] == 0.9024
    assert mean_weight(e) == pytest.approx(np.mean(episode_weights(e)))
    assert episode_weights(episode("a.", "b.")) == (1, 0.5)
    assert mean_weight(replace(e, turns=())) is None


def test_an_episode_weighs_what_was_sent() -> None:
    e = episode("ab", "ab")
    closed = replace(e.turns[1], acted=(True, False))
    assert episode_weights(replace(e, turns=(e.turns[0], closed))) == (0.9, 1)


def test_unknown_actions_of_an_episode() -> None:
    e = episode("ab", "b.")
    known, refused = text_hash("Fine."), text_hash(UNKNOWN_ACTION)
    # In the second turn replica 2 still shows its refusal, but it was not asked again.
    shown = tuple(replace(turn, observations=(known, refused)) for turn in e.turns)
    e = replace(e, turns=shown)
    assert episode_weights(e) == (1, 1)
    with_term = episode_weights(e, unknown_action=UNKNOWN_ACTION)
    assert with_term == (round((1 + 1 + 0.95) / 3, 4), 1)
    mean = mean_weight(e, unknown_action=UNKNOWN_ACTION)
    assert mean == pytest.approx(np.mean(with_term))


def test_a_blank_action_is_sent_and_is_an_action() -> None:
    env = ParallelTextEnv(ToyTasks(), n=1, max_turns=2)
    env.reset(seed=0)
    env.step((" ",))
    *_, info = env.step((" ",))
    assert episode_weights(info["record"]) == (1, step_weight([["a"]], ("a",)))


@given(toy_episodes())
def test_an_episode_is_its_turns(e: Episode) -> None:
    weights = episode_weights(e)
    assert len(weights) == len(e.turns)
    # What was sent before the last turn is all but its own actions.
    last = e.turns[-1]
    sent = [a if acted else "" for a, acted in zip(last.actions, last.acted, strict=True)]
    past = [e.actions_of(i)[: -1 if last.acted[i] else None] for i in range(e.n)]
    assert weights[-1] == step_weight(past, sent)
    assert mean_weight(e) == pytest.approx(sum(weights) / len(weights))


finite = st.floats(-1e6, 1e6)
weights_to_two = st.floats(0, 2)


def test_shape() -> None:
    assert shape(-1, 0.8) == pytest.approx(-1.2)
    assert shape([1, 0, -1], [0.8, 0.8, 2]).tolist() == [0.8, 0, 0]


@given(finite, weights_to_two, weights_to_two)
def test_redundancy_never_raises_an_advantage(a, one, other) -> None:
    low, high = sorted((one, other))
    assert shape(a, low) <= shape(a, high)
    assert shape(a, 1) == a
    assert shape(a, low) * a >= 0


def test_expert_progress() -> None:
    plan = ["a", "b", "c", "d"]
    assert expert_progress(plan, [["a", "x", "b"], ["a"]]) == 0.5
    # Greedy: without the first action nothing later is matched, though "b c d" is common.
    assert expert_progress(plan, [["b", "c", "d"]]) == 0
    assert expert_progress(["a", "b", "c"], [["a"]]) == 0.33333
    assert expert_progress(plan, []) == expert_progress([], [["a"]]) == 0


@given(st.lists(actions, min_size=1), st.lists(st.lists(actions), max_size=3))
def test_progress_laws(plan, sent) -> None:
    progress = expert_progress(plan, sent)
    assert 0 <= progress <= 1
    assert expert_progress(plan, [*sent, plan]) == 1
    assert expert_progress(plan, [[*past, "look"] for past in sent]) >= progress
    assert progress == max((expert_progress(plan, [past]) for past in sent), default=0)
