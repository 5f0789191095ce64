"""Actions as numbers."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from parallel_envs.wrappers import AdmissibleIndex
from tests.engines import ENGINES, SMALL


def make(engine: str, n: int, actions: int, **arguments: object) -> AdmissibleIndex:
    name, defaults = ENGINES[engine]
    return AdmissibleIndex(gymnasium.make(name, n=n, **{**defaults, **arguments}), actions)


def test_masked_samples_are_always_playable(engine: str) -> None:
    env = make(engine, 3, 50)
    env.action_space.seed(0)
    _, info = env.reset(options={"task_id": SMALL[engine]})
    for _ in range(5):
        assert all(mask.dtype == np.int8 and mask.shape == (51,) for mask in info["action_mask"])
        action = env.action_space.sample(mask=info["action_mask"])
        chosen = [
            actions[k - 1] if k else ""
            for k, actions in zip(action, info["admissible_actions"], strict=True)
        ]
        _, _, terminated, truncated, info = env.step(action)
        assert info["admissible"].tolist() == info["acted"].tolist() == [a != "" for a in chosen]
        if terminated or truncated:
            break
    env.close()


def test_what_does_not_fit_is_counted() -> None:
    env = make("toy", 1, 2)
    _, info = env.reset(seed=0)
    assert info["action_mask"][0].tolist() == [1, 1, 1]
    assert info["left_out"].tolist() == [len(info["admissible_actions"][0]) - 2]


def test_a_closed_replica_can_only_be_left_alone() -> None:
    env = make("toy", 2, 6, stop="all_ended")
    env.reset(options={"task_id": SMALL["toy"]})
    for action in env.unwrapped.expert_plan():
        admissible = env.unwrapped._states[0].admissible_actions
        *_, info = env.step([admissible.index(action) + 1, 0])
    assert info["closed"].tolist() == [True, False]
    assert info["action_mask"][0].tolist() == [1, 0, 0, 0, 0, 0, 0]
    with pytest.raises(ValueError, match="action 1 of replica 0 stands for nothing"):
        env.step([1, 0])


@given(st.lists(st.integers(-3, 9), max_size=4))
def test_wrong_numbers_are_refused_before_anything_is_sent(numbers: list[int]) -> None:
    env = make("toy", 2, 6)
    _, start = env.reset(options={"task_id": SMALL["toy"]})
    usable = len(start["admissible_actions"][0])
    if len(numbers) == 2 and all(0 <= number <= usable for number in numbers):
        env.step(numbers)
        return
    with pytest.raises(ValueError, match=r"expected 2 numbers|stands for nothing"):
        env.step(numbers)
    *_, info = env.step([0, 0])
    assert info["turn"] == 1
    assert info["state_key"] == start["state_key"]


def test_only_text_environments_are_wrapped() -> None:
    with pytest.raises(TypeError, match="not CartPoleEnv"):
        AdmissibleIndex(gymnasium.make("CartPole-v1"))
    with pytest.raises(ValueError, match="at least 1"):
        make("toy", 1, 0)


@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version")
def test_gymnasium_finds_no_fault() -> None:
    env = make("toy", 1, 4)  # four actions are admissible at the start of every task
    check_env(env, skip_render_check=True)
