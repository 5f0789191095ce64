"""Things that are known by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TypeVar

__all__ = ["look_up"]

T = TypeVar("T")


def look_up(name: str, known: Mapping[str, T], what: str) -> T:
    """Return what a name stands for.

    Args:
        name: The name.
        known: All of them.
        what: What they are, for the message.

    Raises:
        ValueError: It is not known; the message lists those that are, and a near match.

    Example:
        >>> look_up("randm", {"random": 1, "expert": 2}, "agent")
        Traceback (most recent call last):
        ...
        ValueError: no agent is called 'randm'; did you mean 'random'? There are: random, expert.
    """
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ValueError(f"no {what} is called {name!r}{hint} There are: {', '.join(known)}.")
    return known[name]
