"""The unmodified ALFWorld engine, for comparison."""

from __future__ import annotations

from pathlib import Path

import textworld
from textworld.envs.pddl import PddlEnv

from parallel_envs.alfworld.package import import_alfworld
from parallel_envs.game import GameState


class StockGame:
    """One game on the stock stack: PddlEnv, AlfredDemangler, AlfredInfos."""

    def __init__(self, path: Path) -> None:
        module = import_alfworld("agents.environment.alfred_tw_env")
        infos = textworld.EnvInfos(won=True, admissible_commands=True, facts=True)
        self._env = module.AlfredInfos(module.AlfredDemangler(PddlEnv(infos), shuffle=False))
        self._env.load(str(path))
        self.state = self._env.reset()

    def step(self, command: str) -> None:
        """Send one command."""
        self.state, _, _ = self._env.step(command)

    def close(self) -> None:
        """Put the library into the pool: a stock environment would leak it."""
        from parallel_envs.alfworld.downward import Downward

        library = self._env.unwrapped.downward_lib
        for name in ("get_state_id", "set_state_id"):
            getattr(library, name)
        Downward._pool.append(library)


def difference(state: GameState, facts: list[object], stock: StockGame) -> str | None:
    """Return how a replica's state differs from the stock engine's, None when it does not."""
    pairs = {
        "text": (state.observation, stock.state["feedback"]),
        "commands": (list(state.admissible_actions), stock.state["admissible_commands"]),
        "won": (state.won, stock.state["won"]),
        "facts": (sorted(map(str, facts)), sorted(map(str, stock.state["facts"]))),
    }
    for name, (ours, theirs) in pairs.items():
        if ours != theirs:
            return f"{name}: {ours!r} != stock {theirs!r}"
    return None
