"""The expert agent: the ceiling of every table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.agent import Agent, AgentError, View

__all__ = ["ExpertAgent", "handcoded"]


@dataclass(frozen=True)
class ExpertAgent(Agent):
    """Plays the engine's own expert plan in the first replica and leaves the others alone.

    Where the expert finds no plan, or one longer than the turn limit, the episode is not won: the
    row of an expert is a measured rate, not 100 %.

    Args:
        expert: Name of the engine's expert; None takes its best one.
    """

    expert: str | None = None

    @property
    def settings(self) -> Mapping[str, Any]:
        """Which expert it is."""
        return {"expert": self.expert} if self.expert else {}

    def act(self, views: Sequence[View]) -> list[tuple[str, ...] | AgentError]:
        """Return a joint action for each episode."""
        return [self._next(view) for view in views]

    def _next(self, view: View) -> tuple[str, ...]:
        if "plan" not in view.memory:
            view.memory["plan"] = iter(view.expert_plan(0, self.expert))
        return (next(view.memory["plan"], ""),) + ("",) * (view.n - 1)


def handcoded() -> ExpertAgent:
    """Return ALFWorld's hand-coded expert, which searches instead of knowing."""
    return ExpertAgent("handcoded")
