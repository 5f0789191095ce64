"""ScienceWorld from the expert's demonstrations to an update, with a tiny model on real games."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from agents.prompt import style
from agents.reply import parse_reply
from dpepo import sft
from dpepo.demonstrate import COURSES, app, demonstrate
from dpepo.tiny import tiny_model, tiny_tokenizer
from dpepo.train import Config, Trainer
from parallel_envs import ParallelTextEnv
from parallel_envs.game import find_task
from tests.engines import make

COURSE = COURSES["scienceworld"]
# All of the first one's plan is listed as it is; of the second one's an open door and the full name
# of a flower pot are not.
PLAIN, RESPELLED = "find-non-living-thing/3", "find-plant/3"

Turns = list[dict[str, Any]]


@pytest.fixture(scope="module")
def env() -> Iterator[ParallelTextEnv]:
    torch.set_num_threads(1)
    made = make("scienceworld", n=4, split="train", tasks=[PLAIN, RESPELLED], max_turns=20)
    yield made
    made.close()


@pytest.fixture(scope="module")
def played(env: ParallelTextEnv) -> dict[str, Turns]:
    return {task: play(env, task) for task in (PLAIN, RESPELLED)}


def play(env: ParallelTextEnv, task: str, noise: float = 0.0) -> Turns:
    rng = np.random.default_rng(0)
    found = find_task(env.task_set.tasks, task)
    return demonstrate(env, found, COURSE, style("compact"), noise, rng)


def joint(turn: dict[str, Any]) -> tuple[str, ...]:
    reply = parse_reply(turn["reply"], turn["n"])
    assert reply.issues == ()
    return tuple(reply.actions.get(i, "") for i in range(1, turn["n"] + 1))


def text(turn: dict[str, Any]) -> str:
    (message,) = turn["messages"]
    return str(message["content"])


@pytest.mark.parametrize("task", [PLAIN, RESPELLED])
def test_demonstrations_win_by_admissible_actions(
    env: ParallelTextEnv, played: dict[str, Turns], task: str
) -> None:
    _, info = env.reset(options={"task_id": task})
    for turn in played[task]:
        assert not info["won"].any()
        actions = joint(turn)
        acting = [action for action in actions if action]
        assert len(set(acting)) == len(acting)
        *_, info = env.step(actions)
        assert info["admissible"].tolist() == [action != "" for action in actions]
    assert info["won"].tolist() == [True, False, False, False]


def test_replica_1_follows_the_expert(env: ParallelTextEnv, played: dict[str, Turns]) -> None:
    plans = {}
    for task in played:
        env.reset(options={"task_id": task})
        plans[task] = env.expert_plan()
    followed = {task: tuple(joint(turn)[0] for turn in turns) for task, turns in played.items()}
    assert followed[PLAIN] == plans[PLAIN]
    expected = [
        action.replace("flower pot 3 containing cherry tree and soil in inventory", "flower pot")
        for action in plans[RESPELLED]
        if action != "open door to outside"
    ]
    assert followed[RESPELLED] == tuple(expected)


def test_the_reason_is_what_the_plan_comes_to(played: dict[str, Turns]) -> None:
    reasons = [parse_reply(turn["reply"], 4).reasoning for turn in played[PLAIN]]
    deeds = ["focus on soap", "move soap to orange box"]
    assert reasons[0] == reasons[2] == deeds[0]
    assert reasons[-1] == deeds[1]


def test_the_others_do_not_repeat_themselves(played: dict[str, Turns]) -> None:
    for turns in played.values():
        for replica in (1, 2, 3):
            actions = [action for turn in turns if (action := joint(turn)[replica])]
            assert len(set(actions)) == len(actions) > 0
            assert not any(action.startswith("focus") for action in actions)


def test_noise_leaves_the_plan_alone(env: ParallelTextEnv, played: dict[str, Turns]) -> None:
    noisy = play(env, PLAIN, noise=1.0)
    assert [joint(turn)[0] for turn in noisy] == [joint(turn)[0] for turn in played[PLAIN]]
    shown = [text(turn).splitlines()[2] for turn in noisy[1:]]
    assert not any(
        f" {joint(turn)[1]} : " in line for turn, line in zip(noisy[:-1], shown, strict=True)
    )


def test_no_demonstration_without_a_win_in_time(env: ParallelTextEnv) -> None:
    short = ParallelTextEnv(env.task_set.share(), 2, max_turns=4)
    assert play(short, PLAIN) == []
    short.close()


def test_prompts_are_short(played: dict[str, Turns]) -> None:
    turns = [turn for each in played.values() for turn in each]
    tokenizer = tiny_tokenizer(part for turn in turns for part in (text(turn), turn["reply"]))
    assert max(len(text(turn).split()) for turn in turns) <= 400
    context = tiny_model(tokenizer, layers=1, width=32).config.max_position_embeddings
    assert max(len(example.tokens) for example in sft.examples(turns, tokenizer)) <= context
    first, second = (text(turn).splitlines() for turn in played[PLAIN][:2])
    assert first[0].startswith("task: your task is to find a n non-living thing first focus on")
    assert first[1].startswith("<env_1> start : this outside location is called the outside ")
    assert second[1].endswith(f" , {joint(played[PLAIN][0])[0]} : the door is now open")


def test_from_demonstrations_to_an_update(played: dict[str, Turns], tmp_path: Path) -> None:
    lines = [json.dumps(turn) + "\n" for turns in played.values() for turn in turns]
    (tmp_path / "turns.jsonl").write_text("".join(lines))
    options = ["--epochs", "8", "--layers", "1", "--width", "32", "--batch", "8"]
    arguments = [str(tmp_path / "turns.jsonl"), "--out", str(tmp_path / "sft"), *options]
    done = CliRunner().invoke(sft.app, arguments)
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in (tmp_path / "sft/metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["reply_loss"] < rows[0]["reply_loss"]

    config = Config(
        env="scienceworld",
        split="train",
        model=str(tmp_path / "sft"),
        n=4,
        max_turns=2,
        tasks=1,
        group=2,
        batch=2,
        precision="float32",
    )
    trainer = Trainer(config, tmp_path)
    rollouts = trainer.play()
    for p in rollouts:
        assert all(turn.acted == turn.admissible for turn in p.episode.turns)
    # As if one attempt had won, so that there is something to learn.
    won = replace(rollouts[0].turns[-1], reward=1.0)
    learned = trainer.learn(
        [replace(rollouts[0], turns=(*rollouts[0].turns[:-1], won)), rollouts[1]]
    )
    trainer.close()
    assert learned["taught"] > 0
    assert np.isfinite([learned["kl"], learned["grad_norm"]]).all()


def test_the_command_knows_its_environments(tmp_path: Path) -> None:
    out = tmp_path / "turns.jsonl"
    options = "--env scienceworld --split L1 --games 1 --n 2 --max-turns 1".split()
    done = CliRunner().invoke(app, [str(out), *options])
    assert done.exit_code == 0, done.output
    wrong = CliRunner().invoke(app, [str(out), "--env", "scienceword"])
    assert wrong.exit_code == 2
    assert "scienceworld" in wrong.output
