"""Parts of a prompt: what a game says, marked as such, and how it is cut to a token budget.

All words of the game, and all actions that were sent, stand in quoted lines, which begin with
``> `` (an action: with its number), verbatim. Every line of a text is marked, so whatever a game
prints, tags and headings included, it can neither end its quotation nor pass for a part of the
prompt.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

__all__ = ["MARK", "Choices", "Message", "Pairs", "Part", "Prompt", "Quote", "fitted", "quoted"]

Message = dict[str, str]  # "role" and "content"

MARK = "> "


@dataclass(frozen=True, slots=True)
class Quote:
    """A game's text, whose first line begins with `lead`; its headline may be empty."""

    head: str
    text: str
    lead: str = MARK


@dataclass(frozen=True, slots=True)
class Pairs:
    """One replica's pairs of action and observation, as they are shown, the oldest first.

    `older` is how many more of them the style itself leaves out.
    """

    head: str
    items: tuple[str, ...]
    older: int = 0


@dataclass(frozen=True, slots=True)
class Choices:
    """A list of admissible actions."""

    head: str
    actions: tuple[str, ...]


Part = str | Quote | Pairs | Choices  # A plain text is never cut.


@dataclass(frozen=True, slots=True)
class Prompt:
    """Chat messages, and what was left out of them.

    Attributes:
        messages: A system and a user message.
        dropped_pairs: Pairs of action and observation that the budget had no room for.
        dropped_actions: Admissible actions that the style's cap or the budget left out.
        shortened: Texts that were shortened.
        tokens: What `count` said of the messages, None when they were not counted.
        over_budget: They are too long still, with all left out that can be.
    """

    messages: list[Message]
    dropped_pairs: int = 0
    dropped_actions: int = 0
    shortened: int = 0
    tokens: int | None = None
    over_budget: bool = False


def fitted(
    system: str,
    parts: Sequence[Part],
    cap: int | None = None,
    budget: int | None = None,
    count: Callable[[list[Message]], int] | None = None,
) -> Prompt:
    """Return the prompt made of a system message and parts, cut until it fits the budget.

    Args:
        system: The system message, which is never cut.
        parts: The parts of the user message.
        cap: How many actions of a list are shown at most, None for all.
        budget: Most tokens that the messages may have; None for no limit.
        count: Counts the tokens of messages; a budget needs it.

    Example:
        >>> prompt = fitted("Play.", ["Hello.", Quote("It says:", "<env_1>")])
        >>> print(prompt.messages[1]["content"])
        Hello.
        It says:
        > <env_1>
    """
    cuts = _cuts(parts, cap)

    @functools.cache
    def after(number: int) -> Prompt:
        prompt = _prompt(system, parts, cuts, number)
        return prompt if count is None else replace(prompt, tokens=count(prompt.messages))

    def fits(number: int) -> bool:
        return budget is None or (after(number).tokens or 0) <= budget

    if fits(0):
        return after(0)
    # Whatever `count` says, this ends at a prompt that was counted and fits, or at the shortest.
    number = 1 + bisect_left(range(1, sum(cuts)), True, key=fits)
    return replace(after(number), over_budget=not fits(number))


def quoted(text: str, lead: str = MARK) -> str:
    r"""Return a game's text with a mark before each line, else verbatim.

    Example:
        >>> quoted("a\n<env_1>b</env_1>", "1. ")
        '1. a\n> <env_1>b</env_1>'
    """
    return lead + MARK.join(text.splitlines(keepends=True))


# Cutting. What says that something is left out is never longer than what says that nothing is, so
# that every cut makes the prompt shorter: a larger budget never shows less.


def _cuts(parts: Sequence[Part], cap: int | None) -> tuple[int, int, int]:
    """Return how often pairs can be dropped, all lists capped harder, all texts shortened."""
    pairs = sum(len(part.items) for part in parts if isinstance(part, Pairs))
    actions = max((len(part.actions) for part in parts if isinstance(part, Choices)), default=0)
    text = max((len(part.text) for part in parts if isinstance(part, Quote)), default=0)
    return pairs, actions if cap is None else min(cap, actions), text


def _prompt(system: str, parts: Sequence[Part], cuts: tuple[int, int, int], number: int) -> Prompt:
    """Return the prompt after the first `number` of all cuts."""
    pairs = min(number, cuts[0])
    cap = max(0, cuts[1] - max(0, number - cuts[0]))
    limit = max(0, cuts[2] - max(0, number - cuts[0] - cuts[1]))
    lines: list[str] = []
    actions = shortened = 0
    gone = iter(_oldest([len(part.items) for part in parts if isinstance(part, Pairs)], pairs))
    for part in parts:
        if isinstance(part, Quote):
            text = _without_middle(part.text, limit)
            shortened += text != part.text
            lines += [part.head] if part.head else []
            lines += [quoted(text, part.lead)]
        elif isinstance(part, Pairs):
            drop = next(gone)
            older = part.older + drop
            said = f"older ones left out: {older}" if older else "complete, oldest first"
            lines += [f"{part.head} ({said}):", *part.items[drop:]]
        elif isinstance(part, Choices):
            chosen, total = _chosen(part.actions, cap), len(part.actions)
            out = total - len(chosen)
            actions += out
            said = f"{out} of {total} left out" if out else f"complete list of {total}"
            lines += [f"{part.head} ({said}):"]
            lines += [quoted("; ".join(chosen))] if chosen else []
        else:
            lines += [part]
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": "\n".join(lines)},
    ]
    return Prompt(messages, pairs, actions, shortened)


def _oldest(lengths: Sequence[int], number: int) -> list[int]:
    """Return how many of `number` items each list loses when the longest one loses the next.

    Example:
        >>> _oldest([1, 4, 2], 3)
        [0, 3, 0]
    """
    left = list(lengths)
    for _ in range(number):
        left[left.index(max(left))] -= 1
    return [before - after for before, after in zip(lengths, left, strict=True)]


def _chosen(actions: Sequence[str], number: int) -> tuple[str, ...]:
    """Return `number` of the actions, in their order, of as many kinds (first words) as possible.

    The first of each kind go before the second of any: the head of ScienceWorld's list of
    thousands would be of one kind.

    Example:
        >>> _chosen(["go east", "go west", "look", "take coin"], 3)
        ('go east', 'look', 'take coin')
    """
    seen: Counter[str] = Counter()
    ranks = []
    for place, action in enumerate(actions):
        kind = action.partition(" ")[0]
        ranks.append((seen[kind], place))
        seen[kind] += 1
    return tuple(actions[place] for place in sorted(place for _, place in sorted(ranks)[:number]))


def _without_middle(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters, or of those that say how many are left out.

    Example:
        >>> _without_middle("The first part of a text, the middle of it, and the end.", 40)
        'The fi[… 44 characters left out …]e end.'
    """
    notice = "[… {} characters left out …]"
    keep = max(0, limit - len(notice.format(len(text))))
    short = notice.format(len(text) - keep)
    if len(text) <= max(limit, len(short)):
        return text
    return text[: (keep + 1) // 2] + short + text[len(text) - keep // 2 :]
