"""Forks: the same state, then two lives; each equals a fresh run of its own actions."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium
import pytest
from gymnasium.error import ResetNeeded
from hypothesis import given, settings
from hypothesis import strategies as st

import parallel_envs
from parallel_envs import ParallelTextEnv
from tests.engines import ENGINES, SMALL, make
from tests.test_properties import EXAMPLES, draw_joint, shown

N = 2


@pytest.fixture(scope="module", params=list(ENGINES))
def env(request: pytest.FixtureRequest) -> Iterator[ParallelTextEnv]:
    made = make(request.param, n=N, max_turns=60, stop="all_ended")
    made.label = request.param
    yield made
    made.close()


def play(env: ParallelTextEnv, data: st.DataObject, info: dict, turns: int) -> tuple[list, list]:
    """Play at random; return the actions and everything shown."""
    actions, seen = [], []
    for _ in range(turns):
        joint = draw_joint(data, info, [[] for _ in range(N)])
        observation, reward, terminated, truncated, info = env.step(joint)
        actions.append(joint)
        seen.append(
            [reward, terminated, truncated, info["turn"], info["steps"]]
            + [shown(observation, info, replica) for replica in range(N)]
        )
        if terminated or truncated:
            break
    return actions, seen


def replayed(env: ParallelTextEnv, actions: list) -> list:
    """Everything shown by a fresh run of these actions."""
    env.reset(options={"task_id": SMALL[env.label]})
    seen = []
    for joint in actions:
        observation, reward, terminated, truncated, info = env.step(joint)
        seen.append(
            [reward, terminated, truncated, info["turn"], info["steps"]]
            + [shown(observation, info, replica) for replica in range(N)]
        )
    return seen


def test_original_and_fork_go_their_own_ways(env: ParallelTextEnv) -> None:
    @settings(max_examples=max(3, EXAMPLES[env.label] // 4))
    @given(st.data())
    def law(data: st.DataObject) -> None:
        _, info = env.reset(options={"task_id": SMALL[env.label]})
        past, _ = play(env, data, info, data.draw(st.integers(0, 4)))
        if env._over:
            return
        twin = env.fork()
        twin.label = env.label
        *_, info = env.step(("",) * N)
        *_, twin_info = twin.step(("",) * N)
        assert info["state_key"] == twin_info["state_key"]
        assert info["turn"] == twin_info["turn"] == len(past) + 1
        idle = [("",) * N]
        first, first_seen = play(env, data, info, 2)
        second, second_seen = play(twin, data, twin_info, 2)
        more, more_seen = ([], []) if env._over else play(env, data, env_info(env), 1)
        twin.close()
        start = len(past) + 1
        assert replayed(env, past + idle + second)[start:] == second_seen
        assert replayed(env, past + idle + first + more)[start:] == first_seen + more_seen

    law()


def env_info(env: ParallelTextEnv) -> dict:
    """What is admissible now."""
    return {"admissible_actions": [state.admissible_actions for state in env._states]}


def test_a_fork_outlives_its_original_and_draws_the_same_tasks(engine: str) -> None:
    env = gymnasium.make(ENGINES[engine][0], n=2, **ENGINES[engine][1])
    env.reset(seed=3)
    twin = parallel_envs.fork(env)
    assert type(twin) is type(env.unwrapped)
    following = env.reset()[1]["task_id"]
    env.close()
    twin.step(("", ""))
    assert twin.reset()[1]["task_id"] == following
    twin.close()


def test_a_fork_of_nothing_is_an_error(engine: str) -> None:
    env = make(engine, n=1)
    with pytest.raises(ResetNeeded, match="fork before reset"):
        env.fork()
    with pytest.raises(TypeError, match="not CartPoleEnv"):
        parallel_envs.fork(gymnasium.make("CartPole-v1"))


def test_a_finished_episode_stays_finished_in_a_fork() -> None:
    env = make("toy", n=1, max_turns=1)
    env.reset(seed=0)
    env.step(("look",))
    with pytest.raises(ResetNeeded, match="over"):
        env.fork().step(("look",))
