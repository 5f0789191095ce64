"""Laws that every engine's replicas obey, on random play."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parallel_envs import ParallelTextEnv
from tests.engines import ENGINES, SMALL, make

EXAMPLES = {"toy": 100, "alfworld": 25, "scienceworld": 5}
TURNS = {"toy": 12, "alfworld": 10, "scienceworld": 6}
N = 3

Joint = tuple[str, ...]


@pytest.fixture(scope="module", params=list(ENGINES))
def env(request: pytest.FixtureRequest) -> Iterator[ParallelTextEnv]:
    """An environment that plays on after wins, so that closed replicas occur."""
    made = make(request.param, n=N, stop="all_ended", max_turns=40)
    made.label = request.param
    yield made
    made.close()


def law(check: Callable[..., None]) -> Callable[..., None]:
    """Run a check with random draws, more of them on faster engines."""

    def test(env: ParallelTextEnv) -> None:
        limits = settings(max_examples=EXAMPLES[env.label])
        limits(given(data=st.data())(lambda data: check(env, data)))()

    test.__doc__ = check.__doc__
    return test


def start(env: ParallelTextEnv) -> tuple[Any, dict[str, Any]]:
    return env.reset(options={"task_id": SMALL[env.label]})


def draw_joint(data: st.DataObject, info: dict[str, Any], plans: list[list[str]]) -> Joint:
    """Draw for each replica: nothing, nonsense, an admissible action, or the expert's next."""
    joint = []
    for actions, plan in zip(info["admissible_actions"], plans, strict=True):
        kind = data.draw(st.sampled_from(["expert", "admissible", "admissible", "idle", "noise"]))
        if kind == "idle":
            joint.append("")
        elif kind == "noise":
            joint.append(data.draw(st.sampled_from(["xyzzy", "  ", "go to", "take\nit", "ö" * 50])))
        elif kind == "expert" and plan:
            joint.append(plan.pop(0))
        else:
            joint.append(actions[data.draw(st.integers(0, 10**6)) % len(actions)])
    return tuple(joint)


def random_play(env: ParallelTextEnv, data: st.DataObject) -> list[tuple[Joint, Any, dict, float]]:
    """Play at random; return each turn's action, observation, info and reward."""
    _, info = start(env)
    plan = env.expert_plan()
    plans = [list(plan) for _ in range(env.n)]
    history = []
    for _ in range(TURNS[env.label]):
        joint = draw_joint(data, info, plans)
        observation, reward, terminated, truncated, info = env.step(joint)
        history.append((joint, observation, info, reward))
        if terminated or truncated:
            break
    return history


def shown(observation: Any, info: dict[str, Any], replica: int) -> tuple[Any, ...]:
    """Everything that a replica shows."""
    names = ("admissible_actions", "score", "raw_score", "won", "closed", "state_key", "pending")
    return (observation["observations"][replica], *(info[name][replica] for name in names))


@law
def test_replicas_start_equal(env: ParallelTextEnv, data: st.DataObject) -> None:
    random_play(env, data)
    observation, info = start(env)
    assert len({shown(observation, info, replica) for replica in range(env.n)}) == 1
    assert info["turn"] == info["steps"] == 0


@law
def test_a_replica_left_alone_does_not_change(env: ParallelTextEnv, data: st.DataObject) -> None:
    observation, info = start(env)
    plans = [list(env.expert_plan()) for _ in range(env.n)]
    for _ in range(TURNS[env.label]):
        before = [shown(observation, info, replica) for replica in range(env.n)]
        joint = draw_joint(data, info, plans)
        observation, _, terminated, truncated, info = env.step(joint)
        for replica, action in enumerate(joint):
            if action == "":
                assert shown(observation, info, replica) == before[replica]
                assert not info["acted"][replica]
        if terminated or truncated:
            break


@law
def test_permuting_replicas_permutes_results(env: ParallelTextEnv, data: st.DataObject) -> None:
    played = random_play(env, data)
    order = data.draw(st.permutations(range(env.n)))
    start(env)
    for joint, observation, info, reward in played:
        again, again_reward, *_, again_info = env.step(tuple(joint[i] for i in order))
        assert again_reward == reward
        for new, old in enumerate(order):
            assert shown(again, again_info, new) == shown(observation, info, old)
            for flag in ("acted", "ignored", "admissible", "changed_nothing"):
                assert again_info[flag][new] == info[flag][old]


@law
def test_the_return_is_the_best_score(env: ParallelTextEnv, data: st.DataObject) -> None:
    played = random_play(env, data)
    rewards = [reward for *_, reward in played]
    best = max(info["score"].max() for _, _, info, _ in played)
    assert sum(rewards) == pytest.approx(best)
    assert all(isinstance(reward, float) and reward >= 0 for reward in rewards)
    assert all(0 <= score <= 1 for _, _, info, _ in played for score in info["score"])
    # The rise to the win is paid in the turn of the first win, and nothing after it.
    won = [bool(info["won"].any()) for _, _, info, _ in played]
    if True in won:
        assert sum(rewards[: won.index(True) + 1]) == pytest.approx(1)
        assert sum(rewards[won.index(True) + 1 :]) == 0


@law
def test_nothing_is_sent_to_a_closed_replica(env: ParallelTextEnv, data: st.DataObject) -> None:
    start(env)
    plan = env.expert_plan()
    random_play(env, data)
    _, info = start(env)
    closed = np.zeros(env.n, dtype=bool)
    sent: list[int] = []
    game = env._game
    assert game is not None
    real_step = game.step
    game.step = lambda replica, action: (sent.append(replica), real_step(replica, action))[1]
    try:
        plans = [list(plan) for _ in range(env.n)]
        for _ in range(TURNS[env.label]):
            sent.clear()
            joint = draw_joint(data, info, plans)
            _, _, terminated, truncated, info = env.step(joint)
            given = np.array([action != "" for action in joint])
            assert sent == np.flatnonzero(given & ~closed).tolist()
            assert info["acted"].tolist() == (given & ~closed).tolist()
            assert info["ignored"].tolist() == (given & closed).tolist()
            closed = info["closed"]
            if terminated or truncated:
                break
    finally:
        del game.step


@law
def test_steps_count_what_was_sent(env: ParallelTextEnv, data: st.DataObject) -> None:
    played = random_play(env, data)
    sent = np.cumsum([info["acted"].sum() for _, _, info, _ in played])
    assert [info["steps"] for _, _, info, _ in played] == sent.tolist()
    assert [info["turn"] for _, _, info, _ in played] == list(range(1, len(played) + 1))


@law
def test_equal_state_keys_mean_equal_futures(env: ParallelTextEnv, data: st.DataObject) -> None:
    played = random_play(env, data)
    _, _, info, _ = played[-1]
    for replica in range(1, env.n):
        if info["state_key"][0] != info["state_key"][replica] or info["closed"].any():
            continue
        actions = info["admissible_actions"]
        if env.label != "scienceworld":  # whose list is ordered by how objects came about
            assert actions[0] == actions[replica]
        action = actions[0][data.draw(st.integers(0, 10**6)) % len(actions[0])]
        joint = tuple(action if i in (0, replica) else "" for i in range(env.n))
        if env.label == "scienceworld":  # whose random stream is not part of the state
            continue
        observation, *_, info = env.step(joint)
        assert shown(observation, info, 0) == shown(observation, info, replica)
        break
