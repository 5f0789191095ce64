"""`ScienceWorldGame`: n replicas of one ScienceWorld variation."""

from __future__ import annotations

import dataclasses

from parallel_envs.game import GameState
from parallel_envs.scienceworld.server import JavaServer
from parallel_envs.scienceworld.world import Snapshot, World, gold_path, is_reset_task

__all__ = ["ScienceWorldGame"]


class ScienceWorldGame:
    """n replicas of one variation in a Java server."""

    def __init__(self, server: JavaServer, task: str, variation: int, n: int) -> None:
        self._server = server
        self._task, self._variation = task, variation
        self._worlds = [World(server) for _ in range(n)]
        loaded = [world.load(task, variation) for world in self._worlds]
        self.checkpoints = tuple(loaded[0].goals)
        self._start = [_state(snapshot) for snapshot in loaded]
        self._states = list(self._start)
        self._sent: list[list[str]] = [[] for _ in range(n)]  # since the start
        self.objective = self._worlds[0].objective()

    def start(self) -> tuple[GameState, ...]:
        """Put every replica into the start state."""
        for replica, world in enumerate(self._worlds):
            if self._sent[replica]:
                self._start[replica] = _state(world.load(self._task, self._variation))
                self._sent[replica] = []
        self._states = list(self._start)
        return tuple(self._states)

    def step(self, replica: int, action: str) -> GameState:
        """Send one action to one replica."""
        before = self._states[replica]
        if before.pending is None and is_reset_task(action):
            # Sent after a failure it would pay 100 points; a player has no use for it.
            text = "No known action matches that input."
            state = dataclasses.replace(before, observation=text)
        else:
            self._sent[replica].append(action)  # first: an action that failed was sent as well
            state = _state(self._worlds[replica].step(action))
        self._states[replica] = state
        return state

    def fork(self) -> ScienceWorldGame:
        """Play the actions of every replica again in new worlds: 4 ms an action, exact.

        The simulator can be neither copied nor saved.
        """
        twin = ScienceWorldGame(self._server, self._task, self._variation, len(self._worlds))
        for replica, sent in enumerate(self._sent):
            if sent:
                twin._worlds[replica].replay(sent)
        twin._sent = [list(sent) for sent in self._sent]
        twin._states = list(self._states)
        return twin

    def expert_plan(self, replica: int, expert: str) -> tuple[str, ...]:
        """Return the engine's gold path. It leads from the start only, so else it is empty."""
        if self._sent[replica]:
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
        reached=frozenset(name for name, reached in now.goals.items() if reached),
        engine_done=now.completed or now.late,
    )
