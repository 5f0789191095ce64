"""`Episode`: the record of a parallel trajectory, as JSON and back, and its replay."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

from parallel_envs.errors import ParallelEnvsError

if TYPE_CHECKING:
    from parallel_envs.env import ParallelTextEnv

__all__ = ["SCHEMA", "Episode", "ReplayError", "Turn", "replay", "text_hash"]

SCHEMA = 1


class ReplayError(ParallelEnvsError):
    """A replay went another way than its record; the message names the first difference."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn; every tuple has one item for each replica.

    Attributes:
        actions: What the agent chose, ``""`` where it left a replica alone.
        acted: Whether the action was sent.
        admissible: Whether it was in the admissible list.
        observations: Hashes of what the replicas show after the turn.
        state_keys: The replicas' states after the turn.
        checkpoints: Numbers of the episode's checkpoints that the replica reached first now.
        scores: The replicas' scores after the turn, in [0, 1].
        raw_scores: The engine's own scores after the turn.
        won: Which replicas have won.
        closed: Which replicas have ended.
        engine_done: Which ones the engine itself would have called done by now.
        reward: What the turn paid.
    """

    actions: tuple[str, ...]
    acted: tuple[bool, ...]
    admissible: tuple[bool, ...]
    observations: tuple[str, ...]
    state_keys: tuple[str, ...]
    checkpoints: tuple[tuple[int, ...], ...]
    scores: tuple[float, ...]
    raw_scores: tuple[float, ...]
    won: tuple[bool, ...]
    closed: tuple[bool, ...]
    engine_done: tuple[bool, ...]
    reward: float


@dataclass(frozen=True, slots=True)
class Episode:
    """A parallel trajectory: what was played, under which protocol, and what came of it.

    Attributes:
        engine: Short name of the engine.
        split: Split of the task.
        task_id: The task.
        task_type: Its type.
        n: Number of replicas.
        max_turns: Turn limit.
        stop: Stop rule.
        versions: Versions of what decides the games.
        start_observation: Hash of the text that all replicas start with.
        start_key: The state that all replicas start in.
        checkpoints: Names of the task's checkpoints that the start has not reached yet.
        turns: What was played, turn by turn.
        terminated: A replica has won, or all have ended.
        truncated: The turn limit was reached.
        schema: Version of this record's form.

    Example:
        >>> from parallel_envs import ParallelTextEnv
        >>> from parallel_envs.toy import ToyTasks
        >>> env = ParallelTextEnv(ToyTasks(), n=2, max_turns=1)
        >>> _, info = env.reset(seed=0)
        >>> *_, info = env.step(("look", ""))
        >>> episode = info["record"]
        >>> len(episode.turns), episode.steps, episode.best_score, episode.won
        (1, 1, 0.0, False)
        >>> Episode.from_json(episode.to_json()) == episode
        True
    """

    engine: str
    split: str
    task_id: str
    task_type: str
    n: int
    max_turns: int
    stop: str
    versions: Mapping[str, str]
    start_observation: str
    start_key: str
    checkpoints: tuple[str, ...]
    turns: tuple[Turn, ...]
    terminated: bool
    truncated: bool
    schema: int = SCHEMA

    @property
    def won(self) -> bool:
        """Whether a replica has won."""
        return any(self.turns[-1].won) if self.turns else False

    @property
    def best_score(self) -> float:
        """Best score of any replica at any time, which is the episode's return."""
        return max((max(turn.scores) for turn in self.turns), default=0.0)

    @property
    def raw_score(self) -> float:
        """The engine's own score of the replica that stands best at the end; 0 without turns."""
        return max(self.turns[-1].raw_scores) if self.turns else 0.0

    @property
    def ended(self) -> str | None:
        """``"won"``, ``"lost"`` (all replicas ended unsolved), ``"turn_limit"``, None: cut off."""
        if self.terminated:
            return "won" if self.won else "lost"
        return "turn_limit" if self.truncated else None

    @property
    def steps(self) -> int:
        """Actions sent, summed over replicas."""
        return sum(sum(turn.acted) for turn in self.turns)

    def actions_of(self, replica: int) -> tuple[str, ...]:
        """Return the actions that were sent to a replica, blanks joined."""
        return tuple(
            " ".join(turn.actions[replica].split()) for turn in self.turns if turn.acted[replica]
        )

    def visits_of(self, replica: int) -> tuple[str, ...]:
        """Return the states that a replica was in: the start, and one after each action."""
        later = (turn.state_keys[replica] for turn in self.turns if turn.acted[replica])
        return (self.start_key, *later)

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain data for `json.dumps`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote, after a trip through JSON.

        Raises:
            ValueError: The record has another form than this version's.
        """
        if data.get("schema") != SCHEMA:
            raise ValueError(f"expected an episode of schema {SCHEMA}, not {data.get('schema')!r}")

        turns = tuple(
            Turn(**{key: _tuples(value) for key, value in turn.items()}) for turn in data["turns"]
        )
        return cls(**{**data, "checkpoints": tuple(data["checkpoints"]), "turns": turns})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def text_hash(text: str) -> str:
    """Return a short hash of an observation.

    Example:
        >>> text_hash("Nothing happens.")
        '5a19070cf4dc1880'
    """
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def replay(episode: Episode, env: ParallelTextEnv) -> Episode:
    """Play an episode again and confirm everything it says.

    Args:
        episode: The record.
        env: An environment of the episode's engine, split, n, turn limit and stop rule.

    Returns:
        The record of the replay, which equals `episode`.

    Raises:
        ReplayError: Something differs; the message says what, and where first.

    Example:
        >>> from parallel_envs import ParallelTextEnv
        >>> from parallel_envs.toy import ToyTasks
        >>> env = ParallelTextEnv(ToyTasks(), n=1, max_turns=2)
        >>> _ = env.reset(seed=0), env.step(("go east",))
        >>> *_, info = env.step(("look",))
        >>> replay(info["record"], ParallelTextEnv(ToyTasks(), n=1, max_turns=2)).steps
        2
    """
    ours = {
        "engine": env.task_set.engine,
        "split": env.task_set.split,
        "n": env.n,
        "max_turns": env.max_turns,
        "stop": env.stop,
        "versions": dict(env.task_set.versions),
    }
    for name, value in ours.items():
        recorded = getattr(episode, name)
        if recorded != value:
            raise ReplayError(f"{name} is {recorded!r} in the record and {value!r} here")
    _, info = env.reset(options={"task_id": episode.task_id})
    ended = False
    for number, turn in enumerate(episode.turns, start=1):
        if ended:
            raise ReplayError(f"the replay of {episode.task_id} has ended before turn {number}")
        _, _, terminated, truncated, info = env.step(turn.actions)
        ended = terminated or truncated
    again = env.record(episode.terminated, episode.truncated) if not ended else info["record"]
    _require_equal(episode, again)
    return again


def _require_equal(recorded: Episode, played: Episode) -> None:
    def differ(where: str, name: str, one: Any, other: Any) -> ReplayError:
        return ReplayError(
            f"{recorded.task_id}, {where}: {name} is {one!r} in the record and {other!r} in the "
            "replay"
        )

    for number, (one, other) in enumerate(zip(recorded.turns, played.turns, strict=True), start=1):
        for name in Turn.__slots__:
            if getattr(one, name) != getattr(other, name):
                raise differ(f"turn {number}", name, getattr(one, name), getattr(other, name))
    for name in Episode.__slots__:
        one, other = getattr(recorded, name), getattr(played, name)
        if name != "turns" and one != other:
            raise differ("the whole", name, one, other)
