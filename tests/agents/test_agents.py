"""The agents that need no model."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from agents import View, agent_names, make_agent
from leaderboard.play import play
from parallel_envs import ParallelTextEnv
from parallel_envs.toy import ToyTasks


def view_of(env: ParallelTextEnv, seed: int = 0) -> View:
    observation, info = env.reset(seed=seed)
    return View(observation, info, np.random.default_rng(seed), env.expert_plan)


def test_an_unknown_agent_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"did you mean 'random'\? There are: random, expert"):
        make_agent("randm")
    with pytest.raises(ValueError, match="no agent is called 'x'"):
        make_agent("x")


@pytest.mark.parametrize("name", agent_names())
def test_every_name_makes_a_new_agent_that_answers_a_batch(name: str) -> None:
    if name == "handcoded":
        pytest.skip("ALFWorld's own; played in tests/alfworld")
    agent = make_agent(name)
    envs = [ParallelTextEnv(ToyTasks(), n=n) for n in (1, 2, 5)]
    joint = agent.act([view_of(env) for env in envs])
    assert [len(actions) for actions in joint] == [1, 2, 5]
    for env, actions in zip(envs, joint, strict=True):
        env.step(actions)


def test_the_random_agent_draws_every_admissible_action_alike() -> None:
    env = ParallelTextEnv(ToyTasks(), n=3)
    view = view_of(env)
    agent = make_agent("random")
    drawn = Counter(action for _ in range(2000) for action in agent.act([view])[0])
    assert set(drawn) == set(view.info["admissible_actions"][0])
    assert max(drawn.values()) < 1.2 * min(drawn.values())


def test_the_random_agent_leaves_closed_replicas_alone() -> None:
    env = ParallelTextEnv(ToyTasks(), n=2, stop="all_ended")
    view = view_of(env)
    for action in env.expert_plan():
        view.observation, *_, view.info = env.step((action, ""))
    actions = make_agent("random").act([view])[0]
    assert actions[0] == ""
    assert actions[1] in view.info["admissible_actions"][1]


def test_an_episode_does_not_depend_on_its_neighbours() -> None:
    env = ParallelTextEnv(ToyTasks(), n=2)
    agent = make_agent("random")
    tasks = env.task_set.tasks

    def actions(order: list[int]) -> dict[str, tuple]:
        results = [play(env, agent, tasks[index], seed=3) for index in order]
        return {result.task_id: result.actions for result in results}

    assert actions([0, 1, 2]) == actions([2, 0, 1])
    assert play(env, agent, tasks[0], seed=4).actions != play(env, agent, tasks[0], seed=3).actions


def test_the_expert_plays_in_one_replica_and_wins() -> None:
    env = ParallelTextEnv(ToyTasks(), n=3)
    for task in env.task_set.tasks:
        result = play(env, make_agent("expert"), task, seed=0)
        assert (result.won, result.ended, result.score) == (True, "won", 1)
        assert all(joint[1:] == ("", "") for joint in result.actions)
        assert result.steps == result.turns
        assert result.inadmissible == 0
