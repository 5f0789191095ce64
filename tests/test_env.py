"""The environment contract, on every engine."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

import parallel_envs
from parallel_envs import (
    ActionError,
    EngineError,
    GameState,
    ParallelTextEnv,
    ReplicaMismatchError,
    Task,
    UnknownTaskError,
)
from parallel_envs.toy import ToyGame, ToyTasks
from tests.engines import ENGINES, SMALL, make


@pytest.mark.parametrize("n", [1, 4, 8])
def test_gymnasium_finds_no_fault(engine: str, n: int) -> None:
    name, arguments = ENGINES[engine]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(name, n=n, render_mode="ansi", **arguments)
        check_env(env.unwrapped)
        env.reset(seed=0)
        env.step(env.action_space.sample())
        env.close()


def test_importing_the_package_imports_no_engine() -> None:
    code = (
        "import sys, gymnasium, parallel_envs\n"
        "parallel_envs.ParallelTextEnv, gymnasium.spec('ParallelALFWorld-v0').to_json()\n"
        "print(sorted({m.split('.')[0] for m in sys.modules}"
        " & {'alfworld', 'textworld', 'fast_downward', 'scienceworld', 'py4j', 'torch'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_environment_can_be_made_without_importing_the_package() -> None:
    code = (
        "import gymnasium; print(gymnasium.make('parallel_envs:ParallelToy-v0', n=2).unwrapped.n)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2"


def test_spaces_are_a_space_object_for_each_replica(env: ParallelTextEnv) -> None:
    spaces = env.action_space.spaces
    assert len({id(space) for space in spaces}) == env.n == len(spaces)
    observation, _ = env.reset(seed=0)
    assert observation in env.observation_space
    assert ("",) * env.n in env.action_space


def test_info_is_complete(env: ParallelTextEnv) -> None:
    _, info = env.reset(options={"task_id": SMALL[env.task_set.engine]})
    assert info["task_id"] == SMALL[env.task_set.engine]
    assert info["task_type"] in {task.type for task in env.task_set.tasks}
    assert info["split"] == env.task_set.split
    for name in ("score", "raw_score", "won", "closed", "acted", "ignored", "admissible"):
        assert isinstance(info[name], np.ndarray), name
        assert info[name].shape == (env.n,), name
    for name in ("admissible_actions", "state_key", "pending"):
        assert isinstance(info[name], tuple), name
        assert len(info[name]) == env.n, name
    assert all(info["admissible_actions"])


def test_returned_objects_are_new_each_time(env: ParallelTextEnv) -> None:
    first, info = env.reset(seed=0)
    info["score"] += 7
    info["won"][:] = True
    second, *_, later = env.step(("",) * env.n)
    assert second is not first
    assert later is not info
    assert later["score"].max() < 7
    assert not later["won"].any()


def test_a_turn_of_nothing_is_a_turn(env: ParallelTextEnv) -> None:
    before, start = env.reset(seed=1)
    after, reward, terminated, truncated, info = env.step(("",) * env.n)
    assert after == before
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert type(reward) is float
    assert type(terminated) is bool
    assert type(truncated) is bool
    assert (info["turn"], info["steps"]) == (1, 0)
    assert info["state_key"] == start["state_key"]


def test_useless_commands_run_into_the_turn_limit(engine: str) -> None:
    env = make(engine, n=2, max_turns=55)
    _, info = env.reset(options={"task_id": SMALL[engine]})
    start = info["score"].max()  # some ScienceWorld tasks give points for where they start
    for turn in range(1, 56):
        _, reward, terminated, truncated, info = env.step(("zzz", ""))
        assert not terminated, "the engines' own limits (50 steps, 100 moves) must not end it"
        assert truncated == (turn == 55)
        assert reward == (start if turn == 1 else 0)
        assert not info["admissible"].any()
        assert info["changed_nothing"][0]
    assert not info["won"].any()
    env.close()


def winning_plan(engine: str) -> tuple[str, ...]:
    """The expert's actions up to the win; ScienceWorld's gold paths go on after it."""
    env = make(engine, n=1, max_turns=100)
    env.reset(options={"task_id": SMALL[engine]})
    plan = env.expert_plan()
    for length, action in enumerate(plan, start=1):
        *_, info = env.step((action,))
        if info["won"].any():
            env.close()
            return plan[:length]
    raise AssertionError(f"{plan} does not win")


def test_a_win_on_the_last_turn_is_a_win(engine: str) -> None:
    plan = winning_plan(engine)
    for limit in (len(plan), len(plan) - 1):
        env = make(engine, n=1, max_turns=limit)
        env.reset(options={"task_id": SMALL[engine]})
        for action in plan[:limit]:
            _, _, terminated, truncated, info = env.step((action,))
        won = limit == len(plan)
        assert (terminated, truncated, info["won"].any()) == (won, not won, won)
        assert info["score"][0] == 1 if won else info["score"][0] < 1
        env.close()


def test_a_win_in_any_replica_ends_the_episode(env: ParallelTextEnv) -> None:
    env.reset(options={"task_id": SMALL[env.task_set.engine]})
    rewards = []
    for action in winning_plan(env.task_set.engine):
        _, reward, terminated, truncated, info = env.step(("", action, ""))
        rewards.append(reward)
    assert (terminated, truncated) == (True, False)
    assert info["won"].tolist() == info["closed"].tolist() == [False, True, False]
    assert sum(rewards) == pytest.approx(1)
    with pytest.raises(ResetNeeded, match="episode is over"):
        env.step(("", "", ""))


def test_all_ended_plays_on_after_a_win_and_pays_it_once(engine: str) -> None:
    env = make(engine, n=2, stop="all_ended", max_turns=100)
    env.reset(options={"task_id": SMALL[engine]})
    plan = winning_plan(engine)
    rewards = [env.step((action, ""))[1] for action in plan]
    _, reward, terminated, *_, info = env.step((plan[0], plan[0]))
    assert not terminated
    assert (reward, info["ignored"].tolist(), info["acted"].tolist()) == (
        0,
        [True, False],
        [False, True],
    )
    for action in plan[1:]:
        _, reward, terminated, truncated, info = env.step(("", action))
        rewards.append(reward)
    assert (terminated, truncated, info["won"].all()) == (True, False, True)
    assert sum(rewards) == pytest.approx(1)
    env.close()


def test_an_unknown_task_is_an_error_with_near_matches(env: ParallelTextEnv) -> None:
    wrong = SMALL[env.task_set.engine] + "0"
    near = env.task_set.tasks[0].id
    with pytest.raises(UnknownTaskError, match="Did you mean"):
        env.reset(options={"task_id": wrong})
    with pytest.raises(UnknownTaskError, match=str(len(env.task_set.tasks))):
        env.reset(options={"task_id": 17})
    with pytest.raises(TypeError, match="options must be a dict"):
        env.reset(options=[near])
    observation, info = env.reset(options={"task_id": near, "unheard_of": 1})
    assert info["task_id"] == near
    assert observation in env.observation_space


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (("look",), "3 strings"),
        (("look",) * 4, "3 strings"),
        ("look", "tuple of 3 strings"),
        (None, "tuple of 3 strings"),
        ({0: "look"}, "tuple of 3 strings"),
        (("look", None, "look"), "replica 1 must be a string"),
        (("look", b"look", "look"), "replica 1 must be a string"),
        (("look", 3, "look"), "replica 1 must be a string"),
        (("look", "look", "\ud800"), "replica 2 is not valid Unicode"),
    ],
)
def test_a_bad_joint_action_is_refused_before_anything_is_sent(
    env: ParallelTextEnv, action: Any, message: str
) -> None:
    _, before = env.reset(options={"task_id": SMALL[env.task_set.engine]})
    with pytest.raises(ActionError, match=message):
        env.step(action)
    _, _, _, _, info = env.step(("", "", ""))
    assert info["state_key"] == before["state_key"]
    assert (info["turn"], info["steps"]) == (1, 0)


@pytest.mark.parametrize(
    "text", ["x" * 100_000, "look\nlook", "take\tit", "\0", "☕🫖", " ", "go to \r\n", "{r}", "\\n"]
)
def test_odd_texts_are_answered_and_harm_nothing(env: ParallelTextEnv, text: str) -> None:
    env.reset(options={"task_id": SMALL[env.task_set.engine]})
    observation, *_, info = env.step((text, "", ""))
    assert isinstance(observation["observations"][0], str)
    assert info["acted"].tolist() == [True, False, False]
    admissible = info["admissible_actions"][1]
    _, _, _, _, info = env.step(("", admissible[0], ""))
    assert info["admissible"].tolist() == [False, True, False]


def test_lists_and_numpy_strings_are_actions_too(env: ParallelTextEnv) -> None:
    env.reset(options={"task_id": SMALL[env.task_set.engine]})
    *_, info = env.step([np.str_("look"), "", ""])
    assert info["acted"].tolist() == [True, False, False]


def test_stepping_without_an_episode_is_an_error(env: ParallelTextEnv) -> None:
    with pytest.raises(ResetNeeded, match="reset"):
        env.step(("", "", ""))
    with pytest.raises(ResetNeeded):
        env.expert_plan()
    env.reset(seed=0)
    env.close()
    env.close()
    with pytest.raises(ResetNeeded, match="closed"):
        env.step(("", "", ""))
    env.reset(seed=0)  # opens it again
    env.step(("", "", ""))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n must be"),
        ({"n": -1}, "n must be"),
        ({"n": 2.5}, "n must be"),
        ({"n": True}, "n must be"),
        ({"max_turns": 0}, "max_turns must be"),
        ({"stop": "never"}, "stop must be"),
        ({"split": "exam"}, "split must be one of"),
        ({"render_mode": "human"}, "render_mode"),
        ({"tasks": ["no such task"]}, "is not among"),
        ({"tasks": []}, "no task"),
    ],
)
def test_bad_arguments_are_refused_when_the_environment_is_made(
    engine: str, arguments: dict[str, Any], message: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # gymnasium's own remark on an unknown render mode
        with pytest.raises((ValueError, gymnasium.error.Error), match=message):
            make(engine, **arguments)


def test_a_sibling_has_the_same_rules_and_refuses_what_an_environment_refuses(engine: str) -> None:
    env = make(engine, n=2, max_turns=7, stop="all_ended")
    other = env.sibling()
    assert (other.n, other.max_turns, other.stop) == (2, 7, "all_ended")
    assert other.task_set.tasks == env.task_set.tasks
    with pytest.raises(ValueError, match="n must be"):
        env.sibling(0)


def test_tasks_restrict_to_ids_and_types(engine: str) -> None:
    everything = make(engine, tasks=None, n=1).task_set.tasks
    kind = everything[-1].type
    env = make(engine, n=1, tasks=[kind, SMALL[engine]])
    wanted = {task.id for task in everything if task.type == kind} | {SMALL[engine]}
    assert {task.id for task in env.task_set.tasks} == wanted
    assert [task.id for task in env.task_set.tasks] == sorted(
        wanted, key=[task.id for task in everything].index
    )


def test_render_shows_the_replicas_side_by_side(engine: str) -> None:
    env = make(engine, n=2, render_mode="ansi")
    with pytest.raises(ResetNeeded):
        env.render()
    observation, _ = env.reset(options={"task_id": SMALL[engine]})
    picture = env.render()
    assert picture.startswith("turn 0/25 | " + observation["task"].split("\n")[0][:20])
    assert "env 1" in picture
    assert "env 2" in picture
    env.close()


TRANSCRIPT = """
import json, sys
from tests.engines import make, SMALL
engine = sys.argv[1]
env = make(engine, n=2)
lines = []
for seed in (7, None, None, 7):
    observation, info = env.reset(seed=seed)
    lines.append([info["task_id"], observation["observations"], info["state_key"]])
    for turn in range(3):
        admissible = info["admissible_actions"]
        actions = tuple(a[(5 * turn + 3 * i) % len(a)] for i, a in enumerate(admissible))
        observation, reward, *_, info = env.step(actions)
        lines.append([actions, observation["observations"], info["state_key"], reward])
