"""The text of ALFWorld's games: TextWorld's grammar compiled once and rendered without copies.

TextWorld parses a template again for every command and deep-copies the rules it expands; that is
where most of the time of a stock step goes. Here the same parser runs once for each distinct
template, and rendering is a plain recursion. The text is the same, letter for letter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

from textworld.envs.pddl import logic, textgen
from textworld.envs.pddl.logic.model import ActionGrammarNode, ActionTypeNode

from parallel_envs.alfworld.facts import Binding, Query, parse_query

__all__ = ["Action", "Grammar", "Rule", "parse_logic"]

Answers = Callable[[Query, Binding], Iterator[Binding]]


@dataclass(frozen=True, slots=True)
class _Text:
    text: str


@dataclass(frozen=True, slots=True)
class _Expansion:
    """``#name#``: expand the first rule of that name whose condition holds."""

    name: str


@dataclass(frozen=True, slots=True)
class _Expression:
    """A Python expression over the bound objects, such as ``o.indefinite + ' ' + o.name``."""

    code: CodeType


@dataclass(frozen=True, slots=True)
class _ForEach:
    """``{body | query}``: the body once for every answer; as a list, joined with commas."""

    body: _Expansion | _Expression
    query: Query | None
    as_list: bool


_Symbol = _Text | _Expansion | _Expression | _ForEach


class Action(NamedTuple):
    """How an action of the domain is typed by the player and answered by the game."""

    command: str  # template, "take {o} from {r}"
    feedback: str  # template, "#PickupObject.feedback#"


class Rule(NamedTuple):
    """One way to expand a name, used when its condition holds."""

    condition: Query | None
    symbols: tuple[_Symbol, ...]

    def predicates(self) -> set[str]:
        """Return the predicates that this rule itself asks for."""
        queries = [self.condition, *(s.query for s in self.symbols if isinstance(s, _ForEach))]
        return {predicate for query in queries if query for predicate, _ in query.parts}


def parse_logic(source: str) -> tuple[dict[str, Action], dict[str, list[Rule]]]:
    """Return the actions by lower-case name, and the text rules, of a game's ``grammar``."""
    actions: dict[str, Action] = {}
    rules: dict[str, list[Any]] = {}
    for part in logic._PARSER.parse(source, rule_name="pddlStart").parts:
        code = None
        if isinstance(part, ActionTypeNode):
            actions[part.name.lower()] = Action(
                part.template.template[1:-1], part.feedback.name[1:-1]
            )
            code = part.grammar.code if part.grammar else None
        elif isinstance(part, ActionGrammarNode):
            code = part.code
        if code is not None:
            lines = code[3:-3].splitlines()  # between triple quotes, with comment lines
            rules.update(json.loads("\n".join(x for x in lines if not x.lstrip().startswith("#"))))
    return actions, {
        name: [
            Rule(
                parse_query(rule["condition"]) if rule.get("condition") else None,
                _compile(rule["rhs"]),
            )
            for rule in alternatives
        ]
        for name, alternatives in rules.items()
    }


@lru_cache(maxsize=4096)
def _compile(template: str) -> tuple[_Symbol, ...]:
    parsed = textgen._parse_and_convert(template, rule_name="symbols")
    return tuple(_convert(symbol) for symbol in parsed)


def _convert(symbol: Any, as_list: bool = False) -> _Symbol:
    match symbol:
        case textgen.TerminalSymbol():
            return _Text(symbol.symbol)
        case textgen.NonterminalSymbol():
            return _Expansion(symbol.symbol)
        case textgen.EvalSymbol():
            return _Expression(compile(symbol.expression.strip(), "<template>", "eval"))
        case textgen.ConditionalSymbol():
            query = parse_query(symbol.given) if symbol.given else None
            body = _convert(symbol.expression)
            assert isinstance(body, _Expansion | _Expression)
            return _ForEach(body, query, as_list)
        case textgen.ListSymbol():
            return _convert(symbol.symbol, as_list=True)
    raise NotImplementedError(f"unknown symbol in a text template: {symbol!r}")


class Grammar:
    """The text rules of one game.

    Args:
        rules: From `parse_logic`.
        entities: For each object's id, what templates may read: ``name``, ``indefinite``, …
    """

    def __init__(self, rules: Mapping[str, list[Rule]], entities: Mapping[str, Any]) -> None:
        self._rules = rules
        self._entities = entities

    def render(self, template: str, binding: Binding, answers: Answers) -> str:
        """Return the text of a template.

        Args:
            template: Such as ``"take {o} from {r}"`` or ``"#intro#"``.
            binding: The objects that the placeholders stand for.
            answers: Answers queries about the state that the text describes.
        """
        return self._join(_compile(template), binding, answers)

    def predicates(self, template: str) -> set[str]:
        """Return the predicates that the text of a template depends on."""
        found: set[str] = set()
        seen: set[str] = set()

        def visit(rule: Rule) -> None:
            found.update(rule.predicates())
            for symbol in rule.symbols:
                inner = symbol.body if isinstance(symbol, _ForEach) else symbol
                if isinstance(inner, _Expansion) and inner.name not in seen:
                    seen.add(inner.name)
                    for alternative in self._rules[inner.name]:
                        visit(alternative)

        visit(Rule(None, _compile(template)))
        return found

    def _join(self, symbols: tuple[_Symbol, ...], binding: Binding, answers: Answers) -> str:
        return "".join(self._text(symbol, binding, answers) for symbol in symbols)

    def _text(self, symbol: _Symbol, binding: Binding, answers: Answers) -> str:
        match symbol:
            case _Text(text):
                return text
            case _Expansion(name):
                for condition, symbols in self._rules[name]:
                    if condition is None or next(answers(condition, binding), None) is not None:
                        return self._join(symbols, binding, answers)
                raise LookupError(f"no text rule {name!r} applies")
            case _Expression(code):
                objects = {name: self._entities[value] for (name, _), value in binding.items()}
                return str(eval(code, {}, objects))
            case _ForEach(body, query, as_list):
                found = [binding] if query is None else answers(query, binding)
                items = [self._text(body, each, answers) for each in found]
                return self._listed(items, binding, answers) if as_list else "".join(items)

    def _listed(self, items: list[str], binding: Binding, answers: Answers) -> str:
        if not items:
            return self._text(_Expansion("list_empty"), binding, answers)
        if len(items) == 1:
            return items[0]
        separator = self._text(_Expansion("list_separator"), binding, answers)
        last = self._text(_Expansion("list_last_separator"), binding, answers)
        return separator.join(items[:-1]) + last + items[-1]
