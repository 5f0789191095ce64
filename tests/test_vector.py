"""Many tasks at once: equal to one by one, and robust against failing workers."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium.vector import AutoresetMode

from parallel_envs import ActionError, UnknownTaskError
from parallel_envs.vector import ParallelTextVectorEnv
from tests.engines import ENGINES, make


def make_vector(engine: str, num_envs: int, **arguments: Any) -> ParallelTextVectorEnv:
    name, defaults = ENGINES[engine]
    made = gymnasium.make_vec(name, num_envs=num_envs, **{**defaults, **arguments})
    assert isinstance(made, ParallelTextVectorEnv)
    return made


@pytest.fixture
def envs() -> Iterator[ParallelTextVectorEnv]:
    made = make_vector("toy", 3, n=2)
    yield made
    made.close()


def first_actions(infos: dict[str, Any], turn: int = 0) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(a[turn % len(a)] for a in each) for each in infos["admissible_actions"])


def family(envs: ParallelTextVectorEnv) -> list[psutil.Process]:
    """The workers, and what they have started."""
    workers = [psutil.Process(worker._process.pid) for worker in envs._workers]
    return [p for worker in workers for p in (worker, *worker.children(recursive=True))]


def test_make_vec_is_content_and_resets_nothing_by_itself(engine: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        envs = make_vector(engine, 2, n=2)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    assert envs.num_envs == 2
    observations, _ = envs.reset(seed=0)
    assert observations in envs.observation_space
    assert envs.action_space.sample() in envs.action_space
    envs.close()
    envs.close()


def test_it_equals_stepping_the_environments_one_by_one(engine: str) -> None:
    envs = make_vector(engine, 3, n=2)
    observations, infos = envs.reset(seed=5)
    singles = [make(engine, n=2) for _ in range(3)]
    for index, single in enumerate(singles):
        observation, info = single.reset(options={"task_id": infos["task_id"][index]})
        assert observation == observations[index]
    for turn in range(4):
        actions = first_actions(infos, turn)
        observations, rewards, terminations, truncations, infos = envs.step(actions)
        for index, single in enumerate(singles):
            observation, reward, terminated, truncated, info = single.step(actions[index])
            assert observations[index] == observation
            assert (rewards[index], terminations[index], truncations[index]) == (
                reward,
                terminated,
                truncated,
            )
            for key, value in info.items():
                assert np.all(infos[key][index] == value), key
                assert infos[f"_{key}"][index]
    assert rewards.shape == terminations.shape == (3,)
    assert infos["score"].shape == (3, 2)
    assert list(infos["error"]) == [None] * 3
    envs.close()
    for single in singles:
        single.close()


def test_no_task_is_played_twice_until_the_split_is_used_up() -> None:
    envs = make_vector("toy", 2, n=1)
    count = len(make("toy").task_set.tasks)  # 9
    played = []
    for turn in range(count):
        _, infos = envs.reset(seed=11 if turn == 0 else None)
        played += list(infos["task_id"])
    assert len(set(played[:count])) == count
    assert len(set(played[count : 2 * count])) == count
    _, infos = envs.reset(seed=11)
    assert list(infos["task_id"]) == played[:2]
    envs.close()


def test_a_group_plays_one_task_and_a_list_names_several(envs: ParallelTextVectorEnv) -> None:
    ids = [task.id for task in make("toy").task_set.tasks[:3]]
    _, infos = envs.reset(options={"task_id": ids[1]})
    assert list(infos["task_id"]) == [ids[1]] * 3
    _, infos = envs.reset(options={"task_id": ids})
    assert list(infos["task_id"]) == ids
    _, infos = envs.reset(seed=[7, 7, 8])
    single = make("toy", n=2)
    assert infos["task_id"][0] == infos["task_id"][1] == single.reset(seed=7)[1]["task_id"]


def test_a_finished_episode_stays_and_the_mask_resets_it_alone() -> None:
    envs = make_vector("toy", 3, n=1, max_turns=3, stop="all_ended")
    _, infos = envs.reset(options={"task_id": "coin-attic/trap-cellar"})
    plan = envs.call("expert_plan", 0)[0]
    for action in plan:
        observations, rewards, terminations, truncations, infos = envs.step(
            ((action,), ("look",), ("",))
        )
    assert terminations.tolist() == [True, False, False]
    assert truncations.tolist() == [False, True, True]
    assert rewards.tolist() == [0.5, 0, 0]
    last = observations
    observations, rewards, terminations, truncations, infos = envs.step((("look",),) * 3)
    assert observations == last
    assert rewards.tolist() == [0, 0, 0]
    assert terminations.tolist() == [True, False, False]
    assert infos["turn"].tolist() == [3, 3, 3]
    mask = np.array([True, False, True])
    observations, infos = envs.reset(options={"reset_mask": mask})
    assert infos["turn"].tolist() == [0, 3, 0]
    assert observations[1] == last[1]
    _, _, terminations, truncations, infos = envs.step((("look",),) * 3)
    assert infos["turn"].tolist() == [1, 3, 1]
    assert terminations.tolist() == [False, False, False]
    assert truncations.tolist() == [False, True, False]
    envs.close()


def test_records_and_metrics_come_with_the_end_of_each_episode() -> None:
    envs = make_vector("toy", 2, n=2, max_turns=2)
    _, infos = envs.reset(seed=0)
    *_, infos = envs.step((("look", ""), ("go east", "go west")))
    assert "record" not in infos
    *_, truncations, infos = envs.step((("look", ""), ("go east", "go west")))
    assert truncations.all()
    assert [record.steps for record in infos["record"]] == [2, 4]
    assert [each["jaccard_distance"] for each in infos["diversity"]] == [0.0, 0.8]
    assert [each["width_repeat"] for each in infos["diversity"]] == [None, 0.0]
    envs.reset(options={"reset_mask": [True, False]})
    *_, infos = envs.step((("look", ""), ("", "")))
    assert infos["_record"].tolist() == [False, True]
    envs.close()


def test_a_killed_worker_is_a_named_error_and_the_others_go_on(engine: str) -> None:
    envs = make_vector(engine, 3, n=2)
    _, infos = envs.reset(seed=1)
    task = infos["task_id"][1]
    envs._workers[1]._process.kill()
    _, rewards, terminations, truncations, infos = envs.step(first_actions(infos))
    assert "environment 1: its worker died (killed by signal 9)" in infos["error"][1]
    assert [infos["error"][0], infos["error"][2]] == [None, None]
    assert truncations.tolist() == [False, True, False]
    assert not terminations.any()
    assert rewards[1] == 0
    assert infos["turn"].tolist() == [1, 0, 1]
    *_, infos = envs.step(first_actions(infos, 1))
    assert infos["turn"].tolist() == [2, 0, 2]
    options = {"reset_mask": truncations, "task_id": [None, task, None]}
    _, infos = envs.reset(options=options)
    assert infos["error"][1] is None
    assert infos["turn"].tolist() == [2, 0, 2]
    *_, infos = envs.step(first_actions(infos, 2))
    assert infos["turn"].tolist() == [3, 1, 3]
    members = family(envs)
    assert len(members) == (6 if engine == "scienceworld" else 3)
    envs.close()
    assert not any(process.is_running() for process in members), "no zombies either"


def test_a_hung_worker_is_ended_within_the_limit() -> None:
    envs = make_vector("toy", 2, n=1, timeout=10)
    _, infos = envs.reset(seed=1)
    worker = envs._workers[0]._process
    worker.send_signal(signal.SIGSTOP)
    *_, truncations, infos = envs.step(first_actions(infos))
    assert "environment 0: no answer within 10 s" in infos["error"][0]
    assert truncations.tolist() == [True, False]
    assert not psutil.pid_exists(worker.pid)
    _, infos = envs.reset(options={"reset_mask": truncations})
    assert list(infos["error"]) == [None, None]
    envs.close()


def test_a_frozen_java_does_not_outlive_its_worker() -> None:
    envs = make_vector("scienceworld", 2, n=1, timeout=25)
    _, infos = envs.reset(seed=1)
    (java,) = (
        child
        for child in psutil.Process(envs._workers[0]._process.pid).children()
        if "java" in child.name()
    )
    java.send_signal(signal.SIGSTOP)
    *_, truncations, infos = envs.step(first_actions(infos))
    assert "environment 0: no answer" in infos["error"][0]
    assert truncations.tolist() == [True, False]
    assert not java.is_running() or java.status() == psutil.STATUS_ZOMBIE
    _, infos = envs.reset(options={"reset_mask": truncations})
    assert list(infos["error"]) == [None, None]
    members = family(envs)
    envs.close()
    assert not any(process.is_running() for process in members)


def test_a_killed_java_is_an_error_of_its_environment_alone() -> None:
    envs = make_vector("scienceworld", 2, n=1)
    _, infos = envs.reset(seed=1)
    psutil.Process(envs._workers[0]._process.pid).children()[0].kill()
    *_, truncations, infos = envs.step(first_actions(infos))
    assert "environment 0: EngineError: the Java server failed" in infos["error"][0]
    assert truncations.tolist() == [True, False]
    _, infos = envs.reset(options={"reset_mask": truncations})
    assert list(infos["error"]) == [None, None]
    envs.close()


def test_mistakes_of_the_caller_are_raised_and_cost_nothing(envs: ParallelTextVectorEnv) -> None:
    _, infos = envs.reset(seed=0)
    with pytest.raises(ValueError, match="3 joint actions"):
        envs.step((("look", "look"),))
    with pytest.raises(ActionError, match=r"environment 1: .*2 strings"):
        envs.step((("look", ""), ("look",), ("look", "")))
    *_, infos = envs.step((("look", ""),) * 3)
    assert infos["turn"].tolist() == [2, 1, 2]
    assert list(infos["error"]) == [None] * 3
    with pytest.raises(UnknownTaskError, match="Did you mean"):
        envs.reset(options={"task_id": ["coin-attic/trap-cellar", "coin-attic/trap-celar", None]})
    *_, infos = envs.step((("look", ""),) * 3)
    assert "no episode" in infos["error"][1]
    assert list(infos["error"])[::2] == [None, None]
    with pytest.raises(ValueError, match="reset_mask must be 3 bools"):
        envs.reset(options={"reset_mask": [True]})
    with pytest.raises(ValueError, match="task_id must have 3 items"):
        envs.reset(options={"task_id": ["a", "b"]})
    with pytest.raises(ValueError, match="num_envs"):
        make_vector("toy", 0)


def test_stepping_before_a_reset_is_no_episode(envs: ParallelTextVectorEnv) -> None:
    observations, _, _, truncations, infos = envs.step((("look", ""),) * 3)
    assert observations[0]["observations"] == ("", "")
    assert all("no episode" in error for error in infos["error"])
    assert not truncations.any()


HOLDER = """
import gymnasium, parallel_envs, sys, time
envs = gymnasium.make_vec("ParallelToy-v0", num_envs=2, n=1)
envs.reset(seed=0)
print(*(worker._process.pid for worker in envs._workers), flush=True)
if sys.argv[1] == "wait":
    time.sleep(60)