env.close()
print(json.dumps(lines))
"""


def test_a_seed_gives_the_same_play_in_every_process(engine: str) -> None:
    def transcript(hash_seed: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", TRANSCRIPT, engine],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )
        return json.loads(done.stdout.splitlines()[-1])

    first, second = transcript("1"), transcript("2")
    assert first == second
    assert first[:4] == first[12:], "reset(seed) starts the series of tasks anew"
    if engine != "toy":
        assert first[0][0] != first[4][0], "reset() goes on to another task"


class _LopsidedGame(ToyGame):
    """Breaks the promise of equal replicas: all but the first start in another room."""

    def start(self) -> tuple[GameState, ...]:
        first, *others = super().start()
        return (first, *(self.step(i, "go east") for i, _ in enumerate(others, start=1)))


class _LopsidedTasks(ToyTasks):
    def open(self, task: Task, n: int) -> ToyGame:
        return _LopsidedGame("attic", "cellar", n)


class _CountingGame(ToyGame):
    """Scores what is not a score."""

    wrong = 2.0

    def step(self, replica: int, action: str) -> GameState:
        return dataclasses.replace(super().step(replica, action), score=self.wrong)


@pytest.mark.parametrize("score", [2.0, -1.0, float("nan")])
def test_a_score_that_is_none_is_an_error_of_the_engine(
    score: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_CountingGame, "wrong", score)
    monkeypatch.setattr(ToyTasks, "open", lambda self, task, n: _CountingGame("attic", "cellar", n))
    env = ParallelTextEnv(ToyTasks(), n=2)
    env.reset(seed=0)
    with pytest.raises(EngineError, match="not a score"):
        env.step(("look", "look"))
    with pytest.raises(ResetNeeded, match="engine failed"):
        env.step(("look", "look"))


def test_replicas_that_start_apart_are_an_error_naming_both() -> None:
    env = ParallelTextEnv(_LopsidedTasks(), n=2)
    with pytest.raises(ReplicaMismatchError, match=r"replicas 0 and 1 .*; observation"):
        env.reset(seed=0)
    with pytest.raises(ResetNeeded):
        env.step(("look", "look"))
    with pytest.raises(ResetNeeded):
        ParallelTextEnv(_LopsidedTasks(), n=2, render_mode="ansi").render()


def test_version_matches_the_metadata() -> None:
    from importlib.metadata import version

    assert parallel_envs.__version__ == version("parallel-text-envs")
