"""The random agent: the floor of every table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agents.agent import Agent, AgentError, View

__all__ = ["RandomAgent"]


@dataclass(frozen=True)
class RandomAgent(Agent):
    """Draws an admissible action for every replica that is still open, each equally likely."""

    def act(self, views: Sequence[View]) -> list[tuple[str, ...] | AgentError]:
        """Return a joint action for each episode."""
        return [
            tuple(
                "" if closed or not actions else actions[int(view.rng.integers(len(actions)))]
                for actions, closed in zip(
                    view.info["admissible_actions"], view.info["closed"], strict=True
                )
            )
            for view in views
        ]
