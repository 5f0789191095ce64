"""Results survive crashes, and nothing half-written is trusted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderboard.protocol import Protocol, choose_tasks, make_env
from leaderboard.store import Result, RunFolder, StoreError

RESULT = Result("t1", "easy", True, 1.0, 1.0, 2, 3, 1, 0.5, "won", (("a", ""), ("ö", "b")))
ERROR = Result("t2", "easy", None, None, None, 0, 0, 0, 0.1, None, (), error="EngineError: gone")


@pytest.fixture
def protocol() -> Protocol:
    env = make_env("toy", "test", 2, 25)
    return Protocol.of("random", "toy", env, 0, tuple(env.task_set.tasks))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


@given(
    st.builds(
        Result,
        task_id=st.text(),
        task_type=st.text(),
        won=st.booleans(),
        score=st.floats(0, 1),
        raw_score=st.floats(-100, 100),
        turns=st.integers(0, 99),
        steps=st.integers(0, 99),
        inadmissible=st.integers(0, 99),
        seconds=st.floats(0, 99),
        ended=st.just("won"),
        actions=st.lists(st.tuples(st.text(), st.text())).map(tuple),
        error=st.none(),
    )
)
def test_what_is_written_is_read(result: Result) -> None:
    line = json.dumps(result.to_json())
    assert "\n" not in line
    assert Result.from_json(json.loads(line)) == result


def test_results_are_kept_and_the_latest_of_a_task_counts(folder: RunFolder, protocol) -> None:
    with folder.opened(protocol) as finished:
        assert finished == {}
        folder.append(ERROR)
        folder.append(RESULT)
        folder.append(replace(RESULT, task_id="t2"))
    assert [result.task_id for result in folder.results()] == ["t2", "t1"]
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
    second = json.dumps(replace(RESULT, task_id="t3").to_json())
    path.write_text(whole + second[:cut])
    assert [result.task_id for result in folder.results()] == ["t1"]
    with folder.opened(protocol) as finished:
        assert list(finished) == ["t1"]
        assert path.read_text() == whole
        assert path.with_suffix(".torn").read_text() == second[:cut] + "\n"
        folder.append(replace(RESULT, task_id="t3"))
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


@pytest.mark.parametrize("score", [float("nan"), float("inf"), None])
def test_a_score_that_is_not_a_number_is_refused_at_entry(score: float | None) -> None:
    with pytest.raises(ValueError, match="t1: score must be a finite number"):
        replace(RESULT, score=score)


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
