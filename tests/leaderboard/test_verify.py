"""Verification: what replays is verified, what was touched is found and named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from leaderboard import run, verify
from leaderboard.store import RunFolder
from leaderboard.verify import read_verdict

TOY = ("--env", "toy", "--split", "train", "--n", "2", "--max-turns", "6")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    out = tmp_path_factory.mktemp("results")
    made = CliRunner().invoke(run.app, ["--agent", "random", *TOY, "--out", str(out)])
    assert made.exit_code == 0, made.output
    return RunFolder(next(out.iterdir()))


@pytest.fixture
def copy(played: RunFolder, tmp_path: Path) -> RunFolder:
    return copied(played, tmp_path / "run")


def copied(played: RunFolder, path: Path) -> RunFolder:
    path.mkdir(exist_ok=True)
    for name in ("protocol.json", "episodes.jsonl"):
        (path / name).write_bytes((played.path / name).read_bytes())
    return RunFolder(path)


def command(folder: RunFolder, *options: str, code: int = 0) -> str:
    result = CliRunner().invoke(verify.app, [str(folder.path), *options])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def lines(folder: RunFolder) -> list[dict[str, Any]]:
    return [json.loads(line) for line in folder.episodes.read_text().splitlines()]


def write(folder: RunFolder, rows: list[dict[str, Any]]) -> None:
    folder.episodes.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_an_untouched_run_is_verified_and_stays_so_when_packed(copy: RunFolder) -> None:
    assert read_verdict(copy) == "unverified"
    assert "9 9 9 verified" in command(copy)
    assert read_verdict(copy) == "verified"
    copy.pack()
    assert read_verdict(copy) == "verified"
    assert "9 9 9 verified" in command(copy)


def test_a_sample_is_not_a_verification(copy: RunFolder) -> None:
    assert "9 9 4 sampled" in command(copy, "--sample", "4")
    assert read_verdict(copy) == "sampled"


def test_missing_and_failed_tasks_are_incomplete(copy: RunFolder) -> None:
    rows = lines(copy)
    write(copy, rows[:-1])
    assert "9 8 8 incomplete" in command(copy)
    failed = {"won", "score", "raw_score", "ended", "turns", "steps", "episode", "texts"}
    error = {**rows[-1], **dict.fromkeys(failed), "error": "EngineError: gone", "diversity": {}}
    write(copy, [*rows[:-1], error])
    assert "9 8 8 incomplete" in command(copy)


def test_a_verdict_does_not_outlive_a_change(copy: RunFolder) -> None:
    command(copy)
    rows = lines(copy)
    rows[0]["seconds"]["total"] = 0.0
    write(copy, rows)
    assert read_verdict(copy) == "unverified"


def _win(row: dict[str, Any]) -> None:
    """Turn a lost episode into a won one, consistently within the line."""
    last = row["episode"]["turns"][-1]
    last.update(won=[True, False], scores=[1.0, 0.0], raw_scores=[1.0, 0.0], reward=1.0)
    row["episode"].update(terminated=True, truncated=False)
    row.update(won=True, score=1.0, raw_score=1.0, ended="won")


@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (lambda row: row.update(won=not row["won"]), "claims won"),
        (lambda row: row.update(steps=1), "claims steps = 1"),
        (_win, "in the record and"),
        (lambda row: row["diversity"].update(depth_repeat=0.0), "depth_repeat is"),
        (lambda row: row["texts"].update(start="Nowhere."), "the text of the start"),
        (lambda row: row["texts"]["turns"].pop(), "turns of texts"),
        (lambda row: row["episode"].update(split="test"), "its split is 'test'"),
        (lambda row: row["episode"].update(n=3), "its n is 3"),
        (lambda row: row.update(task_id="coin-x/trap-y"), "is not among the tasks"),
        (lambda row: row["replies"].append({"texts": ["hi"], "issues": []}), "claims tokens_in"),
        (lambda row: row["texts"].update(task="Win."), "the sentence of the task"),
        (lambda row: row.pop("episode"), "line 3 is not a result"),
        (lambda row: row.update(schema=0), "expected a result of schema"),
    ],
)
def test_a_forged_line_is_found_and_named(copy: RunFolder, forge: Any, message: str) -> None:
    rows = lines(copy)
    victim = next(i for i, row in enumerate(rows) if not row["won"] and row["ended"] != "lost")
    rows.insert(2, rows.pop(victim))
    forge(rows[2])
    write(copy, rows)
    output = command(copy, code=1)
    assert message in output
    assert "refuted" in output
    assert read_verdict(copy) in ("refuted", "unverified")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks_hash": "0" * 16}, "tasks_hash is not the hash of task_ids"),
        ({"n": 3}, "its n is 2, not 3"),
        ({"max_turns": 5}, "its max_turns is 6, not 5"),
        ({"env": "chess"}, "--env must be one of"),
    ],
)
def test_a_forged_protocol_is_found(copy: RunFolder, change: dict[str, Any], message: str) -> None:
    path = copy.path / "protocol.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert message in command(copy, code=1)


@given(st.data())
def test_a_file_cut_anywhere_is_never_verified(
    played: RunFolder, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = copied(played, tmp_path_factory.getbasetemp() / "cut")
    content = folder.episodes.read_bytes()
    folder.episodes.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    verdict = verify.verify(folder, sample=1)
    assert verdict.status in ("refuted", "incomplete")
    if folder.is_torn():
        assert "cut off" in verdict.problems[0]


@given(st.data())
def test_a_changed_byte_never_passes_for_the_original(
    played: RunFolder, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Either it is found out, or it changed what a replay cannot know: times and replies."""
    folder = copied(played, tmp_path_factory.getbasetemp() / "changed")
    content = bytearray(folder.episodes.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] = data.draw(st.integers(32, 126).filter(lambda byte: byte != content[place]))
    before = {result.task_id: result for result in folder.latest()}
    folder.episodes.write_bytes(bytes(content))
    if verify.verify(folder).status == "verified":
        for result in folder.latest():
            original = before[result.task_id]
            assert result.claims() == original.claims()
            assert result.episode == original.episode


def test_nothing_to_verify_is_said(tmp_path: Path) -> None:
    assert "holds no results" in command(RunFolder(tmp_path), code=1)
