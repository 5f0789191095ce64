"""Runs on a Ray cluster: the same episodes as in one process, whatever is lost on the way."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from leaderboard.player import Player, Setup
from leaderboard.protocol import Protocol
from leaderboard.result import Result
from parallel_envs import DependencyError, EngineError, ParallelTextEnv
from parallel_envs.toy import ToyGame, ToyTasks
from tests.leaderboard.test_run import TOY, lines, run, timeless

pytest.importorskip("ray")

from dpepo.scale import pool
from dpepo.scale.cluster import ClusterError
from leaderboard.cluster import ClusterPlayer

# A busy machine starts Ray's processes slowly. All of these tests share one cluster.
pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("ray")]

TASKS = ToyTasks("train").tasks


@dataclass(frozen=True)
class Trouble(Setup):
    """Toy games with trouble.

    Attributes:
        trouble: What goes wrong besides.
        flag: File without which the fifth task kills its process, which makes it.
        pause: Seconds that an action takes.
        home: Process in which nothing goes wrong.
    """

    trouble: str = ""
    flag: str = ""
    pause: float = 0.0
    home: int = 0

    def make_env(self) -> ParallelTextEnv:
        """Return an environment that does what was asked for."""
        env = super().make_env()
        if self.trouble == "unlike" and os.getpid() != self.home:
            env.max_turns += 1
        real = env.task_set.open

        def opened(task: Any, n: int) -> ToyGame:
            if self.trouble == "missing" and task == TASKS[2]:
                raise DependencyError("install it with: pip install java")
            game = real(task, n)
            step = game.step

            def troubled(replica: int, action: str) -> Any:
                time.sleep(self.pause)
                if self.trouble == "engine" and task == TASKS[2]:
                    raise EngineError("the engine is gone")
                if self.trouble == "killed" and task == TASKS[2]:
                    os.kill(os.getpid(), signal.SIGKILL)
                if self.flag and task == TASKS[4] and not Path(self.flag).exists():
                    Path(self.flag).touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                return step(replica, action)

            game.step = troubled
            return game

        env.task_set.open = opened
        return env


def setup(**changes: Any) -> Trouble:
    options = {"env": "toy", "split": "train", "n": 2, "max_turns": 25, "agents": ("random",)}
    return Trouble(**{**options, **changes})


def protocol_of(player: Player | ClusterPlayer) -> Protocol:
    return Protocol.of("random", "toy", player.env, 0, TASKS, player.settings["random"])


def told(results: list[Result]) -> list[dict[str, Any]]:
    """The results without their times, in the order of their tasks."""
    rows = [{**result.to_json(), "seconds": 0} for result in results]
    return sorted(rows, key=lambda row: str(row["task_id"]))


def alone(made: Setup) -> list[dict[str, Any]]:
    player = Player(made)
    found = told(list(player.play(protocol_of(player), TASKS)))
    player.close()
    return found


def together(cluster: Any, made: Setup, workers: int | None = None) -> Iterator[Result]:
    """Play on the cluster, and leave it."""
    player = ClusterPlayer(made, cluster.address, workers)
    try:
        yield from player.play(protocol_of(player), TASKS)
    finally:
        player.close()


def test_a_run_is_that_of_one_process_and_goes_on_where_it_was(
    two_nodes: Any, tmp_path: Path
) -> None:
    one, many = tmp_path / "one", tmp_path / "many"
    agents = ("--agent", "random", "--agent", "expert", *TOY)
    first = run(*agents, out=one)
    assert (
        run(*agents, "--ray", two_nodes.address, "--batch", "3", out=many).split()[:8]
        == (first.split()[:8])
    )
    for agent in ("random", "expert"):
        assert timeless(many, agent) == timeless(one, agent)
        assert len(lines(many, agent)) == len(TASKS)

    (folder,) = many.glob("random-*")
    path = folder / "episodes.jsonl"
    kept = path.read_text().splitlines(keepends=True)
    path.write_text("".join(kept[:4]) + kept[4][:50])
    run(*agents, "--ray", two_nodes.address, out=many)
    assert path.read_text().startswith("".join(kept[:4]))
    assert timeless(many, "random") == timeless(one, "random")


def test_real_games_are_those_of_one_process(two_nodes: Any, tmp_path: Path) -> None:
    games = ("--agent", "expert", "--env", "alfworld", "--episodes", "3", "--n", "2")
    run(*games, out=tmp_path / "one")
    run(*games, "--ray", two_nodes.address, "--batch", "2", out=tmp_path / "many")
    assert timeless(tmp_path / "many", "expert") == timeless(tmp_path / "one", "expert")


def test_a_failing_engine_is_an_error_row_and_a_lost_worker_is_none(
    two_nodes: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = setup(trouble="engine", flag=str(tmp_path / "killed"), batch=2)
    found = told(list(together(two_nodes, made)))
    assert (tmp_path / "killed").exists()
    assert "a worker was lost" in caplog.text
    assert found == alone(made)
    assert {row["task_id"]: row["error"] for row in found if row["error"]} == {
        TASKS[2].id: "EngineError: the engine is gone"
    }


def test_a_lost_machine_costs_nothing_but_time(
    two_nodes: Any, caplog: pytest.LogCaptureFixture
) -> None:
    found = []
    for result in together(two_nodes, setup(pause=0.02)):
        found.append(result)
        if len(found) == 2:
            (node,) = two_nodes.worker_nodes
            two_nodes.remove_node(node, allow_graceful=False)
    two_nodes.add_node(num_cpus=1)
    assert "a worker was lost" in caplog.text
    assert told(found) == alone(setup())


def test_a_task_that_ends_every_worker_ends_the_run_when_all_others_are_played(
    two_nodes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "TRIES", 1)
    results = together(two_nodes, setup(trouble="killed"), 1)
    others = [row for row in alone(setup()) if row["task_id"] != TASKS[2].id]
    assert told([next(results) for _ in others]) == others
    with pytest.raises(ClusterError, match="2 workers were lost one after the other"):
        next(results)


def test_what_the_user_has_to_do_ends_the_run(two_nodes: Any) -> None:
    with pytest.raises(DependencyError) as told_to:
        list(together(two_nodes, setup(trouble="missing"), 1))
    assert str(told_to.value) == "install it with: pip install java"
    with pytest.raises(ClusterError, match=r"not like the others \(max_turns: 26 there, 25 now\)"):
        list(together(two_nodes, setup(trouble="unlike", home=os.getpid()), 1))


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:9", "there is no Ray cluster at '127.0.0.1:9'"),
        ("ray://127.0.0.1:9", "ray start --head makes a cluster"),
        ("nonsense", "Give auto on a machine of the cluster"),
    ],
)
def test_a_wrong_address_is_explained(tmp_path: Path, address: str, reason: str) -> None:
    output = run("--agent", "random", *TOY, "--ray", address, out=tmp_path, code=2)
    assert reason in " ".join(output.replace("│", " ").split())


def test_workers_are_those_of_a_cluster(tmp_path: Path) -> None:
    output = run("--agent", "random", *TOY, "--workers", "2", out=tmp_path, code=2)
    assert "give --ray as well" in " ".join(output.replace("│", " ").split())
