"""What a run writes about itself."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dpepo.curves import Curves, alarms

GOOD = {"won": 0.5, "acting": 1.0, "kl": 0.1, "entropy": 0.5}


def lines(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_rows_are_written_at_once_and_to_tensorboard(tmp_path: Path) -> None:
    curves = Curves(tmp_path)
    for update in (1, 2):
        curves.add({"update": update, "won": update / 4})
        assert lines(tmp_path) == curves.rows
    curves.close()
    board = EventAccumulator(str(tmp_path))
    board.Reload()
    assert [(event.step, event.value) for event in board.Scalars("won")] == [(1, 0.25), (2, 0.5)]


def test_a_run_that_goes_on_replaces_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    first = Curves(tmp_path)
    for update in (1, 2, 3):
        first.add({"update": update, "won": 0.0})
    first.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"update": 4, "wo')  # a crash cut it
    second = Curves(tmp_path, done=2)
    second.add({"update": 3, "won": 1.0})
    second.close()
    assert [(row["update"], row["won"]) for row in lines(tmp_path)] == [(1, 0), (2, 0), (3, 1)]


def test_a_healthy_run_raises_no_alarm() -> None:
    assert alarms([GOOD] * 9) == []


def test_every_kind_of_collapse_is_named() -> None:
    cases = [
        ("KL 2.00", [GOOD, {**GOOD, "kl": 2.0}]),
        ("entropy 0.010, once 0.500", [GOOD, {**GOOD, "entropy": 0.01}]),
        ("only 10%", [GOOD, {**GOOD, "acting": 0.1}]),
        ("nothing to learn", [{"won": 1.0, "acting": 1.0}] * 5),
    ]
    for words, rows in cases:
        found = alarms(rows)
        assert len(found) == 1
        assert all(word in found[0] for word in words.split() if word != "nothing")


@given(st.lists(st.floats(0.06, 0.5), min_size=1, max_size=8))
def test_entropy_may_fall_to_a_tenth(spreads: list[float]) -> None:
    assert alarms([{**GOOD, "entropy": spread} for spread in spreads]) == []
