"""The runs of this repository: complete, verified, and shown as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.chat.hf import fingerprint
from agents.trained import CHECKPOINTS
from leaderboard.board import load
from leaderboard.report import as_csv, as_markdown
from leaderboard.store import RunFolder, run_folders
from leaderboard.verify import read_verdict, verify

ROOT = Path(__file__).parents[2]
FOLDERS = run_folders(ROOT / "leaderboard" / "results")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.path.name)
def test_a_row_is_verified_and_some_of_it_replays_now(folder: RunFolder) -> None:
    assert read_verdict(folder) == "verified"
    assert folder.path.name == folder.protocol().run_name
    verdict = verify(folder, sample=2, seed=len(folder.path.name))
    assert verdict.problems == ()
    assert verdict.replayed == 2


@pytest.mark.parametrize("name", sorted(folder.name for folder in CHECKPOINTS.iterdir()))
def test_every_shipped_checkpoint_has_a_row_of_its_own_weights(name: str) -> None:
    rows = [f.protocol() for f in FOLDERS if f.protocol().agent == name]
    assert {row.settings["weights"] for row in rows} == {fingerprint(CHECKPOINTS / name)}
    assert {len(row.task_ids) for row in rows if row.split == "valid_unseen"} == {134}


def test_the_tables_in_docs_are_those_of_the_runs() -> None:
    board = load(FOLDERS)
    docs = ROOT / "docs"
    assert (docs / "leaderboard.md").read_text() == as_markdown(board), (
        "run: python -m leaderboard.report leaderboard/results --out docs"
    )
    assert (docs / "leaderboard.csv").read_text() == as_csv(board)


def test_nothing_of_a_machine_is_in_the_runs() -> None:
    for folder in FOLDERS:
        text = (folder.path / "protocol.json").read_text()
        assert "/root" not in text
        assert "/home" not in text
        assert "http" not in text
