"""Agents that play parallel text games."""

from agents.agent import Agent, View, agent_names, make_agent

__all__ = ["Agent", "View", "agent_names", "make_agent"]
