"""The official splits are found, counted and never written to."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from pathlib import Path

import pytest

from parallel_envs import DataError, EngineError
from parallel_envs.alfworld import tasks as tasks_module
from parallel_envs.alfworld.tasks import OFFICIAL_COUNTS, AlfworldTasks, data_folder
from tests.engines import SMALL, make

SOURCE = data_folder()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A data folder with the valid_seen split alone."""
    shutil.copytree(SOURCE / "json_2.1.1" / "valid_seen", tmp_path / "json_2.1.1" / "valid_seen")
    return tmp_path


@pytest.mark.parametrize(("split", "count"), [("valid_seen", 140), ("valid_unseen", 134)])
def test_official_counts(split: str, count: int) -> None:
    tasks = AlfworldTasks(split).tasks
    assert len(tasks) == len({task.id for task in tasks}) == count
    assert [task.id for task in tasks] == sorted(task.id for task in tasks)
    assert all(task.id.startswith(f"{split}/{task.type}-") for task in tasks)


def test_counts_add_up() -> None:
    assert {split: sum(kinds.values()) for split, kinds in OFFICIAL_COUNTS.items()} == {
        "train": 3553,
        "valid_seen": 140,
        "valid_unseen": 134,
    }


def test_the_train_split() -> None:
    if not (SOURCE / "json_2.1.1" / "train").is_dir():
        pytest.skip("only the evaluation splits are unpacked")
    assert len(AlfworldTasks("train").tasks) == 3553


def test_the_order_of_the_file_system_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = AlfworldTasks("valid_unseen").tasks
    real = Path.glob
    monkeypatch.setattr(Path, "glob", lambda self, pattern: reversed(list(real(self, pattern))))
    assert AlfworldTasks("valid_unseen").tasks == expected


def test_a_missing_game_is_named_by_type_with_the_way_to_get_it(copy: Path) -> None:
    victim = next((copy / "json_2.1.1/valid_seen").glob("look_at_obj_in_light*/*"))
    shutil.rmtree(victim)
    with pytest.raises(DataError) as caught:
        AlfworldTasks("valid_seen", folder=copy)
    message = str(caught.value)
    assert "139 games" in message
    assert "140" in message
    assert "look_at_obj_in_light: 12 of 13" in message
    assert "alfworld-download" in message
    assert str(copy) in message


def test_games_that_are_not_in_the_official_set_are_left_out_or_refused(copy: Path) -> None:
    seen = copy / "json_2.1.1/valid_seen"
    model = next(seen.glob("pick_two*/*"))
    for name in ("pick_two_obj_and_place-Mug-movable_x-Desk-1", "pick_and_place_Sliced-A-B-2"):
        shutil.copytree(model, seen / name / model.name)
    unsolvable = seen / "pick_two_obj_and_place-Mug-None-Desk-9" / model.name
    shutil.copytree(model, unsolvable)
    game = unsolvable / "game.tw-pddl"
    data = json.loads(game.read_text())
    game.write_text(json.dumps({**data, "solvable": False}))
    assert len(AlfworldTasks("valid_seen", folder=copy).tasks) == 140
    game.write_text(json.dumps(data))
    with pytest.raises(DataError, match="pick_two_obj_and_place: 25 of 24"):
        AlfworldTasks("valid_seen", folder=copy)


def test_the_flag_is_found_in_front_of_a_long_walkthrough(copy: Path) -> None:
    game = next((copy / "json_2.1.1/valid_seen").glob("*/*/game.tw-pddl"))
    data = json.loads(game.read_text())
    game.write_text(json.dumps({**data, "walkthrough": ["go to a very long place 1"] * 1000}))
    assert len(AlfworldTasks("valid_seen", folder=copy).tasks) == 140


def test_a_half_written_game_counts_as_missing(copy: Path) -> None:
    game = next((copy / "json_2.1.1/valid_seen").glob("pick_heat*/*/game.tw-pddl"))
    game.write_text(game.read_text()[:10_000])
    with pytest.raises(DataError, match="pick_heat_then_place_in_recep: 15 of 16"):
        AlfworldTasks("valid_seen", folder=copy)


