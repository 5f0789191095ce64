"""What a reply may be: a grammar of free text and choices, for decoding that cannot leave it.

A back end that samples itself walks a grammar token by token (`TokenGrammar`); a server is given it
as a regular expression (`to_regex`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = [
    "Choice",
    "Free",
    "Grammar",
    "TokenGrammar",
    "parallel_grammar",
    "react_grammar",
    "to_regex",
]


@dataclass(frozen=True, slots=True)
class Free:
    """Any text without a ``<``, then `end`, which after `limit` tokens is written unasked."""

    end: str
    limit: int


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the options, to the letter; nothing as well, if it is optional."""

    options: tuple[str, ...]
    optional: bool = False

    def __post_init__(self) -> None:
        if not self.options:
            raise ValueError("a choice needs at least one option")


Grammar = tuple[Free | Choice, ...]


def parallel_grammar(admissible: Sequence[Sequence[str]], think: int) -> Grammar:
    r"""Return the grammar of a parallel reply: for each replica an admissible action or none.

    A reply that leaves every replica alone is possible, but not where only one could act.

    Args:
        admissible: The admissible actions of each replica, none for one that has ended.
        think: Greatest number of tokens of reasoning; 0 leaves it out.

    Example:
        >>> [part.options for part in parallel_grammar([["look"], []], 0)]
        [('<parallel>\n',), ('<env_1>look</env_1>\n',), ('</parallel>',)]
    """
    parts: list[Free | Choice] = [Choice(("<parallel>\n",))]
    several = sum(map(bool, admissible)) > 1
    for number, actions in enumerate(admissible, start=1):
        if actions:
            entries = (f"<env_{number}>{action}</env_{number}>\n" for action in actions)
            parts.append(Choice(tuple(entries), optional=several))
    return (*_reasoning(think), *parts, Choice(("</parallel>",)))


def react_grammar(admissible: Sequence[str], think: int) -> Grammar:
    """Return the grammar of a reply for a single replica: an admissible action.

    Example:
        >>> react_grammar(["look", "go east"], 0)
        (Choice(options=('<action>look</action>', '<action>go east</action>'), optional=False),)
    """
    actions = Choice(tuple(f"<action>{action}</action>" for action in admissible))
    return (*_reasoning(think), actions)


def to_regex(grammar: Grammar) -> str:
    r"""Return the grammar as a regular expression, for servers that decode by one.

    A limit of tokens cannot be expressed; characters, four for a token, stand for it.

    Example:
        >>> to_regex((Choice(("a.b", "c")), Choice(("d",))))
        '(a\\.b|c)(d)'
    """
    parts = []
    for part in grammar:
        if isinstance(part, Choice):
            may = "?" if part.optional else ""
            parts.append(f"({'|'.join(map(re.escape, part.options))}){may}")
        else:
            # No "<" in the reasoning, so that its end is the first one.
            parts.append(f"[^<]{{0,{4 * part.limit}}}{re.escape(part.end)}")
    return "".join(parts)


def _reasoning(think: int) -> Grammar:
    return (Choice(("<think>",)), Free("</think>\n", think)) if think else ()


class TokenGrammar:
    """Walks one reply through a grammar: which tokens may come next.

    Each option is the tokenizer's own spelling of it, so the text is exact; where two parts meet,
    the tokens can be others than the tokenizer would choose for the whole.

    Args:
        grammar: What the reply may be.
        encode: Returns the tokens of a text, without special ones; none for a text that they
            cannot spell, which is no option then.
        plain: The tokens that hold no ``<`` and end nothing, for free text.
        end: The token that ends a reply.
    """

    def __init__(
        self,
        grammar: Grammar,
        encode: Callable[[str], tuple[int, ...]],
        plain: Sequence[int],
        end: int,
    ) -> None:
        self._grammar, self._encode, self._plain, self._end = grammar, encode, plain, end
        self._part = 0
        self._free: Free | None = None  # the part where anything goes, if that is where we are
        self._written: list[int] = []  # in this part
        # Else what can still be written, and the part that comes after it.
        self._options: list[tuple[tuple[int, ...], int]] = []
        self._enter(0)

    def allowed(self) -> Sequence[int]:
        """Return the tokens that may come next."""
        if self._free is not None:
            return [*self._plain, self._encode(self._free.end)[0]]
        if not self._options:
            return [self._end]
        place = len(self._written)
        return sorted({option[place] for option, _ in self._options})

    def advance(self, token: int) -> None:
        """Take the token that came."""
        self._written.append(token)
        if self._free is not None:
            end = self._encode(self._free.end)
            if token != end[0] and len(self._written) < self._free.limit:
                return
            # It has begun the end, or has said enough: what is missing of the end follows.
            self._options, self._free = [(end, self._part + 1)], None
            self._written = [token] if token == end[0] else []
        place = len(self._written)
        if place:
            self._options = [o for o in self._options if o[0][place - 1] == token]
        for option, after in self._options:
            if len(option) == place:
                self._enter(after)
                return

    def _enter(self, part: int) -> None:
        """Go on to a part; while it may be left out, what follows is possible as well."""
        self._part, self._free, self._written, self._options = part, None, [], []
        for number in range(part, len(self._grammar)):
            current = self._grammar[number]
            if isinstance(current, Free):
                self._free = current  # never after a part that may be left out
                return
            spelled = ((self._encode(option), number + 1) for option in current.options)
            self._options += [(tokens, after) for tokens, after in spelled if tokens]
            if not current.optional:
                return
