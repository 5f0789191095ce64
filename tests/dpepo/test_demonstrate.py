"""The command that writes demonstrations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpepo.demonstrate import app


def test_a_command_writes_the_turns_of_both_numbers_of_replicas(tmp_path: Path) -> None:
    out = tmp_path / "turns.jsonl"
    options = "--split valid_seen --games 1 --n 1 --n 2".split()
    done = CliRunner().invoke(app, [str(out), *options])
    assert done.exit_code == 0, done.output
    turns = [json.loads(line) for line in out.read_text().splitlines()]
    assert f"{len(turns)} turns" in done.output
    assert {"<env_2>" in turn["reply"] for turn in turns} == {False, True}
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--env", "chess"), "no environment is called 'chess'"),
        (("--split", "exam"), "split must be one of"),
        (("--prompt", "verse"), "no prompt style is called 'verse'"),
    ],
)
def test_a_command_that_cannot_work_says_why_and_leaves_the_file(
    tmp_path: Path, options: tuple[str, str], reason: str
) -> None:
    out = tmp_path / "turns.jsonl"
    out.write_text("kept\n")
    done = CliRunner().invoke(app, [str(out), *options], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert reason in done.output
    assert out.read_text() == "kept\n"
