"""`ScienceWorldGame`: n replicas of one ScienceWorld variation."""

from __future__ import annotations

from parallel_envs.game import GameState
from parallel_envs.scienceworld.server import JavaServer
from parallel_envs.scienceworld.world import RESET_TASK, Snapshot, World, gold_path

__all__ = ["ScienceWorldGame"]


class ScienceWorldGame:
    """n replicas of one variation in a Java server."""

    experts = ("gold",)

    def __init__(self, server: JavaServer, task: str, variation: int, n: int) -> None:
        self._server = server
        self._task, self._variation = task, variation
        self._worlds = [World(server) for _ in range(n)]
        self._states = [_state(world.load(task, variation)) for world in self._worlds]
        self.objective = self._worlds[0].objective()
        self._fresh = True  # nobody has moved since the worlds were loaded

    def start(self) -> tuple[GameState, ...]:
        """Put every replica into the start state."""
        if not self._fresh:
            for replica, world in enumerate(self._worlds):
                self._states[replica] = _state(world.load(self._task, self._variation))
        self._fresh = False
        self._moved = [False] * len(self._worlds)
        return tuple(self._states)

    def step(self, replica: int, action: str) -> GameState:
        """Send one action to one replica."""
        if " ".join(action.lower().split()) == RESET_TASK:
            # Sent after a failure it would pay 100 points; a player has no use for it.
            old = self._states[replica]
            text = "No known action matches that input."
            state = GameState(text, *(getattr(old, name) for name in GameState.__slots__[1:]))
        else:
            state = _state(self._worlds[replica].step(action))
        self._moved[replica] = True
        self._states[replica] = state
        return state

    def expert_plan(self, replica: int, expert: str) -> tuple[str, ...]:
        """Return the engine's gold path. It leads from the start only, so else it is empty."""
        if self._moved[replica]:
            return ()
        return gold_path(self._server, self._task, self._variation)

    def close(self) -> None:
        """Let the server free the replicas."""
        worlds, self._worlds = self._worlds, []
        for world in worlds:
            world.close()


def _state(now: Snapshot) -> GameState:
    won = now.score >= 100
    return GameState(
        observation=now.text,
        admissible_actions=now.valid_actions,
        score=max(now.score, 0) / 100,
        raw_score=float(now.score),
        won=won,
        # Wrong focus: the engine completes the game at -100 and would let the player go on.
        lost=not won and (now.completed or now.score < 0),
        state_key=now.key,
        pending=now.text if now.asks else None,
    )