"""


@pytest.mark.parametrize("end", ["exit", "wait"])
def test_no_worker_outlives_its_parent(end: str, tmp_path: Path) -> None:
    """The script has no `if __name__ == "__main__"`, and needs none."""
    script = tmp_path / "script.py"
    script.write_text(HOLDER)
    parent = subprocess.Popen([sys.executable, str(script), end], stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    if end == "wait":
        parent.kill()
    parent.communicate(timeout=30)
    deadline = time.monotonic() + 20
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(psutil.pid_exists, pids))


def test_gymnasiums_own_vectors_are_right_or_refused() -> None:
    """Its asynchronous one would show filler text from shared memory."""
    with pytest.raises(ValueError, match="shared_memory=False"):
        gymnasium.make_vec("ParallelToy-v0", num_envs=2, n=2, vectorization_mode="async")
    for mode, options in (("async", {"shared_memory": False}), ("sync", {})):
        envs = gymnasium.make_vec(
            "ParallelToy-v0",
            num_envs=2,
            n=2,
            vectorization_mode=mode,
            vector_kwargs=options,
        )
        observations, _ = envs.reset(seed=[3, 3])
        texts = observations["observations"]
        assert texts[0][0] == texts[0][1] == texts[1][0]
        assert texts[0][0].startswith("You are in the hall.")
        envs.close()
