"""The unmodified ALFWorld engine, for comparison."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import fast_downward
import textworld
from textworld.envs.pddl import PddlEnv

from parallel_envs.alfworld.downward import Downward
from parallel_envs.alfworld.package import import_alfworld
from parallel_envs.game import GameState


class StockGame:
    """One game on the stock stack: PddlEnv, AlfredDemangler, AlfredInfos."""

    def __init__(self, path: Path) -> None:
        module = import_alfworld("agents.environment.alfred_tw_env")
        infos = textworld.EnvInfos(won=True, admissible_commands=True, facts=True)
        # Stock environments never give their copy of the library back; 40 of them would take
        # 1.3 GB of hidden disk. The copy is the same one, only borrowed.
        library = Downward._borrow()
        with mock.patch.object(fast_downward, "load_lib", return_value=library):
            self._pddl = PddlEnv(infos)
        self._env = module.AlfredInfos(module.AlfredDemangler(self._pddl, shuffle=False))
        self._env.load(str(path))
        self.state = self._env.reset()

    def step(self, command: str) -> None:
        """Send one command."""
        self.state, _, _ = self._env.step(command)

    def close(self) -> None:
        """Give the library back."""
        Downward._pool.append(self._pddl.downward_lib)


def difference(state: GameState, facts: Iterable[Any], stock: StockGame) -> str | None:
    """Return how a replica's state differs from the stock engine's, None when it does not."""
    pairs = {
        "text": (state.observation, stock.state["feedback"]),
        "commands": (list(state.admissible_actions), stock.state["admissible_commands"]),
        "won": (state.won, stock.state["won"]),
        "facts": (sorted(map(str, facts)), sorted(map(str, stock.state["facts"]))),
    }
    for name, (ours, theirs) in pairs.items():
        if ours != theirs:
            return f"{name}: {ours!r} is not stock's {theirs!r}"
    return None
