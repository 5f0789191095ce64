"""How a model's reply is read.

The grammar: reasoning in ``<think>…</think>``, then ``<parallel>…</parallel>`` around an entry
``<env_i>action</env_i>`` for each replica i, from 1, that is to act; with a single replica
``<action>…</action>`` will do. What does not follow it is reported, never guessed at: no action is
made up, none is replaced by another, and nothing in the reasoning or in an entry that was cut off
is run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

__all__ = ["ISSUE_CODES", "Issue", "IssueCode", "Reply", "parse_reply", "render_reply"]

IssueCode = Literal[
    "no_action",  # No entry was found, and nothing else says why.
    "unclosed_think",  # The reasoning never ended: all that follows its tag is reasoning.
    "truncated",  # Cut at the token limit: in this entry, or (env None) where more may have come.
    "tag_mismatch",  # An entry that is not closed by its own number, or a closing tag on its own.
    "duplicate",  # The replica is addressed more than once: none of its entries is run.
    "index_out_of_range",  # No such replica; env is None where the number has ten digits or more.
    "empty_action",  # Nothing in the entry: the replica is left alone.
    "multiple_actions",  # More than one line, or more than one <action>: none of them is run.
    "not_admissible",  # Not in the list of that replica. A flag: the action stays as it was said.
    "extra_block",  # More than one block holds entries: only one of them counts.
]
ISSUE_CODES: tuple[IssueCode, ...] = get_args(IssueCode)
_Code = IssueCode | None

# Tags are ASCII: else a Kelvin sign would match the k of think. A pattern backtracks only over the
# blanks and digits of one tag, so every search is linear.
_FLAGS = re.IGNORECASE | re.ASCII
_THINK = re.compile(r"<(/?)think\s*>", _FLAGS)
_BLOCK = re.compile(r"<(/?)parallel\s*>", _FLAGS)
_ENV = re.compile(r"<(/?)env_([0-9]+)\s*>", _FLAGS)
_ACTION = re.compile(r"<(/?)action\s*>", _FLAGS)

# Code, bold and quotation marks by their opening half; only pairs are taken off.
_MARKS = {mark: mark for mark in "`*_\"'"} | {"“": "”", "‘": "’", "«": "»"}

# Of an entry: whether it closes; its number, None where that is too long; where it starts and ends.
_Tag = tuple[bool, int | None, int, int]


@dataclass(frozen=True)
class Issue:
    """Something in a reply that is not as it should be.

    Attributes:
        code: What is wrong, one of `ISSUE_CODES`.
        env: The number, from 1, that the entry carries; None where the whole reply is meant.
        text: What the model wrote in that entry, as it stands.
    """

    code: IssueCode
    env: int | None = None
    text: str = ""


@dataclass(frozen=True)
class Reply:
    """What a model's reply says.

    Attributes:
        actions: The action of each replica that is to act, by its number, from 1.
        issues: What is wrong, entries first; at most one of a kind for each number.
        reasoning: The text of the reasoning; several parts are joined by line breaks.
    """

    actions: dict[int, str]
    issues: tuple[Issue, ...] = ()
    reasoning: str = ""

    @property
    def format_ok(self) -> bool:
        """Whether the reply follows the grammar, be its actions admissible or not."""
        return all(issue.code == "not_admissible" for issue in self.issues)


def parse_reply(
    text: str | None,
    n: int,
    admissible: Sequence[Collection[str]] | None = None,
    finish_reason: str | None = "stop",
    *,
    lower: bool = False,
) -> Reply:
    """Return the actions of a reply to n replicas, and what is wrong with it, in linear time.

    - **Reasoning** is every balanced think block; all text before a closing tag that has no opening
      one (chat templates may write that one themselves); all text after an opening tag that is
      never closed. Where the prompt ended with an opening tag, put it before `text`: else a reply
      that was cut while reasoning does not show it.
    - **Entries** are read from the ``<parallel>`` block alone where one is outside the reasoning,
      else from all text outside of it. A block ends at its closing tag, at the next opening one, or
      with the reply. Of several with entries the first after the reasoning counts: later ones may
      answer an observation that the model made up.
    - **Tags** may be upper case and have blanks before their ``>``. For n = 1, where no env tag is
      among the entries, ``<action>`` elements are replica 1's.
    - **Clean-up**: ``<action>`` tags in an entry go, and around the action blanks, pairs of marks
      (`` ` ``, ``*``, ``_``, quotes) and one full stop; runs of blanks become one. A text that is
      admissible as it stands stays.
    - ``null`` and ``none`` leave the replica alone, as no entry does; a reply may do so with all.

    Args:
        text: The reply; None, which some servers send, is read as ``""``.
        n: Number of replicas, at least 1.
        admissible: The admissible actions of each replica; None when they are not known.
        finish_reason: Why generation ended; "length" means that the token limit cut it off.
        lower: Write actions in lower case; where the lists are known, only an action that becomes
            admissible by it. For engines that know no upper case, as ALFWorld.

    Raises:
        ValueError: n is less than 1, or `admissible` has not n items. No text raises anything.

    Example:
        >>> text = "<think>Not <env_1>look</env_1>.</think><env_2>**go to bed 1.**</env_2>"
        >>> parse_reply(text, n=2)
        Reply(actions={2: 'go to bed 1'}, issues=(), reasoning='Not <env_1>look</env_1>.')
        >>> cut = parse_reply("<parallel><env_1>look</env_1><env_2>go to b", 2, None, "length")
        >>> cut.actions, cut.issues, cut.format_ok
        ({1: 'look'}, (Issue(code='truncated', env=2, text='go to b'),), False)
        >>> parse_reply("<think>Go.</think><action>go to bed 1</action>", n=1).actions
        {1: 'go to bed 1'}
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}.")
    if admissible is not None and len(admissible) != n:
        raise ValueError(f"admissible must have {n} items, one per replica, got {len(admissible)}.")
    reasoning, said, lead, unclosed = _split(text or "")
    part, runs_out, extra = _counting_part(said, lead, n)
    cut = runs_out and finish_reason == "length"
    tags = _tags(part, n)
    addressed = Counter(env for closing, env, _, _ in tags if not closing)
    again: IssueCode = "duplicate" if _ENV.search(part) else "multiple_actions"

    actions: dict[int, str] = {}
    found: dict[tuple[IssueCode, int | None], str] = {}
    for env, body, code in _entries(part, tags, cut):
        if env is None or not 1 <= env <= n:
            code = code or "index_out_of_range"
        elif addressed[env] > 1:
            found.setdefault((again, env), body)
        elif code is None:
            choices = None if admissible is None else admissible[env - 1]
            action, code = _action(body, choices, lower)
            if action:
                actions[env] = action
        if code:
            found.setdefault((code, env), body)
    if extra:
        found["extra_block", None] = ""
    if unclosed:
        found["unclosed_think", None] = ""
    elif cut and not any(code == "truncated" for code, _ in found):
        found["truncated", None] = ""
    elif not tags:
        found["no_action", None] = ""
    return Reply(actions, tuple(Issue(*key, body) for key, body in found.items()), reasoning)


def render_reply(actions: Mapping[int, str], reasoning: str = "") -> str:
    """Return the reply that says this: `parse_reply` gives back the same actions and reasoning.

    Args:
        actions: An action for each replica that is to act, by its number, from 1: single lines
            without tags that `parse_reply` would not clean up further, nor ``null`` or ``none``.
        reasoning: Text in which think tags, if any, are balanced. Blanks around it are dropped.

    Raises:
        ValueError: The grammar cannot carry these actions or this reasoning.

    Example:
        >>> print(render_reply({1: "go to bed 1", 3: "look"}, "Two places at once."))
        <think>Two places at once.</think>
        <parallel>
        <env_1>go to bed 1</env_1>
        <env_3>look</env_3>
        </parallel>
    """
    reasoning = reasoning.strip()
    lines = [f"<think>{reasoning}</think>"] if reasoning else []
    entries = [f"<env_{env}>{action}</env_{env}>" for env, action in sorted(actions.items())]
    text = "\n".join([*lines, "<parallel>", *entries, "</parallel>"])
    reply = parse_reply(text, max([1, *actions]))
    if (reply.actions, reply.reasoning) != (dict(actions), reasoning):
        raise ValueError(
            "actions must be clean single lines numbered from 1, and think tags balanced; this "
            f"would be read as {reply.actions!r} after {reply.reasoning!r}."
        )
    return text


def _split(text: str) -> tuple[str, str, int, bool]:
    """Return the reasoning, the rest, how much of the rest precedes it, and if it never ends."""
    # Spans, not slices: every closing tag on its own takes back all that was read before it.
    inside: list[tuple[int, int]] = []
    outside: list[tuple[int, int]] = []
    depth = start = 0
    for tag in _THINK.finditer(text):
        closing = bool(tag[1])
        if closing and depth == 0:
            inside, outside, start, depth = [], [], 0, 1
        if depth == (1 if closing else 0):
            (inside if closing else outside).append((start, tag.start()))
            start = tag.end()
        depth += -1 if closing else 1
    (inside if depth else outside).append((start, len(text)))
    thoughts = (text[start:end].strip() for start, end in inside)
    # A line break, so that reasoning in the middle of a tag or an action never joins its halves.
    said = "\n".join(text[start:end] for start, end in outside)
    lead = 0 if outside[0][0] else outside[0][1]
    return "\n".join(filter(None, thoughts)), said, lead, depth > 0


def _counting_part(said: str, lead: int, n: int) -> tuple[str, bool, bool]:
    """Return the text whose entries count, if the reply ends in it, and if other blocks have some.

    The first `lead` characters of `said` precede all reasoning.
    """
    tags = list(_BLOCK.finditer(said))
    ends = [*(tag.start() for tag in tags[1:]), None]
    blocks = [(tag.end(), end) for tag, end in zip(tags, ends, strict=False) if not tag[1]]
    if not blocks:
        return said, True, False
    filled = [(start, end) for start, end in blocks if _tags(said[start:end], n)]
    start, end = min(filled or blocks, key=lambda block: (block[1] or len(said)) <= lead)
    return said[start:end], end is None, len(filled) > 1


def _tags(part: str, n: int) -> list[_Tag]:
    """Return the tags of entries: those that carry a number, or the only replica's own."""
    tags = [(bool(tag[1]), _number(tag[2]), *tag.span()) for tag in _ENV.finditer(part)]
    if n == 1 and not tags:
        return [(bool(tag[1]), 1, *tag.span()) for tag in _ACTION.finditer(part)]
    return tags


def _number(digits: str) -> int | None:
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) < 10 else None  # int() refuses more than 4300 digits.


def _entries(part: str, tags: list[_Tag], cut: bool) -> Iterator[tuple[int | None, str, _Code]]:
    """Yield the number and the text of each entry, and what is wrong with its tags.

    Entries do not nest: an opening tag ends an entry that is still open.
    """
    opened: tuple[int | None, int] | None = None
    for closing, env, start, end in tags:
        if opened is not None:
            whole = closing and env == opened[0]
            yield opened[0], part[opened[1] : start], None if whole else "tag_mismatch"
        elif closing:
            yield env, "", "tag_mismatch"
        opened = None if closing else (env, end)
    if opened is not None:
        yield opened[0], part[opened[1] :], "truncated" if cut else "tag_mismatch"


def _action(body: str, choices: Collection[str] | None, lower: bool) -> tuple[str, _Code]:
    """Return the action in the body of an entry, ``""`` for none, and what is wrong with it."""
    if choices is not None and body.strip() in choices:
        return body.strip(), None
    # Each <action> is a line of its own: one around everything goes, a second one is a second line.
    text = _bare(_ACTION.sub("\n", body))
    if not text:
        return "", "empty_action"
    if text.lower() in ("null", "none"):
        return "", None
    if sum(1 for line in text.splitlines() if line.strip()) > 1:
        return "", "multiple_actions"
    action = " ".join(text.split())
    if choices is None:
        return action.lower() if lower else action, None
    if lower and action not in choices and action.lower() in choices:
        return action.lower(), None
    return action, None if action in choices else "not_admissible"


def _bare(text: str) -> str:
    """Return text without the blanks, pairs of marks and one full stop around it."""
    start, end, stop = 0, len(text), "."
    while start < end:
        if text[start].isspace():
            start += 1
        elif text[end - 1].isspace():
            end -= 1
        elif end - start > 1 and _MARKS.get(text[start]) == text[end - 1]:
            start, end = start + 1, end - 1
        elif text[end - 1] == stop:
            end, stop = end - 1, ""
        else:
            break
    return text[start:end]
