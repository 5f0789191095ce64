"""Agents with a model: what they ask, what they play, what they note; with a scripted model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agents import ModelOptions, make_agent
from agents.chat import Decoding, Generation, ModelError
from agents.chat.model import Message
from agents.chat.scripted import ScriptedModel
from leaderboard.play import play
from leaderboard.result import Result
from parallel_envs import ParallelTextEnv
from parallel_envs.toy import ToyTasks

TASKS = ToyTasks("train").tasks


def run(
    agent: str,
    answer: Callable[[Sequence[Message]], Any],
    n: int,
    *,
    tasks: int = 1,
    batch: int = 1,
    max_turns: int = 3,
    **options: Any,
) -> tuple[list[Result], ScriptedModel]:
    model = ScriptedModel(answer)
    made = make_agent(agent, ModelOptions(model, **options), n)
    envs = [ParallelTextEnv(ToyTasks("train"), n, max_turns=max_turns) for _ in range(batch)]
    return list(play(envs, made, TASKS[:tasks], seed=0)), model


def test_parallel_plays_what_is_written_and_leaves_the_rest_alone() -> None:
    text = "<think>Hm.</think><parallel><env_2>go east</env_2><env_3>fly</env_3></parallel>"
    (result,), model = run("parallel", lambda messages: text, 3)
    assert [turn.actions for turn in result.episode.turns] == [("", "go east", "fly")] * 3
    assert result.episode.turns[0].admissible == (False, True, False)
    assert result.replies[0].texts == (text,)
    assert result.replies[0].issues == ("not_admissible",)
    assert (result.tokens_out, len(model.asked)) == (3 * len(text.split()), 3)
    assert result.tokens_in == sum(model.count(request.messages) for request in model.asked)


def test_what_cannot_be_read_plays_nothing_and_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    results, _ = run("parallel", lambda messages: "I would go east.", 2, tasks=9)
    for result in results:
        assert result.episode.steps == 0
        assert [reply.issues for reply in result.replies] == [("no_action",)] * 3
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "NONE of the first 20 replies" in record.getMessage()


def test_a_reply_that_was_cut_off_is_told_apart() -> None:
    cut = Generation("<parallel><env_1>go east</env_1><env_2>go w", "length", 5, 5)
    (result,), _ = run("parallel", lambda messages: cut, 2)
    assert result.replies[0].truncated
    assert result.replies[0].issues == ("truncated",)
    assert result.episode.turns[0].actions == ("go east", "")


def test_react_sees_its_last_steps_and_plays_one_replica() -> None:
    said = iter(["go east", "look", "go west"])
    (result,), model = run("react", lambda messages: f"<action>{next(said)}</action>", 1)
    assert [turn.actions for turn in result.episode.turns] == [
        ("go east",),
        ("look",),
        ("go west",),
    ]
    last = model.asked[-1].messages[1]["content"]
    assert "You did: go east" in last
    assert "You did: look" in last
    assert "turn 3 of 3" in last
    with pytest.raises(ValueError, match="plays one replica, not 4"):
        make_agent("react", ModelOptions(model), 4)
    with pytest.raises(ValueError, match="needs a model, for example --model smollm2"):
        make_agent("react")


def test_best_of_asks_for_each_replica_and_shows_each_only_itself() -> None:
    moves = {0: "go east", 1: "go west"}
    asked = iter(range(100))
    (result,), model = run("best-of", lambda m: f"<action>{moves[next(asked) % 2]}</action>", 2)
    assert {turn.actions for turn in result.episode.turns} == {("go east", "go west")}
    assert len(model.asked) == 6
    for number, request in enumerate(model.asked):
        other = moves[1 - number % 2]
        assert f"You did: {other}" not in request.messages[1]["content"]
    assert len(result.replies) == 3
    assert result.replies[0].texts == ("<action>go east</action>", "<action>go west</action>")
    seeds = {request.seed for request in model.asked}
    assert len(seeds) == 6, "attempts that share a seed are one attempt"


def test_best_of_does_not_ask_for_replicas_that_have_ended() -> None:
    env = ParallelTextEnv(ToyTasks("train"), 2, max_turns=6, stop="all_ended")
    plan = {"coin-attic/trap-cellar": ["go west", "enter trap door"]}
    asked: list[int] = []

    def answer(messages: Sequence[Message]) -> str:
        turn = messages[1]["content"].count("You did")
        first = len(asked) % 2 == 0 and turn < 2
        asked.append(turn)
        moves = plan["coin-attic/trap-cellar"] if first else ["look"] * 6
        return f"<action>{moves[min(turn, len(moves) - 1)]}</action>"

    made = make_agent("best-of", ModelOptions(ScriptedModel(answer)), 2)
    task = next(task for task in TASKS if task.id in plan)
    (result,) = play([env], made, [task], seed=0)
    assert result.episode.turns[1].closed == (True, False)
    assert [len([t for t in reply.texts if t]) for reply in result.replies] == [2, 2, 1, 1, 1, 1]
    assert [turn.actions[0] for turn in result.episode.turns[2:]] == [""] * 4


def test_each_episode_is_asked_about_its_own_task_and_starts_afresh() -> None:
    """C03 and C13: a batch of tasks in few environments, one after another in each."""
    text = "<parallel><env_1>go east</env_1></parallel>"
    results, model = run("parallel", lambda messages: text, 2, tasks=9, batch=4)
    assert len(results) == 9
    firsts = [r for r in model.asked if "last action" not in r.messages[1]["content"]]
    assert len(firsts) == 9
    for request in firsts:
        assert "go east\n" not in request.messages[1]["content"].split("Admissible")[0]


def test_a_model_that_fails_ends_its_episode_only() -> None:
    asked = iter(range(100))

    def answer(messages: Sequence[Message]) -> str | ModelError:
        return ModelError("gone") if next(asked) == 1 else "<action>look</action>"

    results, _ = run("react", answer, 1, tasks=4, batch=4)
    assert sorted(result.error or "" for result in results) == ["", "", "", "gone"]


def test_a_model_that_raises_is_an_error_in_every_row() -> None:
    def answer(messages: Sequence[Message]) -> str:
        raise RuntimeError("out of memory")

    results, _ = run("react", answer, 1, tasks=4, batch=2)
    assert [result.error for result in results] == ["RuntimeError: out of memory"] * 4


@pytest.mark.parametrize("agent", ["parallel", "best-of"])
def test_what_is_played_does_not_depend_on_the_batch(agent: str) -> None:
    def answer(messages: Sequence[Message]) -> str:
        actions = messages[1]["content"].partition("Admissible")[2].splitlines()[1][2:].split("; ")
        action = actions[len(messages[1]["content"]) % len(actions)]
        entries = "".join(f"<env_{i}>{action}</env_{i}>" for i in (1, 2))
        return f"<action>{action}</action>" if agent == "best-of" else entries

    alone, _ = run(agent, answer, 2, tasks=9, batch=1, max_turns=6)
    beside, _ = run(agent, answer, 2, tasks=9, batch=5, max_turns=6)
    episodes = {result.task_id: result.episode for result in alone}
    assert {result.task_id: result.episode for result in beside} == episodes


def test_the_protocol_says_how_replies_were_drawn() -> None:
    decoding = Decoding(temperature=0.4, max_tokens=50, mode="admissible", think=9)
    options = ModelOptions(ScriptedModel(lambda messages: ""), decoding=decoding, budget=900)
    settings = make_agent("parallel", options, 2).settings
    assert settings["decoding"] == {
        "temperature": 0.4,
        "top_p": 1.0,
        "max_tokens": 50,
        "mode": "admissible",
        "think": 9,
    }
    assert (settings["prompt"], settings["budget"], settings["model"]) == ("paper", 900, "scripted")
    with pytest.raises(ValueError, match="no prompt style"):
        make_agent("parallel", ModelOptions(ScriptedModel(lambda m: ""), style="papr"), 2)
