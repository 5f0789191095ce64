"""The hand-coded expert that ships with ALFWorld: it searches the house as a player would.

Unlike the planner it does not know where things are, so its plans hold the search. It wins most
games, not all (it is weakest when two objects are wanted).
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parallel_envs.alfworld.package import import_alfworld

if TYPE_CHECKING:
    from parallel_envs.alfworld.game import AlfworldGame, Replica

__all__ = ["handcoded_plan"]

_MAX_STEPS = 150


def handcoded_plan(
    game: AlfworldGame, replica: Replica, trajectory: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the commands that the expert plays until it wins, empty when it does not.

    It plays on a copy of the replica's state. Made to start at the beginning of a game; from a
    later state it starts its search anew and can fail.

    Args:
        game: The game.
        replica: The state to start from.
        trajectory: What the game's ``traj_data.json`` holds; it tells the expert the goal.
    """
    module = import_alfworld("agents.expert")
    played: list[str] = []
    # The expert draws from Python's global random numbers; nobody else's may change.
    before = random.getstate()
    random.seed(0)
    try:
        expert = module.HandCodedTWAgent(max_steps=_MAX_STEPS)
        with tempfile.TemporaryDirectory() as folder:  # it reads the goal from beside the game
            (Path(folder) / "traj_data.json").write_text(json.dumps(trajectory))
            expert.reset(f"{folder}/game.tw-pddl")
        state = game.state(replica, game.intro(replica))
        expert.observe(state.observation)
        command = "look"  # what ALFWorld's own wrapper of the expert plays first
        while not state.won and len(played) < _MAX_STEPS:
            replica, text = game.successor(replica, command)
            played.append(command)
            state = game.state(replica, text)
            seen: dict[str, Any] = {
                "feedback": text,
                "facts": game.facts(replica),
                "admissible_commands": list(state.admissible_actions),
            }
            command = expert.act(seen, 0, state.won, command)
            if command not in state.admissible_actions:
                command = "look"
    except Exception:
        # It raises when it has lost its way, in many forms: it has no plan, that is all.
        return ()
    finally:
        random.setstate(before)
    return tuple(played) if state.won else ()
