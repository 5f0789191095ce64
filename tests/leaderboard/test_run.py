"""The command, from options to the printed table."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from leaderboard.run import app
from parallel_envs import DependencyError, EngineError
from parallel_envs.toy import ToyGame, ToyTasks


def run(*arguments: str, out: Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, [*arguments, "--out", str(out)], env={"COLUMNS": "120"})
    assert result.exit_code == code, result.output
    return result.output


def lines(out: Path, agent: str) -> list[dict[str, Any]]:
    (folder,) = out.glob(f"{agent}-*")
    return [json.loads(line) for line in (folder / "episodes.jsonl").read_text().splitlines()]


def timeless(out: Path, agent: str) -> list[dict[str, Any]]:
    """The episodes without their times, in the order of their tasks."""
    return sorted(
        ({**line, "seconds": 0} for line in lines(out, agent)), key=lambda x: x["task_id"]
    )


def cells(output: str, agent: str) -> list[str]:
    """The cells of an agent's line in the printed table."""
    (line,) = (line for line in output.splitlines() if line.split()[:1] == [agent])
    return line.split()


TOY = ("--env", "toy", "--split", "train", "--n", "2")


def test_each_task_is_played_once_and_the_table_adds_up(tmp_path: Path) -> None:
    output = run("--agent", "random", "--agent", "expert", *TOY, out=tmp_path)
    ids = [task.id for task in ToyTasks("train").tasks]
    for agent in ("random", "expert"):
        assert [line["task_id"] for line in lines(tmp_path, agent)] == ids
    won = sum(line["won"] for line in lines(tmp_path, "random"))
    assert cells(output, "random")[5:7] == [str(won), str(len(ids))]
    assert cells(output, "expert")[1:3] == ["2", "100.0"]
    assert cells(output, "expert")[5:7] == [str(len(ids)), str(len(ids))]
    assert f"toy train: {len(ids)} tasks, 25 turns" in output
    (folder,) = tmp_path.glob("expert-*")
    protocol = json.loads((folder / "protocol.json").read_text())
    assert protocol["n"] == 2
    assert protocol["stop"] == "first_win"
    assert protocol["task_ids"] == ids
    assert protocol["versions"]["gymnasium"].startswith("1.")


def test_running_again_plays_nothing_twice(tmp_path: Path) -> None:
    first = run("--agent", "random", *TOY, out=tmp_path)
    (folder,) = tmp_path.glob("random-*")
    path = folder / "episodes.jsonl"
    before = path.read_text()
    assert run("--agent", "random", *TOY, out=tmp_path) == first
    assert path.read_text() == before
    kept = before.splitlines(keepends=True)
    path.write_text("".join(kept[:4]) + kept[4][:50])
    again = run("--agent", "random", *TOY, out=tmp_path)
    assert cells(again, "random")[:10] == cells(first, "random")[:10]

    rows = [{**json.loads(line), "seconds": 0} for line in before.splitlines()]
    assert timeless(tmp_path, "random") == sorted(rows, key=lambda row: row["task_id"])


