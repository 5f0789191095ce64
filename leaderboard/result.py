"""`Result`: one line of a run, an episode with its evidence or the reason why there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from agents import ModelReply
from parallel_envs.diversity import summary
from parallel_envs.episode import Episode, text_hash

__all__ = ["SCHEMA", "Result", "Texts"]

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Texts:
    """What an episode showed, to be read; the episode's hashes prove it.

    Attributes:
        task: The sentence that tells the player what to do.
        start: What every replica showed at the start.
        turns: What each replica showed after each turn, ``""`` where it was left alone.
    """

    task: str
    start: str
    turns: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Result:
    """One task of a run. What is unknown because the episode failed is None, never 0.

    The claims in a line (won, score, …) follow from the episode in it; a line in which they do not
    is refused. `leaderboard.verify` replays the episode itself.

    Attributes:
        task_id: The task.
        task_type: Its type.
        episode: The record of what was played, None when the episode failed.
        texts: What it showed.
        replies: What the agent's model said in each turn, empty without a model.
        seconds: Wall time in ``"env"``, ``"agent"`` and altogether, ``"total"``. Where episodes
            run beside one another, each has its share of the agent's time.
        diversity: Exploration metrics of the episode.
        error: Why the episode has no result, else None.
    """

    task_id: str
    task_type: str
    episode: Episode | None
    texts: Texts | None = None
    replies: tuple[ModelReply, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    diversity: Mapping[str, float | None] = field(default_factory=dict)
    error: str | None = None

    def __post_init__(self) -> None:
        if (self.episode is None) == (self.error is None):
            raise ValueError(f"{self.task_id}: a result has either an episode or an error")
        if self.episode is not None and not math.isfinite(self.episode.best_score):
            raise ValueError(f"{self.task_id}: the score {self.episode.best_score} is not finite")

    @classmethod
    def of(
        cls,
        episode: Episode,
        texts: Texts,
        replies: tuple[ModelReply, ...],
        seconds: Mapping[str, float],
    ) -> Self:
        """Return the result of a finished episode."""
        return cls(
            episode.task_id, episode.task_type, episode, texts, replies, seconds, summary(episode)
        )

    @classmethod
    def failed(cls, task_id: str, task_type: str, reason: str) -> Self:
        """Return the result of an episode that an error ended."""
        return cls(task_id, task_type, None, error=reason)

    @property
    def won(self) -> bool | None:
        """Solved."""
        return self.episode.won if self.episode else None

    @property
    def tokens_in(self) -> int | None:
        """Tokens of all prompts, None for agents without a model."""
        return sum(reply.tokens_in for reply in self.replies) if self.replies else None

    @property
    def tokens_out(self) -> int | None:
        """Tokens of all replies, None for agents without a model."""
        return sum(reply.tokens_out for reply in self.replies) if self.replies else None

    @property
    def tokens_cached(self) -> int | None:
        """Tokens of the prompts that were not computed again, None if not known."""
        known = [r.tokens_cached for r in self.replies if r.tokens_cached is not None]
        return sum(known) if known else None

    def claims(self) -> dict[str, Any]:
        """Return what the line says of the episode, all of it a consequence of the record."""
        episode = self.episode
        return {
            "won": self.won,
            "score": episode.best_score if episode else None,
            "raw_score": episode.raw_score if episode else None,
            "ended": episode.ended if episode else None,
            "turns": len(episode.turns) if episode else None,
            "steps": episode.steps if episode else None,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
        }

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data, the claims first."""
        return {
            "schema": SCHEMA,
            "task_id": self.task_id,
            "task_type": self.task_type,
            "error": self.error,
            **self.claims(),
            "seconds": dict(self.seconds),
            "diversity": dict(self.diversity),
            "episode": self.episode.to_json() if self.episode else None,
            "texts": asdict(self.texts) if self.texts else None,
            "replies": [asdict(reply) for reply in self.replies],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote.

        Raises:
            ValueError: It is of another form, or it claims what its own episode contradicts.
        """
        if data.get("schema") != SCHEMA:
            raise ValueError(f"expected a result of schema {SCHEMA}, not {data.get('schema')!r}")
        episode, texts = data["episode"], data["texts"]
        result = cls(
            task_id=data["task_id"],
            task_type=data["task_type"],
            episode=Episode.from_json(episode) if episode else None,
            texts=texts
            and Texts(texts["task"], texts["start"], tuple(tuple(turn) for turn in texts["turns"])),
            replies=tuple(
                ModelReply(
                    **{**reply, "texts": tuple(reply["texts"]), "issues": tuple(reply["issues"])}
                )
                for reply in data["replies"]
            ),
            seconds=data["seconds"],
            diversity=data["diversity"],
            error=data["error"],
        )
        for name, value in result.claims().items():
            if data[name] != value:
                raise ValueError(
                    f"{result.task_id} claims {name} = {data[name]!r}, but its episode says "
                    f"{value!r}"
                )
        return result

    def text_mismatch(self) -> str | None:
        """Return where a text is not the one that the episode has the hash of, else None."""
        episode, texts = self.episode, self.texts
        if episode is None or texts is None:
            return None
        if text_hash(texts.start) != episode.start_observation:
            return "the start"
        if len(texts.turns) != len(episode.turns):
            return f"{len(texts.turns)} turns of texts for {len(episode.turns)} turns"
        for number, (shown, turn) in enumerate(zip(texts.turns, episode.turns, strict=True), 1):
            for replica, text in enumerate(shown):
                if turn.acted[replica] and text_hash(text) != turn.observations[replica]:
                    return f"turn {number}, replica {replica}"
        return None
