"""Results survive crashes, and nothing half-written is trusted."""

from __future__ import annotations

import json
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import ModelReply, make_agent
from leaderboard.play import play
from leaderboard.protocol import Protocol, choose_tasks, make_env
from leaderboard.result import Result, Texts
from leaderboard.store import RunFolder, StoreError
from parallel_envs.episode import Episode
from tests.test_episode import toy_episodes


def won(task_id: str) -> Result:
    """Return a real won game, under another name."""
    env = make_env("toy", "test", 2, 25)
    (real,) = play([env], make_agent("expert"), env.task_set.tasks[:1], seed=0)
    return replace(real, task_id=task_id, episode=replace(real.episode, task_id=task_id))


RESULT = won("t1")
ERROR = Result.failed("t2", "easy", "EngineError: gone")


@pytest.fixture
def protocol() -> Protocol:
    env = make_env("toy", "test", 2, 25)
    return Protocol.of("random", "toy", env, 0, tuple(env.task_set.tasks))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


@given(toy_episodes(), st.lists(st.text(), max_size=3), st.floats(0, 99))
def test_what_is_written_is_read(episode: Episode, texts: list[str], seconds: float) -> None:
    shown = tuple(turn.actions for turn in episode.turns)
    replies = tuple(ModelReply((text,), ("no_action",), 3, 4) for text in texts)
    result = Result.of(episode, Texts("task", "start", shown), replies, {"total": seconds})
    line = json.dumps(result.to_json())
    assert "\n" not in line
    assert Result.from_json(json.loads(line)) == result


@pytest.mark.parametrize(
    ("name", "value"),
    [("won", False), ("score", 0.5), ("turns", 1), ("steps", 9), ("ended", "lost"), ("schema", 7)],
)
def test_a_line_that_contradicts_its_episode_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        Result.from_json({**json.loads(json.dumps(RESULT.to_json())), name: value})


def test_results_are_kept_and_the_latest_of_a_task_counts(folder: RunFolder, protocol) -> None:
    with folder.opened(protocol) as finished:
        assert finished == set()
        folder.append(ERROR)
        folder.append(RESULT)
        folder.append(won("t2"))
    assert [result.task_id for result in folder.results()] == ["t1", "t2"]
    assert all(result.error is None for result in folder.results())
    assert folder.protocol() == protocol


def test_failed_episodes_are_played_again(folder: RunFolder, protocol) -> None:
    with folder.opened(protocol):
        folder.append(RESULT)
        folder.append(ERROR)
    with folder.opened(protocol) as finished:
        assert list(finished) == ["t1"]


@pytest.mark.parametrize("cut", [1, 20, -1])
def test_a_torn_last_line_is_dropped_and_the_next_one_is_whole(
    folder: RunFolder, protocol, cut: int
) -> None:
    with folder.opened(protocol):
        folder.append(RESULT)
    path = folder.path / "episodes.jsonl"
    whole = path.read_text()
    second = json.dumps(won("t3").to_json())
    path.write_text(whole + second[:cut])
    assert [result.task_id for result in folder.results()] == ["t1"]
    with folder.opened(protocol) as finished:
        assert list(finished) == ["t1"]
        assert path.read_text() == whole
        assert path.with_suffix(".torn").read_text() == second[:cut] + "\n"
        folder.append(won("t3"))
    assert [result.task_id for result in folder.results()] == ["t1", "t3"]


def test_a_damaged_line_in_the_middle_is_named_and_nothing_is_trusted(
    folder: RunFolder, protocol
) -> None:
    with folder.opened(protocol):
        for _ in range(3):
            folder.append(RESULT)
    path = folder.path / "episodes.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:30], lines[2]]) + "\n")
    with pytest.raises(StoreError, match=r"episodes.jsonl line 2 is not a result"):
        folder.results()


def test_another_protocol_is_refused_with_the_difference(folder: RunFolder, protocol) -> None:
    with folder.opened(protocol):
        folder.append(RESULT)
    with (
        pytest.raises(StoreError, match="max_turns: 25 there, 50 now"),
        folder.opened(replace(protocol, max_turns=50)),
    ):
        pass
    assert len(folder.results()) == 1


@pytest.mark.parametrize("text", [None, "", "{", '{"agent": "random"}', '{"new": 1}'])
def test_results_without_a_readable_protocol_are_not_taken_over(
    folder: RunFolder, protocol, text: str | None
) -> None:
    with folder.opened(protocol):
        folder.append(RESULT)
    path = folder.path / "protocol.json"
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    with pytest.raises(StoreError, match=r"protocol.json is not readable"), folder.opened(protocol):
        pass
    assert len(folder.results()) == 1


def test_two_runs_on_one_folder_refuse_each_other(folder: RunFolder, protocol) -> None:
    with (
        folder.opened(protocol),
        pytest.raises(StoreError, match="another run is writing"),
        RunFolder(folder.path).opened(protocol),
    ):
        pass
    with folder.opened(protocol):
        pass


@pytest.mark.parametrize("score", [float("nan"), float("inf")])
def test_a_score_that_is_not_a_number_is_refused_at_entry(score: float) -> None:
    last = replace(RESULT.episode.turns[-1], scores=(score, score))
    with pytest.raises(ValueError, match=r"t1: the score (nan|inf) is not finite"):
        replace(RESULT, episode=replace(RESULT.episode, turns=(last,)))


def test_a_full_disk_keeps_what_is_finished(folder: RunFolder, protocol) -> None:
    """A limit on the size of files makes the system write a part of the line and then fail."""
    with folder.opened(protocol):
        folder.append(RESULT)
    before = folder.episodes.read_bytes()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, hard))
    try:
        with (
            pytest.raises(StoreError, match=r"no room left. What was finished is kept"),
            folder.opened(protocol),
        ):
            folder.append(won("t3"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert folder.episodes.read_bytes() == before
    with folder.opened(protocol) as finished:
        assert finished == {"t1"}
        folder.append(won("t3"))
    assert len(folder.results()) == 2


def test_a_packed_run_reads_the_same_and_is_written_no_more(folder: RunFolder, protocol) -> None:
    with folder.opened(protocol):
        folder.append(RESULT)
        folder.append(ERROR)
    before, mark = folder.results(), folder.fingerprint()
    folder.pack()
    assert (folder.results(), folder.fingerprint()) == (before, mark)
    with pytest.raises(StoreError, match="packed run; gunzip"), folder.opened(protocol):
        pass
    folder.packed.write_bytes(folder.packed.read_bytes()[:-20])
    with pytest.raises(StoreError, match=r"episodes.jsonl.gz line \d is not a result"):
        folder.results()


def test_tasks_are_drawn_without_repeats_in_the_order_of_the_split() -> None:
    tasks = tuple(make_env("scienceworld", "L1", 1, 25).task_set.tasks)
    drawn = choose_tasks(tasks, 300, seed=0)
    assert len(set(drawn)) == 300
    assert [tasks.index(task) for task in drawn] == sorted(tasks.index(task) for task in drawn)
    assert drawn == choose_tasks(tasks, 300, seed=0) != choose_tasks(tasks, 300, seed=1)
    assert choose_tasks(tasks, None, seed=0) == tasks
    for episodes in (0, -1, len(tasks) + 1):
        with pytest.raises(ValueError, match="--episodes"):
            choose_tasks(tasks, episodes, seed=0)
