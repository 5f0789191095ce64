"""The examples run, and show what they claim."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_q_learning_learns() -> None:
    before, after = runpy.run_path(str(EXAMPLES / "q_learning.py"))["main"]()
    assert before < 0.3
    assert after > 0.9


def test_a_new_engine_in_under_100_lines_passes_all_checks() -> None:
    path = EXAMPLES / "textworld_engine.py"
    assert len(path.read_text().splitlines()) < 100
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "env 1 WON" in done.stdout
