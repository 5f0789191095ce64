"""Generated games: verified, stable, like the official ones, and loadable by stock alfworld."""

from __future__ import annotations

import hashlib
import json
import random
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from parallel_envs import EngineError
from parallel_envs.alfworld import generated
from parallel_envs.alfworld.generate import main, write_game
from parallel_envs.alfworld.generated import SIZES, GeneratedTasks, verified_game
from parallel_envs.alfworld.generator import ROOMS, TASK_TYPES, build, task_type
from parallel_envs.alfworld.tasks import OFFICIAL_COUNTS
from tests.alfworld.stock import StockGame, difference
from tests.engines import make


def test_the_splits_have_no_game_in_common() -> None:
    train, test = GeneratedTasks("generated"), GeneratedTasks("generated:test")
    assert train.split == "generated:train"
    assert (len(train.tasks), len(test.tasks)) == (SIZES["train"], SIZES["test"])
    assert not {task.id for task in train.tasks} & {task.id for task in test.tasks}
    assert build("train", 5).problem != build("test", 5).problem


def test_task_types_are_as_frequent_as_in_the_official_train_split() -> None:
    counts = Counter(task.type for task in GeneratedTasks("generated:train").tasks)
    total = sum(OFFICIAL_COUNTS["train"].values())
    for kind, official in OFFICIAL_COUNTS["train"].items():
        assert sum(TASK_TYPES[kind].values()) == official
        assert counts[kind] / SIZES["train"] == pytest.approx(official / total, abs=0.01)


def test_the_unseen_rooms_stay_unseen() -> None:
    rooms = {number for numbers in ROOMS.values() for number in numbers}
    assert len(rooms) == 116
    assert not rooms & {10, 219, 308, 424}


def test_games_are_the_same_for_ever() -> None:
    """Change this hash only together with VERSION."""
    digest = hashlib.sha256()
    for number in range(50):
        data = build("train", number)
        text = None if data is None else data.problem + data.grammar + json.dumps(data.trajectory)
        digest.update(repr((task_type("train", number), text)).encode())
    assert digest.hexdigest()[:16] == "b8fa5f218b0ec37f"


@pytest.mark.parametrize("kind", sorted(TASK_TYPES))
def test_every_type_is_built_and_played_to_a_win(kind: str) -> None:
    tasks = GeneratedTasks("generated:test", [kind])
    for task in tasks.tasks[:3]:
        game = tasks.open(task, 2)
        state, _ = game.start()
        assert not state.won
        assert game.objective.startswith("Your task is to: ")
        for command in game.expert_plan(0, "planner"):
            assert command in state.admissible_actions
            state = game.step(0, command)
        assert state.won
        game.close()


def test_the_hand_coded_expert_plays_generated_games() -> None:
    tasks = GeneratedTasks("generated:test", ["pick_and_place_simple"])
    won = 0
    for task in tasks.tasks[:6]:
        game = tasks.open(task, 1)
        game.start()
        won += bool(game.expert_plan(0, "handcoded"))
        game.close()
    assert won >= 4


def test_they_look_like_the_official_games() -> None:
    """Medians of the official train split: plans 4 to 8, kitchens 25 receptacles, 28 commands."""
    plans, commands, receptacles = [], [], []
    for number in range(40):
        data, plan = verified_game("test", number)
        plans.append(len(plan))
        if data.trajectory["scene"]["scene_num"] <= 30:
            receptacles.append(data.problem.count(" - receptacle"))
        env = make("alfworld", n=1, split="generated:test")
        _, info = env.reset(options={"task_id": f"generated-v1/test/{number:05}"})
        commands.append(len(info["admissible_actions"][0]))
        env.close()
    assert 5 <= statistics.mean(plans) <= 7
    assert 3 <= min(plans) <= max(plans) <= 11
    assert 20 <= statistics.median(receptacles) <= 40
    assert 15 <= statistics.median(commands) <= 40


def test_a_game_that_cannot_be_won_is_never_played(monkeypatch: pytest.MonkeyPatch) -> None:
    verified_game.cache_clear()
    real = build
    spoilt = []

    def unwinnable(split: str, number: int, attempt: int) -> object:
        data = real(split, number, attempt)
        if data is None or attempt >= 2:
            return data
        spoilt.append(attempt)
        lines = [x for x in data.problem.split("\n") if "(inReceptacle" not in x or "?" in x]
        return type(data)(data.domain, "\n".join(lines), data.grammar, data.trajectory)

    monkeypatch.setattr(generated, "build", unwinnable)
    _, plan = verified_game("test", 1)
    assert plan
    assert spoilt == [0, 1]
    monkeypatch.setattr(generated, "build", lambda *_: None)
    verified_game.cache_clear()
    with pytest.raises(EngineError, match="no playable game number 1"):
        verified_game("test", 1)
    verified_game.cache_clear()


def test_without_official_games_generated_ones_are_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert make("alfworld", n=1, split=None).task_set.split == "train"
    monkeypatch.delenv("ALFWORLD_DATA")
    monkeypatch.setenv("HOME", str(tmp_path))
    env = make("alfworld", n=1, split=None)
    assert env.task_set.split == "generated:train"
    _, info = env.reset(seed=0)
    assert info["split"] == "generated:train"
    assert info["task_id"].startswith("generated-v1/train/")
    assert env.task_set.versions["generated-games"] == "1"
    env.close()
    from leaderboard.protocol import make_env

    assert make_env("alfworld", None, 1, 25).task_set.split == "generated:test"


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_written_games_are_played_by_the_stock_engine(tmp_path: Path) -> None:
    tasks = GeneratedTasks("generated:test")
    for number in range(2):
        folder = write_game("test", number, tmp_path)
        stock = StockGame(folder / "game.tw-pddl")
        game = tasks.open(tasks.tasks[number], 1)
        (state,) = game.start()
        rng = random.Random(number)
        plan = list(game.expert_plan(0, "planner"))
        assert plan == json.loads((folder / "game.tw-pddl").read_text())["walkthrough"]
        for _ in range(25):
            assert difference(state, game.facts(game.replicas[0]), stock) is None
            command = plan.pop(0) if rng.random() < 0.4 and plan else None
            command = command or rng.choice(state.admissible_actions)
            state = game.step(0, command)
            stock.step(command)
        game.close()
        stock.close()


def test_stock_alfworld_finds_the_written_games(tmp_path: Path) -> None:
    main(["--count", "3", "--first", "4", "--split", "train", "--out", str(tmp_path)])
    code = (
        "import sys, yaml\n"
        "from alfworld.agents.environment import get_environment\n"
        "config = {'env': {'goal_desc_human_anns_prob': 0, 'task_types': [1, 2, 3, 4, 5, 6]},"
        " 'dataset': {'data_path': sys.argv[1], 'num_train_games': 0}}\n"
        "print(get_environment('AlfredTWEnv')(config, train_eval='train').num_games)"
    ).replace("import sys, yaml", "import sys")
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "json_2.1.1" / "train")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "3"


@pytest.mark.parametrize("arguments", [["--count", "0"], ["--first", "-1"], ["--split", "x"]])
def test_wrong_options_are_explained(arguments: list[str], tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit):
        main([*arguments, "--out", str(tmp_path)])
    assert "error" in capsys.readouterr().err


@pytest.mark.parametrize("split", ["generated:valid", "generatedtrain", "generated:"])
def test_unknown_splits_are_refused(split: str) -> None:
    with pytest.raises(ValueError, match="generated:train or generated:test"):
        GeneratedTasks(split)
