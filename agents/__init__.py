"""Agents that play parallel text games."""

from agents.agent import (
    Agent,
    AgentError,
    ModelOptions,
    ModelReply,
    View,
    agent_names,
    make_agent,
)

__all__ = ["Agent", "AgentError", "ModelOptions", "ModelReply", "View", "agent_names", "make_agent"]
