"""What ScienceWorld's replicas do where the engine has traps."""

from __future__ import annotations

import pytest

from parallel_envs import EngineError, ParallelTextEnv
from parallel_envs.scienceworld.world import gold_path
from tests.engines import make


@pytest.fixture(scope="module")
def env() -> ParallelTextEnv:
    made = make("scienceworld", n=2, stop="all_ended", split="test", tasks=None, max_turns=200)
    yield made
    made.close()


def test_a_wrong_focus_is_a_loss_and_closes_the_replica(env: ParallelTextEnv) -> None:
    env.reset(options={"task_id": "boil/21"})
    _, reward, terminated, truncated, info = env.step(("focus on agent", ""))
    assert info["raw_score"].tolist() == [-100, 0]
    assert info["score"].tolist() == [0, 0]
    assert info["closed"].tolist() == [True, False]
    assert (reward, terminated, truncated, info["won"].any()) == (0, False, False, False)
    *_, info = env.step(("look around", ""))
    assert info["ignored"].tolist() == [True, False]
    _, _, terminated, truncated, info = env.step(("", "focus on agent"))
    assert (terminated, truncated) == (True, False)
    assert not info["won"].any()


@pytest.mark.parametrize(
    "text", ["reset task", "Reset Task", "  reset\ttask ", "reset the task", "\0the reset a task"]
)
def test_reset_task_is_neither_offered_nor_sent(env: ParallelTextEnv, text: str) -> None:
    _, info = env.reset(options={"task_id": "find-animal/250"})
    assert "reset task" not in info["admissible_actions"][0]
    *_, info = env.step(("open door to kitchen", ""))
    key = info["state_key"][0]
    observation, *_, info = env.step((text, ""))
    assert observation["observations"][0] == "No known action matches that input."
    assert info["state_key"][0] == key
    again, _ = env.reset(options={"task_id": "find-animal/250"})
    env.step((text, ""))
    assert env.reset(options={"task_id": "find-animal/250"})[0] == again


def test_the_engine_really_reads_these_as_reset_task(env: ParallelTextEnv) -> None:
    """Otherwise the guard would be for nothing."""
    env.reset(options={"task_id": "find-animal/250"})
    world = env._game._worlds[0]
    for text in ("reset the task", "\0the reset a task"):
        assert "reset" in world.step(text).text.lower()
    assert "No known action" in world.step("reset the stopwatch").text


def test_a_pending_question_takes_reset_task_for_a_wrong_answer(env: ParallelTextEnv) -> None:
    env.reset(options={"task_id": "find-animal/250"})
    env.step(("open door", ""))
    *_, info = env.step(("reset task", ""))
    assert info["pending"] == (None, None)
    assert info["turn"] == 2


def test_an_ambiguous_request_is_a_pending_question(env: ParallelTextEnv) -> None:
    env.reset(options={"task_id": "find-animal/250"})
    observation, *_, info = env.step(("open door", ""))
    question = observation["observations"][0]
    assert question.startswith("Ambiguous request")
    assert info["pending"] == (question, None)
    choices = info["admissible_actions"][0]
    assert choices[:2] == ("0", "1")
    *_, info = env.step(("", "look around"))
    assert info["pending"] == (question, None), "a question waits while others act"
    observation, *_, info = env.step(("1", ""))
    assert info["pending"] == (None, None)
    assert "open" in observation["observations"][0]
    env.step(("", "open door"))
    *_, info = env.step(("", "no number"))
    assert info["pending"] == (None, None), "anything else cancels the request"


def test_ten_waits_and_a_sub_goal_are_not_a_win() -> None:
    env = make("scienceworld", n=1, split="test", tasks=None, max_turns=60)
    env.reset(options={"task_id": "boil/21"})
    for _ in range(10):
        *_, terminated, truncated, info = env.step(("wait",))
        assert not terminated
    for action in ("open door to kitchen", "go to kitchen", "look around"):
        _, _, terminated, truncated, info = env.step((action,))
    assert not terminated
    assert not truncated
    assert not info["won"].any()
    env.close()


def test_gold_paths_lead_from_the_start_only(env: ParallelTextEnv) -> None:
    env.reset(options={"task_id": "power-component/15"})
    env.step(("look around", ""))
    assert env.expert_plan(0) == ()
    plan = env.expert_plan(1)
    score = 0.0
    for action in plan:
        *_, info = env.step(("", action))
        score = info["raw_score"][1]
        if info["won"][1]:
            break
    assert score == 100


def test_planning_does_not_disturb_a_running_game() -> None:
    transcripts = []
    for planned in (False, True):
        env = make("scienceworld", n=1, split="test", tasks=None)
        _, info = env.reset(options={"task_id": "grow-plant/95"})
        lines = []
        for turn in range(8):
            if planned and turn == 4:
                assert gold_path(env._game._server, "grow-plant", 95)
            actions = info["admissible_actions"][0]
            observation, *_, info = env.step((actions[(31 * turn) % len(actions)],))
            lines.append((observation["observations"], info["state_key"]))
        transcripts.append(lines)
        env.close()
    assert transcripts[0] == transcripts[1]


def test_an_exception_in_the_engine_is_an_error_not_a_score(env: ParallelTextEnv) -> None:
    env.reset(options={"task_id": "boil/21"})
    env._game._worlds[0]._agent.setErrorState("java.lang.NullPointerException")
    with pytest.raises(EngineError, match="NullPointerException"):
        env.step(("look around", ""))
    env.reset(options={"task_id": "boil/21"})
    *_, info = env.step(("look around", ""))
    assert info["raw_score"][0] >= 0


def test_the_state_sees_more_than_the_observation(env: ParallelTextEnv) -> None:
    env.reset(options={"task_id": "find-animal/250"})
    observation, *_, info = env.step(("open door to kitchen", "wait1"))
    observation, *_, info = env.step(("inventory", "inventory"))
    assert observation["observations"][0] == observation["observations"][1]
    assert info["state_key"][0] != info["state_key"][1]