def test_a_crash_is_an_error_row_and_never_a_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = ToyTasks("train").tasks[2].id
    real = ToyTasks.open

    def broken(self: ToyTasks, task: Any, n: int) -> ToyGame:
        game = real(self, task, n)
        if task.id == victim:

            def step(replica: int, action: str) -> Any:
                raise EngineError("the engine is gone")

            game.step = step
        return game

    monkeypatch.setattr(ToyTasks, "open", broken)
    output = run("--agent", "expert", *TOY, out=tmp_path)
    played = lines(tmp_path, "expert")
    (error,) = [line for line in played if line["error"]]
    assert error["task_id"] == victim
    assert error["error"] == "EngineError: the engine is gone"
    assert error["won"] is error["score"] is error["ended"] is None
    assert f"error {victim}: EngineError: the engine is gone" in output
    total = len(played)
    assert cells(output, "expert")[2] == "100.0", "the rate is over the finished episodes"
    assert cells(output, "expert")[5:8] == [str(total - 1), str(total - 1), "1"]
    assert f"1 of {total} episodes have no result" in output

    monkeypatch.setattr(ToyTasks, "open", real)
    output = run("--agent", "expert", *TOY, out=tmp_path)
    assert cells(output, "expert")[5:7] == [str(total), str(total)]
    assert "error " not in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--agent", "randm", *TOY), "did you mean 'random'"),
        (("--agent", "random", "--env", "toys"), "--env must be one of"),
        (("--agent", "random", "--env", "toy", "--split", "exam"), "split must be one of"),
        (("--agent", "random", *TOY, "--episodes", "1000"), "--episodes must be in 1..9"),
        (("--agent", "random", *TOY, "--n", "0"), "n"),
        (("--agent", "random", *TOY, "--seed", "-1"), "seed"),
        (("--agent", "handcoded", *TOY), "needs the expert 'handcoded'"),
        ((), "agent"),
    ],
)
def test_wrong_options_are_explained(tmp_path: Path, arguments: tuple, message: str) -> None:
    output = run(*arguments, out=tmp_path, code=2)
    assert message in " ".join(output.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_results_of_another_protocol_are_not_mixed_in(tmp_path: Path) -> None:
    run("--agent", "random", *TOY, out=tmp_path)
    (folder,) = tmp_path.glob("random-*")
    path = folder / "protocol.json"
    path.write_text(path.read_text().replace('"toy": "1"', '"toy": "0"'))
    output = " ".join(run("--agent", "random", *TOY, out=tmp_path, code=1).split())
    assert "another protocol (versions" in output
    assert "Choose another --out" in output


def test_what_the_user_has_to_install_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(self: ToyTasks, task: Any, n: int) -> ToyGame:
        raise DependencyError("install it with: pip install 'parallel-text-envs[toy]'")

    monkeypatch.setattr(ToyTasks, "open", missing)
    output = run("--agent", "expert", *TOY, out=tmp_path, code=1)
    assert "pip install 'parallel-text-envs[toy]'" in output
    (folder,) = tmp_path.glob("expert-*")
    assert not (folder / "episodes.jsonl").exists()


def test_a_run_without_any_result_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(self: ToyGame, replica: int, action: str) -> Any:
        raise EngineError("[/x] gone")

    monkeypatch.setattr(ToyGame, "step", crash)
    output = run("--agent", "expert", *TOY, out=tmp_path, code=1)
    assert "EngineError: [/x] gone" in output
    assert cells(output, "expert")[1:8] == ["2", "n/a", "n/a", "n/a", "0", "0", "9"]


def test_what_is_played_does_not_depend_on_what_runs_beside_it(tmp_path: Path) -> None:
    for batch in ("1", "4", "50"):
        run("--agent", "random", *TOY, "--batch", batch, out=tmp_path / batch)
    assert (
        timeless(tmp_path / "1", "random")
        == timeless(tmp_path / "4", "random")
        == timeless(tmp_path / "50", "random")
    )


def test_a_run_survives_being_killed_again_and_again(tmp_path: Path) -> None:
    """kill -9 at many moments, then to the end: the same episodes as without, each once."""
    whole = [*TOY, "--max-turns", "200"]
    run("--agent", "random", *whole, out=tmp_path / "calm")
    command = [sys.executable, "-m", "leaderboard.run", "--agent", "random", *whole]
    killed = 0
    for delay in (0.2, 0.6, 1.0, 1.04, 1.08, 1.12, 1.16, 1.2, 1.3):
        process = subprocess.Popen([*command, "--out", str(tmp_path / "rough")], stdout=-3)
        time.sleep(delay)
        killed += process.poll() is None
        process.kill()
        process.wait()
    assert killed
    run("--agent", "random", *whole, out=tmp_path / "rough")
    assert timeless(tmp_path / "rough", "random") == timeless(tmp_path / "calm", "random")
    assert len(lines(tmp_path / "rough", "random")) == len(lines(tmp_path / "calm", "random"))


def test_ctrl_c_ends_cleanly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ToyGame.step

    def interrupted(self: ToyGame, replica: int, action: str) -> Any:
        if action == "take coin":
            raise KeyboardInterrupt
        return real(self, replica, action)

    monkeypatch.setattr(ToyGame, "step", interrupted)
    output = run("--agent", "expert", *TOY, out=tmp_path, code=130)
    assert "Run the same command again to go on" in output
    monkeypatch.setattr(ToyGame, "step", real)
    assert cells(run("--agent", "expert", *TOY, out=tmp_path), "expert")[2] == "100.0"


@pytest.mark.parametrize(
    ("env", "split", "reachable"), [("alfworld", "valid_unseen", 3), ("scienceworld", "L0", 1)]
)
def test_real_games_from_the_shell(tmp_path: Path, env: str, split: str, reachable: int) -> None:
    command = f"leaderboard.run --agent random --agent expert --env {env} --split {split}"
    options = f"--n 2 --max-turns 60 --episodes 3 --out {tmp_path}"
    done = subprocess.run(
        [sys.executable, "-m", *command.split(), *options.split()],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{env} {split}: 3 tasks, 60 turns" in done.stdout
    for agent in ("random", "expert"):
        assert [line["error"] for line in lines(tmp_path, agent)] == [None] * 3
    assert sum(line["won"] for line in lines(tmp_path, "expert")) >= reachable


def test_help_teaches() -> None:
    result = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"})
    for word in ("--agent", "--env", "--split", "--n", "--max-turns", "--episodes", "--seed"):
        assert word in result.output
    assert "valid_unseen for alfworld" in result.output
    assert "never a zero" in result.output
