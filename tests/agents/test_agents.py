"""The agents that need no model."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from agents import AgentError, ModelOptions, View, agent_names, make_agent
from agents.chat.scripted import ScriptedModel
from leaderboard.play import play
from parallel_envs import EngineError, ParallelTextEnv
from parallel_envs.episode import Episode
from parallel_envs.toy import ToyTasks


def view_of(env: ParallelTextEnv, seed: int = 0) -> View:
    observation, info = env.reset(seed=seed)
    return View(observation, info, np.random.default_rng(seed), env.expert_plan, env.max_turns)


def test_an_unknown_agent_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"did you mean 'random'\? There are: random, expert"):
        make_agent("randm")
    with pytest.raises(ValueError, match="no agent is called 'x'"):
        make_agent("x")


@pytest.mark.parametrize("name", agent_names())
def test_every_name_makes_a_new_agent_that_answers_a_batch(name: str) -> None:
    if name in ("handcoded", "loophole"):
        pytest.skip("it needs an expert of its engine; played in its tests")
    options = ModelOptions(ScriptedModel(lambda messages: "<action>look</action>"))
    agent = make_agent(name, options)
    assert agent.settings == dict(agent.settings)
    sizes = (1, 1, 1) if name == "react" else (1, 2, 5)
    envs = [ParallelTextEnv(ToyTasks(), n=n) for n in sizes]
    joint = agent.act([view_of(env) for env in envs])
    for env, actions in zip(envs, joint, strict=True):
        if isinstance(actions, AgentError):
            assert name == "searcher", "it reads ALFWorld only"
        else:
            assert len(actions) == env.n
            env.step(actions)
    agent.close()
    agent.close()


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
    agent = make_agent("random")
    tasks = ToyTasks().tasks

    def episodes(order: list[int], beside: int, seed: int = 3) -> dict[str, Episode]:
        envs = [ParallelTextEnv(ToyTasks(), n=2) for _ in range(beside)]
        return {
            result.task_id: result.episode
            for result in play(envs, agent, [tasks[index] for index in order], seed)
        }

    alone = episodes([0, 1, 2], 1)
    assert episodes([2, 0, 1], 1) == episodes([1, 2, 0], 3) == alone
    assert episodes([0, 1, 2], 1, seed=4) != alone


def test_tasks_that_cannot_be_started_are_errors_and_none_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(self: ToyTasks, task: object, n: int) -> None:
        raise EngineError("no start")

    monkeypatch.setattr(ToyTasks, "open", broken)
    for beside in (1, 4):
        envs = [ParallelTextEnv(ToyTasks(), n=2) for _ in range(beside)]
        results = list(play(envs, make_agent("random"), ToyTasks().tasks, seed=0))
        assert [result.error for result in results] == ["EngineError: no start"] * 9


def test_the_expert_plays_in_one_replica_and_wins() -> None:
    env = ParallelTextEnv(ToyTasks(), n=3)
    for result in play([env], make_agent("expert"), env.task_set.tasks, seed=0):
        episode = result.episode
        assert (episode.won, episode.ended, episode.best_score) == (True, "won", 1)
        assert all(turn.actions[1:] == ("", "") for turn in episode.turns)
        assert episode.steps == len(episode.turns)
        assert result.diversity["invalid_rate"] == 0
