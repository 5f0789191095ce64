"""Grammars: what a walk can write is what the grammar says, in tokens and as an expression."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.chat.grammar import (
    Choice,
    Free,
    Grammar,
    TokenGrammar,
    parallel_grammar,
    react_grammar,
    to_regex,
)
from agents.reply import parse_reply

END = 0  # the token that ends a reply; the others are letters, and pairs of them
PAIRS = ["</", "en", "v_", "a ", "go", "to"]
PLAIN = [*(ord(c) for c in map(chr, range(32, 127)) if c != "<"), -2, -3, -4, -5, -6]


def encode(text: str) -> tuple[int, ...]:
    tokens, place = [], 0
    while place < len(text):
        pair = text[place : place + 2]
        tokens.append(-1 - PAIRS.index(pair) if pair in PAIRS else ord(text[place]))
        place += len(pair) if pair in PAIRS else 1
    return tuple(tokens)


def decode(tokens: Sequence[int]) -> str:
    return "".join(PAIRS[-1 - t] if t < 0 else chr(t) for t in tokens if t != END)


def walk(grammar: Grammar, rng: random.Random, wish: str = "") -> str:
    """Write a reply: `wish` where anything goes, a random token where there is a choice."""
    walker = TokenGrammar(grammar, encode, PLAIN, END)
    tokens: list[int] = []
    wanted = iter(encode(wish))
    for _ in range(2000):
        allowed = walker.allowed()
        free = len(allowed) > len(PLAIN)
        token = next(wanted, encode("</think>")[0]) if free else rng.choice(allowed)
        assert token in allowed
        tokens.append(token)
        if allowed == [END]:
            return decode(tokens)
        walker.advance(token)
    raise AssertionError("the walk has no end")


actions = st.lists(
    st.text("abc go<>/_1", min_size=1, max_size=8).map(str.strip).filter(bool),
    unique=True,
    max_size=5,
)


@given(st.lists(actions, min_size=1, max_size=4), st.randoms())
def test_a_walk_writes_admissible_actions_only(lists: list[list[str]], rng) -> None:
    text = walk(parallel_grammar(lists, 0), rng)
    assert re.fullmatch(to_regex(parallel_grammar(lists, 0)), text)
    if not any("<" in action or ">" in action for each in lists for action in each):
        reply = parse_reply(text, len(lists), lists)
        assert {issue.code for issue in reply.issues} <= {"no_action"}
        assert reply.actions or not reply.format_ok
        assert all(action in lists[i - 1] for i, action in reply.actions.items())


def test_every_reply_can_be_written() -> None:
    grammar = parallel_grammar([["go to a", "go to ab"], [], ["look"]], 0)
    found = {walk(grammar, random.Random(seed)) for seed in range(200)}
    chosen = {tuple(sorted(parse_reply(text, 3).actions.items())) for text in found}
    assert chosen == {
        (*first, *third)
        for first in ((), ((1, "go to a"),), ((1, "go to ab"),))
        for third in ((), ((3, "look"),))
    }


@pytest.mark.parametrize(
    ("wish", "written"),
    [
        ("Left.", "<think>Left.</think>"),
        ("x" * 500, "<think>" + "x" * 30 + "</think>"),  # the end is written for it
        ("", "<think></think>"),
    ],
)
def test_reasoning_is_free_and_always_ends(wish: str, written: str) -> None:
    text = walk(react_grammar(["look"], 30), random.Random(0), wish)
    assert text.replace("\n", "") == written.replace("\n", "") + "<action>look</action>"
    assert parse_reply(text, 1, [["look"]]).actions == {1: "look"}


def test_as_an_expression_reasoning_cannot_hold_actions() -> None:
    expression = to_regex(react_grammar(["look", "a.b"], 10))
    assert re.fullmatch(expression, "<think>Hm.</think>\n<action>a.b</action>")
    for text in (
        "<think>Hm.</think>\n<action>axb</action>",
        "<think><action>look</action></think>\n<action>look</action>",
        "<think>" + "x" * 41 + "</think>\n<action>look</action>",
        "<action>look</action>",
    ):
        assert not re.fullmatch(expression, text)


def test_a_choice_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one option"):
        react_grammar([], 0)
    assert Choice(("a",)) != Free("a", 1)
