"""The errors of the package: each says what was expected, what came, and what to do next."""

from __future__ import annotations

__all__ = [
    "ActionError",
    "DataError",
    "DependencyError",
    "EngineError",
    "ParallelEnvsError",
    "ReplicaMismatchError",
    "UnknownTaskError",
]


class ParallelEnvsError(Exception):
    """Base class: catch this to catch every error that the package raises on purpose."""


class DependencyError(ParallelEnvsError, ImportError):
    """An engine, or the Java it needs, is not installed."""


class DataError(ParallelEnvsError):
    """The game data of a split is missing or is not the official set."""


class UnknownTaskError(ParallelEnvsError, ValueError):
    """A task id or task type that the split does not hold."""


class ActionError(ParallelEnvsError, ValueError):
    """A joint action that is not n strings. Nothing was sent to any replica."""


class ReplicaMismatchError(ParallelEnvsError):
    """Two replicas of one task did not start in the same state."""


class EngineError(ParallelEnvsError):
    """A game engine failed (crashed, hung, or raised): an error, never a result.

    The environment must be reset before it is stepped again; `reset` starts the engine anew.
    """
