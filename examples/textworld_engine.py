"""A new engine in under 100 lines: TextWorld's treasure hunts, made on the spot.

Needs the ``alfworld`` extra, which brings TextWorld. Runs the checks for engines, plays one hunt.
"""

from __future__ import annotations

import hashlib
import tempfile
from importlib.metadata import version
from pathlib import Path

import textworld
from textworld.challenges import treasure_hunter

from parallel_envs import GameState, ParallelTextEnv, Task
from parallel_envs.testing import check_engine

INFOS = textworld.EnvInfos(
    admissible_commands=True, won=True, lost=True, facts=True, objective=True, policy_commands=True
)


class TreasureHunts:
    """Tasks ``hunt/LEVEL/SEED``; a level's number is its difficulty, from 1 to 30."""

    engine = "treasure-hunter"
    split = "train"
    experts = ("walkthrough",)
    versions = {"textworld": version("textworld")}

    tasks = [Task(f"hunt/{level}/{seed}", f"level-{level}") for level in (1, 5) for seed in (0, 1)]

    def open(self, task: Task, n: int) -> TreasureHunt:
        path = Path(tempfile.gettempdir()) / "treasure-hunts" / f"{task.id.replace('/', '-')}.z8"
        if not path.exists():
            _, level, seed = task.id.split("/")
            options = textworld.GameOptions()
            options.seeds, options.path = int(seed), str(path)
            game = treasure_hunter.make({"level": int(level)}, options)
            textworld.generator.compile_game(game, options)
        return TreasureHunt(path, n)

    def share(self) -> TreasureHunts:
        return self

    close = share  # there is nothing to free


class TreasureHunt:
    """n replicas of one hunt, each in an interpreter of its own."""

    def __init__(self, path: Path, n: int) -> None:
        self._envs = [textworld.start(str(path), INFOS) for _ in range(n)]
        self.objective, self.checkpoints = self._envs[0].reset().objective, ()

    def start(self) -> tuple[GameState, ...]:
        self._last = [env.reset() for env in self._envs]
        return tuple(map(state, self._last))

    def step(self, replica: int, action: str) -> GameState:
        # The interpreter reads one line of ASCII.
        line = " ".join(action.encode("ascii", "replace").decode().split()) or "wait"
        self._last[replica], _, _ = self._envs[replica].step(line)
        return state(self._last[replica])

    def expert_plan(self, replica: int, expert: str) -> tuple[str, ...]:
        return tuple(self._last[replica].policy_commands or ())

    def fork(self) -> TreasureHunt:
        twin = TreasureHunt.__new__(TreasureHunt)
        twin._envs = [env.copy() for env in self._envs]
        twin._last, twin.objective, twin.checkpoints = list(self._last), self.objective, ()
        return twin

    def close(self) -> None:
        """Interpreters end with their last reference."""


def state(shown: textworld.GameState) -> GameState:
    facts = "\n".join(sorted(map(str, shown.facts)))
    return GameState(
        observation=shown.feedback.strip(),
        admissible_actions=tuple(shown.admissible_commands),
        score=float(shown.won),
        raw_score=float(shown.won),
        won=shown.won,
        lost=shown.lost,
        state_key=hashlib.sha256(facts.encode()).hexdigest()[:16],
    )


if __name__ == "__main__":
    check_engine(TreasureHunts)
    env = ParallelTextEnv(TreasureHunts(), n=2, render_mode="ansi")
    env.reset(seed=0)
    for action in env.expert_plan():
        env.step((action, "look"))
    print(env.render())
