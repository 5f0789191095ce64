"""The replicas as PettingZoo agents."""

from __future__ import annotations

import warnings

import pettingzoo
import pytest
from pettingzoo.test import parallel_api_test

import parallel_envs  # noqa: F401 - registers the environments
from parallel_envs.pettingzoo import ReplicaAgents
from tests.engines import ENGINES, SMALL


def make(engine: str, **arguments: object) -> ReplicaAgents:
    name, defaults = ENGINES[engine]
    return pettingzoo.make("parallel", name, **{**defaults, **arguments})


@pytest.mark.parametrize("stop", ["first_win", "all_ended"])
def test_pettingzoo_finds_no_fault(engine: str, stop: str, capsys) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = make(engine, n=2, stop=stop, max_turns=8)
        parallel_api_test(env, num_cycles=20)
    env.close()


def test_the_same_seed_gives_the_same_play(engine: str) -> None:
    """PettingZoo's own seed test stops after one step."""

    def transcript() -> list:
        env = make(engine, n=3, max_turns=10)
        observations, infos = env.reset(seed=4)
        lines = [observations]
        for turn in range(6):
            actions = {
                agent: infos[agent]["admissible_actions"][
                    (turn + i) % len(infos[agent]["admissible_actions"])
                ]
                for i, agent in enumerate(env.agents)
            }
            observations, rewards, terminations, truncations, infos = env.step(actions)
            keys = {agent: info["state_key"] for agent, info in infos.items()}
            lines.append((observations, rewards, terminations, truncations, keys))
            if not env.agents:
                break
        env.close()
        return lines

    assert transcript() == transcript()


def test_each_agent_is_paid_for_its_own_replica() -> None:
    env = make("toy", n=2, stop="all_ended")
    env.reset(options={"task_id": SMALL["toy"]})
    plan = env.env.expert_plan()
    total = {"replica_0": 0.0, "replica_1": 0.0}
    for action in plan:
        _, rewards, terminations, _, infos = env.step({"replica_0": action, "replica_1": "look"})
        for agent, reward in rewards.items():
            total[agent] += reward
    assert total == {"replica_0": 1.0, "replica_1": 0.0}
    assert terminations == {"replica_0": True, "replica_1": False}
    assert env.agents == ["replica_1"]
    assert infos["replica_0"]["won"]
    observations, rewards, *_ = env.step({"replica_1": "look"})
    assert set(observations) == set(rewards) == {"replica_1"}
    with pytest.raises(ValueError, match="'replica_0', but the agents are now replica_1"):
        env.step({"replica_0": "look"})


def test_a_win_ends_it_for_all_and_the_limit_truncates_the_rest() -> None:
    env = make("toy", n=2)
    env.reset(options={"task_id": SMALL["toy"]})
    for action in env.env.expert_plan():
        _, _, terminations, truncations, _ = env.step({"replica_1": action})
    assert terminations == {"replica_0": True, "replica_1": True}
    assert not any(truncations.values())
    assert env.agents == []
    env = make("toy", n=2, max_turns=1)
    env.reset(seed=0)
    _, _, terminations, truncations, _ = env.step({})
    assert truncations == {"replica_0": True, "replica_1": True}
    assert not any(terminations.values())
    with pytest.raises(ValueError, match="call reset"):
        env.step({"replica_0": "look"})


def test_infos_are_reduced_to_the_agents_own() -> None:
    env = make("toy", n=2, render_mode="ansi")
    env.reset(options={"task_id": SMALL["toy"]})
    *_, infos = env.step({"replica_0": "go east"})
    assert infos["replica_0"]["acted"]
    assert not infos["replica_1"]["acted"]
    assert infos["replica_0"]["state_key"] != infos["replica_1"]["state_key"]
    assert infos["replica_0"]["task_id"] == infos["replica_1"]["task_id"] == SMALL["toy"]
    assert "env 2" in env.render()
    assert str(env) == "parallel_toy_v0"