def test_a_game_that_is_spoilt_later_is_an_error_of_the_engine(copy: Path) -> None:
    tasks = AlfworldTasks("valid_seen", folder=copy)
    path = tasks.path(tasks.tasks[0])
    path.write_text("{}")
    with pytest.raises(EngineError, match=re.escape(str(path))):
        tasks.open(tasks.tasks[0], 1)
    path.unlink()
    with pytest.raises(DataError, match=re.escape(str(path))):
        tasks.open(tasks.tasks[0], 1)


@pytest.mark.parametrize(
    "damage",
    [
        ("pddl_problem", lambda text: text.replace("(inReceptacle ?o", "(inNothing ?o")),
        ("pddl_problem", lambda text: text[: len(text) // 2]),
        ("pddl_domain", lambda text: text[: len(text) // 2]),
        ("grammar", lambda text: text.replace("::", ":", 3)),
    ],
    ids=["unknown predicate", "cut problem", "cut domain", "bad grammar"],
)
def test_a_game_that_cannot_be_read_is_an_error_and_nothing_worse(copy: Path, damage) -> None:
    """The PDDL translator ends the whole program on some of these."""
    tasks = AlfworldTasks("valid_seen", ["pick_clean_then_place_in_recep"], folder=copy)
    path = tasks.path(tasks.tasks[0])
    data = json.loads(path.read_text())
    field, spoil = damage
    assert spoil(data[field]) != data[field]
    path.write_text(json.dumps({**data, field: spoil(data[field])}))
    with pytest.raises(EngineError, match=re.escape(str(path))):
        tasks.open(tasks.tasks[0], 1)
    tasks.open(tasks.tasks[1], 1).close()


def test_a_wrong_folder_is_named_and_not_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = tmp_path / "nowhere"
    monkeypatch.setenv("ALFWORLD_DATA", str(nowhere))
    with pytest.raises(DataError, match=re.escape(str(nowhere))) as caught:
        make("alfworld", n=1)
    assert "alfworld-download" in str(caught.value)
    assert not nowhere.exists()


def test_without_the_variable_alfworlds_own_folder_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALFWORLD_DATA")
    assert data_folder() == Path.home() / ".cache" / "alfworld"
    monkeypatch.setenv("ALFWORLD_DATA", "~/games")
    assert data_folder() == Path.home() / "games"


def test_playing_neither_writes_to_the_data_nor_changes_the_variable(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALFWORLD_DATA", str(copy))
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in copy.rglob("*")}
    for path in copy.rglob("*"):
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    env = make("alfworld", n=2, split="valid_seen")
    env.reset(seed=0)
    for action in env.expert_plan():
        env.step((action, "look"))
    env.reset(seed=0)
    env.expert_plan(0, "handcoded")
    env.close()
    assert os.environ["ALFWORLD_DATA"] == str(copy)
    assert before == {
        path: (path.stat().st_mtime_ns, path.stat().st_size) for path in copy.rglob("*")
    }


def test_versions_name_all_that_decides_what_a_game_says() -> None:
    tasks = AlfworldTasks("valid_unseen", [SMALL["alfworld"]])
    assert tasks.versions == {
        "alfworld": "0.4.2",
        "textworld": "1.7.0",
        "fast-downward-textworld": "20.6.4",
    }


def test_a_missing_engine_is_one_sentence_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from parallel_envs import DependencyError

    tasks = AlfworldTasks("valid_unseen")
    monkeypatch.setitem(sys.modules, "parallel_envs.alfworld.blueprint", None)
    with pytest.raises(DependencyError, match=re.escape("parallel-text-envs[alfworld]")):
        tasks.open(tasks.tasks[0], 1)
    assert tasks_module.SPLITS == ("train", "valid_seen", "valid_unseen")
