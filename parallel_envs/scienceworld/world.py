"""`World`: one ScienceWorld simulator in the shared server, with a random stream of its own."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from parallel_envs.errors import EngineError
from parallel_envs.scienceworld.server import GOLD_LIMIT, JavaServer

__all__ = ["RESET_TASK", "Snapshot", "World", "gold_path", "is_reset_task"]

T = TypeVar("T")

# The engine lists this as a valid action. After a failure it pays +100 and un-finishes the game.
RESET_TASK = "reset task"

# The stock environment's step limit, in the engine's own time: `wait` takes 11.
STOCK_LIMIT = 100

_BLANKS = "".join(map(chr, range(0x21)))  # what Java's trim removes
_STOP_WORDS = {"a", "an", "the"}


def is_reset_task(action: str) -> bool:
    """Whether the engine would read an action as `RESET_TASK`: it drops blanks and articles.

    Example:
        >>> is_reset_task(" Reset the  task"), is_reset_task("reset the stopwatch")
        (True, False)
    """
    words = action.strip(_BLANKS).lower().split()
    return [word for word in words if word not in _STOP_WORDS] == RESET_TASK.split()


class Snapshot(NamedTuple):
    """What the simulator says after an action."""

    text: str
    score: int  # -100 to 100
    completed: bool
    valid_actions: tuple[str, ...]
    asks: bool  # the text is a question ("Ambiguous request: …") that the next action answers
    key: str
    goals: dict[str, bool]  # the engine's sub-goals, and which are reached
    late: bool  # the stock environment's limit is over


class World:
    """One replica. Its random stream is put in place before each of its actions, and saved after.

    Questions (valid actions, state) draw random numbers too; they are asked after the stream was
    saved, so that asking changes nothing.
    """

    def __init__(self, server: JavaServer) -> None:
        self._server = server
        self._streams = (0, 0)
        self._agent: Any = None
        self._parser: Any = None
        self._universe: Any = None
        self._java: Any = server.call(
            lambda: server.jvm.scienceworld.runtime.pythonapi.PythonInterface()
        )

    def load(self, task: str, variation: int) -> Snapshot:
        """Start a variation and look around, as the stock environment's `reset` does."""

        def load() -> Snapshot:
            self._server.without_delay()
            self._forget_parts()
            # The engine seeds the random stream and the id counter here itself.
            problem = self._java.load(task, variation, "", False)
            if problem:
                raise EngineError(f"ScienceWorld cannot load {task}/{variation}: {problem.strip()}")
            option = self._java.agentInterface()
            self._agent = option.get()
            self._parser = self._agent.inputParser()
            self._universe = self._agent.universe()
            self._server.forget(option)
            return self._act("look around")

        return self._server.call(load)

    def objective(self) -> str:
        """Return the task's description."""
        return self._server.call(lambda: str(self._java.getTaskDescription()).strip())

    def step(self, action: str) -> Snapshot:
        """Apply one action."""
        return self.replay([action])

    def replay(self, actions: Sequence[str]) -> Snapshot:
        """Apply actions and describe the state after the last; 5 times as fast as one by one.

        Args:
            actions: At least one.
        """

        def replay() -> Snapshot:
            self._server.set_streams(self._streams)
            for action in actions[:-1]:
                self._java.step(action)
            return self._act(actions[-1])

        return self._server.call(replay)

    def close(self) -> None:
        """Let the server free the simulator; one that has failed has no need to."""
        with contextlib.suppress(EngineError):
            self._server.call(lambda: self._forget_parts(self._java))

    def _forget_parts(self, *others: Any) -> None:
        parts = (self._agent, self._parser, self._universe, *others)
        self._server.forget(*(part for part in parts if part is not None))

    def _act(self, action: str) -> Snapshot:
        text = str(self._java.step(action))
        score = round(100 * self._java.getScore())
        self._streams = self._server.streams()
        if self._agent.isInErrorState():
            # The engine itself would report this as a score of -100.
            raise EngineError(
                f"ScienceWorld failed on {action!r:.200}: {self._agent.getErrorStateMessage()}"
            )
        asks = bool(self._parser.isInAmbiguousState())
        valid = dict.fromkeys(self._server.lines(self._java.getValidActionObjectCombinations()))
        valid.pop(RESET_TASK, None)
        progress = str(self._java.getGoalProgressStr())
        return Snapshot(
            text=text,
            score=score,
            completed=bool(self._java.getCompleted()),
            valid_actions=tuple(valid),
            asks=asks,
            key=_key(str(self._universe.toJSON()), progress, text if asks else ""),
            goals=_goals(progress),
            late=self._java.getNumMoves() > STOCK_LIMIT,
        )


def gold_path(server: JavaServer, task: str, variation: int) -> tuple[str, ...]:
    """Return the engine's own solution of a variation from its start; takes up to 74 s."""

    def solve() -> tuple[str, ...]:
        gateway = server.connect(GOLD_LIMIT)
        try:
            java = gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()
            java.load(task, variation, "", True)
            path = tuple(server.lines(java.getGoldActionSequence()))
            server.forget(java)
            return path
        finally:
            gateway.close()

    return server.call(solve)


_GOAL = re.compile(r"^\d+\t(true|false)\s+\w+\t(.+)$", re.MULTILINE)


def _goals(progress: str) -> dict[str, bool]:
    """Read the engine's table of sub-goals: the sequence to be done, then what helps on the way."""
    found: dict[str, bool] = {}
    for kind, text in zip(("goal", "help"), progress.split("Unordered"), strict=True):
        for number, match in enumerate(_GOAL.finditer(text), start=1):
            found[f"{kind} {number}: {match[2].strip()}"] = match[1] == "true"
    return found


_SERIAL = re.compile(r'-\d+":\{"uuid":"\d+"')  # in: "red box-1720":{"uuid":"1720", …}


def _key(universe: str, progress: str, question: str) -> str:
    """Hash everything in the world but the serial numbers of its objects.

    Those tell objects apart and count up as objects are made, so that two worlds which hold the
    same things can number them differently. The random stream is left out as well: it decides
    what happens next, not what is.
    """
    text = "\0".join((_SERIAL.sub("", universe), progress, question))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
