"""A tiny engine with no Java and no data, for docs, doctests and property tests.

Five rooms stand in a ring. One holds a box with a coin: opening the box scores one half, taking
the coin wins. Another has a trap door: entering it loses. A bell asks a question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from parallel_envs.env import ParallelTextEnv, StopRule
from parallel_envs.game import GameState, Task, select_tasks

__all__ = ["ParallelToyEnv", "ToyGame", "ToyTasks"]

_ROOMS = ("hall", "attic", "garden", "kitchen", "cellar")
_SPLITS = {"train": ("attic", "kitchen", "cellar"), "test": ("garden",)}


class ParallelToyEnv(ParallelTextEnv):
    """``ParallelToy-v0``: n replicas of the toy house; see `ParallelTextEnv`.

    Example:
        >>> import gymnasium, parallel_envs
        >>> env = gymnasium.make("ParallelToy-v0", n=2)
        >>> obs, info = env.reset(seed=0)
        >>> info["admissible_actions"][0]
        ('go east', 'go west', 'look', 'ring bell')
    """

    def __init__(
        self,
        n: int = 4,
        *,
        split: str = "train",
        max_turns: int = 25,
        stop: StopRule = "first_win",
        tasks: Sequence[str] | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(
            ToyTasks(split, tasks), n, max_turns=max_turns, stop=stop, render_mode=render_mode
        )


class ToyTasks:
    """Tasks ``coin-ROOM/trap-ROOM``, of type ``near`` (coin next to the hall) or ``far``."""

    engine = "toy"
    experts = ("shortest",)

    def __init__(self, split: str = "train", wanted: Sequence[str] | None = None) -> None:
        if split not in _SPLITS:
            raise ValueError(f"split must be one of {', '.join(_SPLITS)}, not {split!r}")
        self.split = split
        tasks = [
            Task(f"coin-{coin}/trap-{trap}", "near" if coin in ("attic", "cellar") else "far")
            for coin in _SPLITS[split]
            for trap in _ROOMS[1:]
            if coin != trap
        ]
        self.tasks = select_tasks(sorted(tasks, key=lambda task: task.id), wanted)
        self.versions: Mapping[str, str] = {"toy": "1"}

    def open(self, task: Task, n: int) -> ToyGame:
        """Build n replicas of a house."""
        coin, trap = (part.split("-")[1] for part in task.id.split("/"))
        return ToyGame(coin, trap, n)

    def share(self) -> ToyTasks:
        """Return itself: it holds nothing that could be closed."""
        return self

    def close(self) -> None:
        """Nothing to free."""


@dataclass(frozen=True, slots=True)
class _House:
    """State of one replica."""

    room: int = 0
    opened: bool = False
    taken: bool = False
    fallen: bool = False
    asked: bool = False


class ToyGame:
    """n replicas of one house."""

    objective = "Find the coin and take it."
    checkpoints = (*(f"place: {room}" for room in _ROOMS), "object: coin", "state: coin taken")

    def __init__(self, coin: str, trap: str, n: int) -> None:
        self._coin, self._trap = coin, trap
        self._houses = [_House()] * n

    def start(self) -> tuple[GameState, ...]:
        """Put every replica into the hall."""
        self._houses = [_House()] * len(self._houses)
        return tuple(self._state(house, self._look(house)) for house in self._houses)

    def step(self, replica: int, action: str) -> GameState:
        """Apply one action to one replica."""
        self._houses[replica], text = self._apply(self._houses[replica], action.strip())
        return self._state(self._houses[replica], text)

    def expert_plan(self, replica: int, expert: str) -> tuple[str, ...]:
        """Walk east or west, whichever is shorter, then open the box and take the coin."""
        house = self._houses[replica]
        if house.taken or house.fallen:
            return ()
        east = (_ROOMS.index(self._coin) - house.room) % len(_ROOMS)
        west = len(_ROOMS) - east
        answer = ("1",) if house.asked else ()
        walk = ("go east",) * east if east <= west else ("go west",) * west
        box = () if house.opened else ("open box",)
        return (*answer, *walk, *box, "take coin")

    def fork(self) -> ToyGame:
        """Copy the houses."""
        copy = ToyGame(self._coin, self._trap, len(self._houses))
        copy._houses = list(self._houses)
        return copy

    def close(self) -> None:
        """Nothing to free."""

    def _apply(self, house: _House, action: str) -> tuple[_House, str]:
        if action not in self._actions(house):
            return house, "Nothing happens."
        if house.asked:
            return replace(house, asked=False), "Ding! " * int(action)
        match action:
            case "go east" | "go west":
                step = 1 if action == "go east" else -1
                house = replace(house, room=(house.room + step) % len(_ROOMS))
                return house, self._look(house)
            case "open box":
                return replace(house, opened=True), "You open the box. There is a coin in it."
            case "take coin":
                return replace(house, taken=True), "You take the coin."
            case "enter trap door":
                return replace(house, fallen=True), "You fall into the dark."
            case "ring bell":
                return replace(house, asked=True), "How many times? (1 to 3)"
            case _:
                return house, self._look(house)

    def _actions(self, house: _House) -> tuple[str, ...]:
        room = _ROOMS[house.room]
        if house.asked:
            return ("1", "2", "3")
        actions = ["go east", "go west", "look", "ring bell"]
        if room == self._coin:
            actions.append("take coin" if house.opened else "open box")
        if room == self._trap:
            actions.append("enter trap door")
        return tuple(sorted(actions))

    def _look(self, house: _House) -> str:
        room = _ROOMS[house.room]
        lines = [f"You are in the {room}."]
        if room == self._coin:
            lines.append("There is an open box with a coin." if house.opened else "A box is here.")
        if room == self._trap:
            lines.append("There is a trap door.")
        return "\n".join(lines)

    def _state(self, house: _House, text: str) -> GameState:
        score = 1.0 if house.taken else 0.5 if house.opened else 0.0
        return GameState(
            observation=text,
            admissible_actions=self._actions(house),
            score=0.0 if house.fallen else score,
            raw_score=-1.0 if house.fallen else score,
            won=house.taken,
            lost=house.fallen,
            state_key=(
                f"{_ROOMS[house.room]}{house.opened:d}{house.taken:d}{house.fallen:d}{house.asked:d}"
            ),
            pending=text if house.asked else None,
            reached=frozenset(
                [f"place: {_ROOMS[house.room]}"]
                + ["object: coin"] * house.opened
                + ["state: coin taken"] * house.taken
            ),
            engine_done=house.taken or house.fallen,
        )
