"""The loophole agent: it solves nothing, and two public success rules call it successful."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agents.agent import Agent, AgentError, View

__all__ = ["LoopholeAgent"]


@dataclass(frozen=True)
class LoopholeAgent(Agent):
    """Waits until ScienceWorld's own step limit has passed, then does the first sub-goal.

    Rules such as "done and score > 0" and "done and the last step paid" take the time-out for an
    end and the points for a success. It is here to show what a column by those rules means; by this
    project's rule, the score of 100, it has 0 % where one sub-goal is not the whole task.
    """

    expert = "gold"
    waits = 10  # of 11 ticks each; the stock limit is 100

    def act(self, views: Sequence[View]) -> list[tuple[str, ...] | AgentError]:
        """Return a joint action for each episode."""
        return [self._next(view) for view in views]

    def _next(self, view: View) -> tuple[str, ...]:
        if "plan" not in view.memory:
            view.memory["plan"] = iter(view.expert_plan(0, self.expert))
        idle = ("",) * (view.n - 1)
        if view.info["turn"] < self.waits:
            return ("wait", *idle)
        if "points" not in view.memory:
            view.memory["points"] = view.info["score"][0]
        paid = view.info["score"][0] > view.memory["points"]
        return ("" if paid else next(view.memory["plan"], ""), *idle)
