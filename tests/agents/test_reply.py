"""How replies are read: golden cases, laws on random text, and hostile text in linear time."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agents.reply import ISSUE_CODES, Issue, Reply, parse_reply, render_reply

SHARED = Path(__file__).parents[3] / "shared" / "cases" / "llm_replies.json"
CASES = json.loads(SHARED.read_text(encoding="utf-8"))["items"] if SHARED.is_file() else []
CODES = {"DUPLICATE_ENV": "duplicate", "MULTI_ACTION": "multiple_actions"}


def found(reply: Reply) -> list[tuple[str, int | None]]:
    return [(issue.code, issue.env) for issue in reply.issues]


@pytest.mark.skipif(not CASES, reason=f"{SHARED} is not part of a clone")
@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_the_shared_cases(case: dict[str, Any]) -> None:
    n = case["n_envs"]
    lists = case.get("admissible")
    reply = parse_reply(
        case["text"],
        n,
        lists and [lists[str(env)] for env in range(1, n + 1)],
        case["finish_reason"],
        lower=case["backend"] == "alfworld",
    )
    expect = case["expect"]
    assert {str(env): action for env, action in reply.actions.items()} == expect["actions"]
    assert found(reply) == [
        (CODES.get(error["code"], error["code"].lower()), error["env"])
        for error in expect["errors"]
    ]
    assert reply.format_ok == expect["format_ok"]


# Text, n, finish_reason, actions, issues.
GOLDEN: dict[str, tuple[str | None, int, str | None, dict[int, str], list[Any]]] = {
    # Whole replies.
    "none": (None, 2, "stop", {}, [("no_action", None)]),
    "empty": ("", 2, "stop", {}, [("no_action", None)]),
    "prose": ("I would go to bed 1.", 2, None, {}, [("no_action", None)]),
    "square brackets": ("[env_1]look[/env_1]", 2, "stop", {}, [("no_action", None)]),
    "echo of the grammar": (
        "<parallel><env_i>action</env_i></parallel>",
        1,
        "stop",
        {},
        [("no_action", None)],
    ),
    "action without number for many": (
        "<action>look</action>",
        2,
        "stop",
        {},
        [("no_action", None)],
    ),
    "not digits": (
        "<env_١>look</env_١><env_１>look</env_１>",
        2,
        "stop",
        {},
        [("no_action", None)],
    ),
    "no ASCII name": ("<thin\u212a><env_1>look</env_1>", 1, "stop", {1: "look"}, []),
    "signs, parts, attributes": (
        "<env_-1>a</env_-1><env_1.0>b</env_1.0><env_2 x='y'>c",
        2,
        "stop",
        {},
        [("no_action", None)],
    ),
    # Reasoning.
    "nested think": (
        "<think>a<think>b</think><env_1>look</env_1></think><env_2>look</env_2>",
        2,
        "stop",
        {2: "look"},
        [],
    ),
    "nested and never closed": (
        "<think>a<think>b</think><env_1>look</env_1>",
        2,
        "stop",
        {},
        [("unclosed_think", None)],
    ),
    "closing tag takes back what stands before it": (
        "<think>a</think><env_1>look</env_1></think><env_2>look</env_2>",
        2,
        "stop",
        {2: "look"},
        [],
    ),
    "thinking again before the second entry": (
        "<parallel><env_1>a</env_1><think><env_1>b</env_1></think><env_2>c</env_2></parallel>",
        2,
        "stop",
        {1: "a", 2: "c"},
        [],
    ),
    "thinking inside an entry": (
        "<env_1><think>a or b?</think>b</env_1>",
        1,
        "stop",
        {1: "b"},
        [],
    ),
    "reasoning joins no halves of an action": (
        "<env_1>open <think>or not</think>safe 1</env_1>",
        1,
        "stop",
        {},
        [("multiple_actions", 1)],
    ),
    "reasoning joins no halves of a tag": (
        "<env<think></think>_1>look</env_1>",
        1,
        "stop",
        {},
        [("tag_mismatch", 1)],
    ),
    "an entry before reasoning that never ends": (
        "<env_1>look</env_1><think><env_2>look</env_2>",
        2,
        "length",
        {1: "look"},
        [("unclosed_think", None)],
    ),
    # Cut off.
    "cut before the first entry": (
        "<think>a</think>So I",
        2,
        "length",
        {},
        [("truncated", None)],
    ),
    "cut in a tag": (
        "<parallel><env_1>look</env_1><env_",
        2,
        "length",
        {1: "look"},
        [("truncated", None)],
    ),
    "cut in a closing tag": ("<env_1>look</env_1", 1, "length", {}, [("truncated", 1)]),
    "cut after the block": (
        "<parallel><env_1>look</env_1></parallel> So <env_2>lo",
        2,
        "length",
        {1: "look"},
        [],
    ),
    "cut single action": ("<think>a</think><action>go to b", 1, "length", {}, [("truncated", 1)]),
    "stopped without closing the block": (
        "<parallel><env_1>look</env_1>",
        1,
        "stop",
        {1: "look"},
        [],
    ),
    # Entries and their tags.
    "case and blanks of tags": (
        "<THINK >x</Think><Parallel\n><ENV_1 >look</env_1\t></PARALLEL>",
        1,
        "stop",
        {1: "look"},
        [],
    ),
    "leading zeros": ("<env_01>look</env_1>", 1, "stop", {1: "look"}, []),
    "never closed": ("<env_1>look", 1, "stop", {}, [("tag_mismatch", 1)]),
    "closing tag on its own": ("look</env_1>", 1, "stop", {}, [("tag_mismatch", 1)]),
    "entry in an entry": (
        "<env_1>a<env_2>look</env_2></env_1>",
        2,
        "stop",
        {2: "look"},
        [("tag_mismatch", 1)],
    ),
    "block ends in an entry": (
        "<parallel><env_1>look</parallel></env_1>",
        1,
        "stop",
        {},
        [("tag_mismatch", 1)],
    ),
    "closed as another, then addressed again": (
        "<env_1>a</env_2><env_1>look</env_1><env_2>look</env_2>",
        2,
        "stop",
        {2: "look"},
        [("duplicate", 1), ("tag_mismatch", 1)],
    ),
    "the same twice": ("<env_1>a</env_1><env_1>a</env_1>", 1, "stop", {}, [("duplicate", 1)]),
    "out of range": (
        "<env_0>a</env_0><env_3>a</env_3><env_3>b</env_3><env_2>look</env_2>",
        2,
        "stop",
        {2: "look"},
        [("index_out_of_range", 0), ("index_out_of_range", 3)],
    ),
    "out of range and closed as another": (
        "<env_3>a</env_1>",
        2,
        "stop",
        {},
        [("tag_mismatch", 3)],
    ),
    "huge number": (
        f"<env_{'9' * 20}>a</env_{'8' * 5000}><env_1>look</env_1>",
        1,
        "stop",
        {1: "look"},
        [("index_out_of_range", None)],
    ),
    # Blocks.
    "prose after the block": (
        "<env_1>a</env_1><parallel><env_1>look</env_1></parallel><env_2>b</env_2>",
        2,
        "stop",
        {1: "look"},
        [],
    ),
    "stray end of block": ("</parallel><env_1>look</env_1></parallel>", 1, "stop", {1: "look"}, []),
    "two blocks": (
        "<think>a</think><parallel><env_1>look</env_1></parallel>"
        "You see a bed.<think>b</think><parallel><env_2>look</env_2></parallel>",
        2,
        "stop",
        {1: "look"},
        [("extra_block", None)],
    ),
    "block in a block": (
        "<parallel><env_1>look</env_1><parallel><env_2>look</env_2></parallel></parallel>",
        2,
        "stop",
        {1: "look"},
        [("extra_block", None)],
    ),
    "block before the reasoning": (
        "<parallel><env_1>a</env_1></parallel><think></think><parallel><env_1>b</env_1></parallel>",
        1,
        "stop",
        {1: "b"},
        [("extra_block", None)],
    ),
    "blocks around thinking again": (
        "a</think><parallel><env_1>look</env_1></parallel>"
        "<think>b</think><parallel><env_1>b</env_1></parallel>",
        1,
        "stop",
        {1: "look"},
        [("extra_block", None)],
    ),
    "block that opens before the reasoning": (
        "<parallel><think>a</think><env_1>look</env_1></parallel><parallel><env_1>b</env_1>",
        1,
        "stop",
        {1: "look"},
        [("extra_block", None)],
    ),
    "second block never closed": (
        "<parallel><env_1>look</env_1></parallel><parallel><env_1>b</env_1>",
        1,
        "length",
        {1: "look"},
        [("extra_block", None)],
    ),
    "block that is only mentioned": (
        "In <parallel>: <parallel><env_1>look</env_1></parallel>",
        1,
        "stop",
        {1: "look"},
        [],
    ),
    "block without entries": (
        "<parallel></parallel><env_1>look</env_1>",
        1,
        "stop",
        {},
        [("no_action", None)],
    ),
    # What stands in an entry.
    "nothing": ("<env_1> \n</env_1>", 1, "stop", {}, [("empty_action", 1)]),
    "only marks": ("<env_1>**`.`**</env_1>", 1, "stop", {}, [("empty_action", 1)]),
    "left alone": (
        "<env_1>null</env_1><env_2>`None`.</env_2><env_3>look</env_3>",
        3,
        "stop",
        {3: "look"},
        [],
    ),
    "all left alone": ("<parallel><env_1>null</env_1></parallel>", 1, "stop", {}, []),
    "two lines": ("<env_1>look\r\n\r\ngo</env_1>", 1, "stop", {}, [("multiple_actions", 1)]),
    "action tag inside": ("<env_1> <action>look</action> </env_1>", 1, "stop", {1: "look"}, []),
    "two action tags inside": (
        "<env_1><action>look</action><action>go</action></env_1>",
        1,
        "stop",
        {},
        [("multiple_actions", 1)],
    ),
    # One replica.
    "single": (
        "<think><action>a</action></think><action>look</action>",
        1,
        "stop",
        {1: "look"},
        [],
    ),
    "single in a block": ("<parallel><action>look</action>", 1, "stop", {1: "look"}, []),
    "single beside a number": (
        "<action>a</action><env_1>look</env_1>",
        1,
        "stop",
        {1: "look"},
        [],
    ),
    "single twice": (
        "<action>a</action> or <action>b</action>",
        1,
        "stop",
        {},
        [("multiple_actions", 1)],
    ),
    "single never closed": ("<action>look", 1, "stop", {}, [("tag_mismatch", 1)]),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_cases(name: str) -> None:
    text, n, finish_reason, actions, issues = GOLDEN[name]
    reply = parse_reply(text, n, finish_reason=finish_reason)
    assert reply.actions == actions
    assert found(reply) == issues
    assert reply.format_ok == (not issues)


def test_every_issue_code_has_a_golden_case() -> None:
    seen = {code for *_, issues in GOLDEN.values() for code, _ in issues}
    assert seen == set(ISSUE_CODES) - {"not_admissible"}  # Tested below.


@pytest.mark.parametrize(
    ("said", "action"),
    [
        ("  go  to\tbed 1 ", "go to bed 1"),
        ("**go to bed 1.**", "go to bed 1"),
        ("*`go to bed 1`*.", "go to bed 1"),
        ("```\ngo to bed 1\n```", "go to bed 1"),
        ("“ __go to bed 1__ ”", "go to bed 1"),
        ("go to bed 1..", "go to bed 1."),
        ('look at "bed 1"', 'look at "bed 1"'),
        ("**go** to bed 1", "**go** to bed 1"),
        ("go to bed 1**", "go to bed 1**"),
        ('"', '"'),
        ("look, then go to bed 1", "look, then go to bed 1"),
        ("empty jug in sink", "empty jug in sink"),
    ],
)
def test_what_stands_around_an_action_goes_and_the_rest_stays(said: str, action: str) -> None:
    reply = parse_reply(f"<env_1>{said}</env_1>", 1)
    assert (reply.actions, reply.issues) == ({1: action}, ())


def test_an_action_that_is_not_admissible_is_flagged_and_never_replaced() -> None:
    text = "<env_1>take it</env_1><env_2>*look*</env_2>"
    reply = parse_reply(text, 2, [["take it"], ["go", "looks"]])
    assert reply.actions == {1: "take it", 2: "look"}
    assert reply.issues == (Issue("not_admissible", 2, "*look*"),)
    assert reply.format_ok


def test_an_admissible_text_is_left_as_it_is() -> None:
    assert parse_reply("<env_1> say 'Hi'. </env_1>", 1, [{"say 'Hi'."}]).actions == {1: "say 'Hi'."}


def test_lower_case_is_written_on_request_and_only_where_it_makes_admissible() -> None:
    text = "<env_1>Look</env_1><env_2>Take It</env_2><env_3>*Go*</env_3>"
    assert parse_reply(text, 3).actions == {1: "Look", 2: "Take It", 3: "Go"}
    assert parse_reply(text, 3, lower=True).actions == {1: "look", 2: "take it", 3: "go"}
    reply = parse_reply(text, 3, [["look"], ["look"], ["go", "Go"]], lower=True)
    assert reply.actions == {1: "look", 2: "Take It", 3: "Go"}
    assert found(reply) == [("not_admissible", 2)]
    assert found(parse_reply(text, 3, [["look"], ["Take It"], ["Go"]])) == [("not_admissible", 1)]


def test_the_reasoning_is_kept_without_its_tags() -> None:
    text = "<think> a <think>b</think>\nc </think><env_1>x</env_1><think>d</think><think></think>"
    assert parse_reply(text, 1).reasoning == "a <think>b</think>\nc\nd"
    assert parse_reply("all of\nthis </think> x", 1).reasoning == "all of\nthis"
    assert parse_reply("a<think>b</think>c</think>d", 1).reasoning == "a<think>b</think>c"
    assert parse_reply("x <think>to the end", 1).reasoning == "to the end"
    assert parse_reply("x", 1).reasoning == ""


def test_issues_hold_what_the_model_wrote() -> None:
    text = "<env_1>a\nb</env_1><env_2>go </env_3><env_4>first</env_4><env_4>second</env_4>"
    assert [issue.text for issue in parse_reply(text, 2).issues] == ["a\nb", "go ", "first"]


def test_senseless_arguments_are_errors() -> None:
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        parse_reply("", 0)
    with pytest.raises(ValueError, match="must have 2 items, one per replica, got 1"):
        parse_reply("", 2, [["look"]])


# Laws. Random text is made of the pieces that mean something, whole and broken, and of any others.
PIECES = (
    "<think>|</think>|<parallel>|</parallel>|<env_1>|</env_1>|<env_2>|</env_2>|<env_3>|</env_3>|"
    "<action>|</action>|<ENV_1 >|</Think\n>|<env_01>|<env_0>|<env_99999999999999999999>|"
    "</env_99999999999999999999>|<env_i>|<env_１>|<env_1 a='b'>|<think|</|<env_|>|look|go to|"
    "null|None|.|..|**|`|“|”|'|\n|\r\n| |\t|\u2028|\x00|\x1c|\ud800|İ|Look"
)
MESS = st.lists(st.sampled_from(PIECES.split("|")) | st.text(max_size=3), max_size=40).map("".join)
ENTRY = st.builds("<env_{0}>{1}</env_{0}>".format, st.integers(0, 4), st.sampled_from(["a", "b c"]))
TEXT = st.lists(MESS | ENTRY, max_size=6).map("".join) | st.text(st.characters())
FINISH = st.sampled_from(["stop", "length", None])
N = st.integers(1, 3)


def outside_of_reasoning(text: str) -> str:
    """Return the text with each character of the reasoning, as the rules say, put out."""
    kept = list(text)
    opened: list[int] = []
    for tag in re.finditer("<(/?)think[ \t\n\r\f\v]*>", text, re.IGNORECASE | re.ASCII):
        if not tag[1]:
            opened.append(tag.start())
        else:
            start = opened.pop() if opened else 0
            kept[start : tag.end()] = "\x01" * (tag.end() - start)
    if opened:
        kept[opened[0] :] = "\x01" * (len(text) - opened[0])
    return "".join(kept)


@given(TEXT, N, FINISH, st.booleans())
def test_no_text_raises_and_every_reply_is_well_formed(
    text: str, n: int, finish_reason: str | None, lower: bool
) -> None:
    reply = parse_reply(text, n, finish_reason=finish_reason, lower=lower)
    assert set(reply.actions) <= set(range(1, n + 1))
    assert all(action == " ".join(action.split()) != "" for action in reply.actions.values())
    assert all(issue.code in ISSUE_CODES for issue in reply.issues)
    assert len(set(found(reply))) == len(reply.issues)
    stopped = {env for code, env in found(reply) if code in ("duplicate", "multiple_actions")}
    assert not stopped & set(reply.actions)
    # Why the reply ended changes what is reported, never what is run.
    assert reply.actions == parse_reply(text, n, lower=lower).actions


@given(TEXT, N)
@example("<env_1>go <think>not</think> on</env_1>", 1)
def test_every_action_was_said_outside_the_reasoning(text: str, n: int) -> None:
    said = " ".join(outside_of_reasoning(text).split())
    for env, action in parse_reply(text, n).actions.items():
        assert action in said
        assert re.search(f"<env_0*{env}[ >]", said, re.IGNORECASE) or n == 1


@given(TEXT, N)
def test_reasoning_in_front_changes_nothing(text: str, n: int) -> None:
    text = re.sub("think", "thin", text, flags=re.IGNORECASE)
    plain = parse_reply(text, n)
    ghost = "<think><parallel><env_1>ghost</env_1></parallel><action>ghost</action></think>"
    for reply in (parse_reply(ghost + text, n), parse_reply(ghost[7:] + text, n)):
        assert (reply.actions, reply.issues) == (plain.actions, plain.issues)
    assert parse_reply(f"<think>{text}</think>", n).actions == {}
    assert parse_reply(f"{text}</think>", n).actions == {}
    assert parse_reply(f"<think>{text}", n).actions == {}


@given(TEXT, N, st.lists(st.sampled_from(["look", "go to", "a", "b c"]), max_size=3))
def test_knowing_the_lists_only_adds_flags(text: str, n: int, choices: list[str]) -> None:
    blind, known = parse_reply(text, n), parse_reply(text, n, [choices] * n)
    assert known.actions == blind.actions
    assert [issue for issue in known.issues if issue.code != "not_admissible"] == [*blind.issues]
    flagged = {issue.env for issue in known.issues if issue.code == "not_admissible"}
    assert flagged == {env for env, action in known.actions.items() if action not in choices}


WORDS = st.lists(st.text("abz1,'éß-", min_size=1).map(lambda word: f"x{word}y"), min_size=1)
ACTIONS = st.dictionaries(st.integers(1, 12), WORDS.map(" ".join))


@given(ACTIONS, st.text(st.characters()).filter(lambda text: "<" not in text))
@example({1: "look"}, "Not </env_1> <env_2>look</env_2> <think>nor</think> <parallel>.")
def test_what_is_rendered_is_read_back(actions: dict[int, str], reasoning: str) -> None:
    reply = parse_reply(render_reply(actions, reasoning), 12)
    assert (reply.actions, reply.reasoning) == (actions, reasoning.strip())
    assert reply.format_ok == bool(actions)


def test_blanks_around_the_reasoning_are_not_rendered() -> None:
    assert render_reply({}, " a\n") == "<think>a</think>\n<parallel>\n</parallel>"
    assert render_reply({2: "look"}, " ") == "<parallel>\n<env_2>look</env_2>\n</parallel>"


@given(TEXT, N)
def test_what_is_read_is_rendered_or_refused(text: str, n: int) -> None:
    reply = parse_reply(text, n)
    try:
        again = render_reply(reply.actions, reply.reasoning)
    except ValueError:
        return
    assert parse_reply(again, n).actions == reply.actions
    assert parse_reply(again, n).reasoning == reply.reasoning


@pytest.mark.parametrize(
    ("actions", "reasoning"),
    [
        ({0: "look"}, ""),
        ({1: ""}, ""),
        ({1: "None"}, ""),
        ({1: "look "}, ""),
        ({1: "look."}, ""),
        ({1: "look\ngo"}, ""),
        ({1: "look</env_1><env_2>look"}, ""),
        ({1: "<action>look</action>"}, ""),
        ({10**12: "look"}, ""),
        ({1: "look"}, "a </think> b"),
        ({1: "look"}, "a <think> b"),
    ],
)
def test_what_the_grammar_cannot_carry_is_refused(actions: dict[int, str], reasoning: str) -> None:
    with pytest.raises(ValueError, match="single lines numbered from 1, and think tags balanced"):
        render_reply(actions, reasoning)


HOSTILE = [
    "<think>",
    "</think>",
    "<think></think>",
    "<think>a</think></think>",
    "<parallel>",
    "</parallel>",
    "<parallel></parallel>",
    "<parallel><env_1>a</env_1>",
    "<env_1>",
    "</env_1>",
    "<env_1>a</env_1>",
    "<env_1><env_2>",
    "<env_2>a</env_1>",
    "<action>",
    "<action>a</action>",
    "<",
    "<env_",
    "<env_1",
    "<think ",
    "</",
    "9",
    " ",
    "\n",
    "**",
    "`'",
    "“",
    ".",
    ". ",
    "a\n",
    "İ",
    "\x00",
]
AROUND = [("", ""), ("<env_1>", "</env_1>"), ("<env_", ">"), ("<think", ">"), ("", "</think>")]


@pytest.mark.timeout(10)
@pytest.mark.parametrize("shape", HOSTILE)
def test_a_million_hostile_characters_take_linear_time(shape: str) -> None:
    """Quadratic work on a megabyte would take far longer."""
    middle = shape * (10**6 // len(shape))
    for n, (before, after) in [(2, around) for around in AROUND] + [(1, AROUND[0])]:
        parse_reply(before + middle + after, n, finish_reason="length")


@pytest.mark.timeout(10)
def test_a_million_different_numbers_take_linear_time() -> None:
    text = "".join(f"<env_{i}>a</env_{i}>" for i in range(50_000))
    reply = parse_reply(text, 10)
    assert reply.actions == dict.fromkeys(range(1, 11), "a")
    assert len(reply.issues) == 50_000 - 10
    assert len(parse_reply("</think>" * 10 + text, 50_000).actions) == 50_000 - 1


def test_long_reasoning_full_of_lookalikes_does_not_hide_the_entry() -> None:
    thought = "I could <env_1>go to sinkbasin 1</env_1> or [env_1]look[/env_1], but no.\n" * 1500
    text = f"<think>{thought}</think><parallel><env_2>take knife 1</env_2></parallel>"
    assert parse_reply(text, 2) == Reply({2: "take knife 1"}, (), thought.strip())
