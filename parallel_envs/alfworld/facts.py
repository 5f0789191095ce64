"""Facts of a game as bits: a replica's state is one integer, and queries over it are joins."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from functools import cache, lru_cache
from typing import NamedTuple

from textworld.logic import Proposition, Rule, TypeHierarchy, Variable

from parallel_envs.errors import EngineError

__all__ = ["Binding", "Fact", "FactTable", "Query", "parse_query"]

Binding = dict[tuple[str, str], str]  # (placeholder, its type) -> name of an object


class Fact(NamedTuple):
    """A ground proposition; explicit falsehoods are named ``not_…``, as in TextWorld."""

    predicate: str
    arguments: tuple[str, ...]


class Query(NamedTuple):
    """A conjunction: each part is a predicate with (placeholder, type) parameters."""

    parts: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


@cache
def parse_query(text: str) -> Query:
    """Parse TextWorld's ``p(x: type) & q(x: type)``."""
    rule = Rule.parse_conjunctive_query(text)
    return Query(
        tuple(
            (part.name, tuple((ph.name, ph.type) for ph in part.parameters))
            for part in rule.preconditions
        )
    )


class FactTable:
    """Numbers the facts of one game; a set of facts is an integer with those bits set.

    Args:
        type_of: Type of each object.
        types: Which types are kinds of which others.
        visible: Predicates that anything in the game ever reads. The others (ALFWorld's
            ``checked``) are bookkeeping: two states that differ in nothing else are the same
            to every text, action and goal, now and later.
    """

    def __init__(self, type_of: Mapping[str, str], types: TypeHierarchy, visible: Set[str]) -> None:
        self._type_of = type_of
        self._types = types
        self._visible = visible
        self._codes: list[int] = []
        self._facts: list[Fact] = []
        self._bits: dict[Fact, int] = {}
        self._with_signature: dict[tuple[str, tuple[str, ...]], int] = defaultdict(int)
        self._changes: dict[str, tuple[int, int]] = {}
        # Sorting is most of a query's cost, and few facts change between two queries.
        self._sorted = lru_cache(maxsize=4096)(self._sort)
        self._signatures = lru_cache(maxsize=None)(self._subtypes)

    def bit(self, fact: Fact) -> int:
        """Return the integer whose only bit stands for `fact`."""
        bit = self._bits.get(fact)
        if bit is None:
            try:
                types = tuple(self._type_of[name] for name in fact.arguments)
            except KeyError as error:
                # The translator puts a made-up problem in the place of one without a solution.
                raise EngineError(
                    f"the game has no object {error}, so its goal is out of reach"
                ) from error
            bit = self._bits[fact] = 1 << len(self._facts)
            self._facts.append(fact)
            self._codes.append(_code(fact) if fact.predicate in self._visible else 0)
            self._with_signature[fact.predicate, types] |= bit
        return bit

    def change(self, atom: str) -> tuple[int, int]:
        """Return the bits that an effect sets and clears.

        Args:
            atom: The library's name of the effect, ``"Atom p(a, b)"`` or ``"NegatedAtom p(a)"``.
        """
        change = self._changes.get(atom)
        if change is None:
            kind, _, rest = atom.partition(" ")
            predicate, _, inner = rest.partition("(")
            arguments = tuple(name for name in inner[:-1].split(", ") if name)
            true = self.bit(Fact(predicate, arguments))
            false = self.bit(Fact(f"not_{predicate}", arguments))
            change = (false, true) if kind == "NegatedAtom" else (true, false)
            self._changes[atom] = change
        return change

    def facts(self, state: int) -> Iterator[Fact]:
        """Yield the facts of a state, oldest number first."""
        while state:
            lowest = state & -state
            yield self._facts[lowest.bit_length() - 1]
            state ^= lowest

    def key(self, state: int) -> int:
        """Return a 96-bit hash of the visible facts, the same in every process.

        It is the exclusive or of a hash of each fact (Zobrist hashing), so that
        ``key(a) ^ key(b) == key(a ^ b)``: the key of a successor needs only what changed.
        """
        key = 0
        while state:
            lowest = state & -state
            key ^= self._codes[lowest.bit_length() - 1]
            state ^= lowest
        return key

    def propositions(self, state: int) -> list[Proposition]:
        """Return the facts of a state as TextWorld's propositions."""
        # Sorted, for the numbers of facts depend on what was played before in this process.
        return [
            Proposition(
                fact.predicate, [Variable(name, self._type_of[name]) for name in fact.arguments]
            )
            for fact in sorted(self.facts(state))
        ]

    def answers(self, query: Query, state: int, binding: Binding) -> Iterator[Binding]:
        """Yield every extension of `binding` that makes the query true, in TextWorld's order.

        Different placeholders stand for different objects, as in `textworld.logic.State`.
        """
        return self._join(query.parts, 0, state, dict(binding))

    def _join(
        self,
        parts: tuple[tuple[str, tuple[tuple[str, str], ...]], ...],
        depth: int,
        state: int,
        binding: Binding,
    ) -> Iterator[Binding]:
        if depth == len(parts):
            yield dict(binding)
            return
        predicate, parameters = parts[depth]
        new = [parameter for parameter in parameters if parameter not in binding]
        for types in self._signatures(tuple(kind for _, kind in parameters)):
            mask = self._with_signature.get((predicate, types), 0) & state
            for arguments in self._sorted(mask) if mask else ():
                for parameter, name in zip(parameters, arguments, strict=True):
                    bound = binding.get(parameter)
                    if bound is None:
                        if name in binding.values():
                            break
                        binding[parameter] = name
                    elif bound != name:
                        break
                else:
                    yield from self._join(parts, depth + 1, state, binding)
                for parameter in new:
                    binding.pop(parameter, None)

    def _subtypes(self, kinds: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        chosen = self._types.multi_subtypes([self._types.get(kind) for kind in kinds])
        return tuple(tuple(kind.name for kind in types) for types in chosen)

    def _sort(self, mask: int) -> tuple[tuple[str, ...], ...]:
        return tuple(sorted(fact.arguments for fact in self.facts(mask)))


def _code(fact: Fact) -> int:
    text = f"{fact.predicate}({','.join(fact.arguments)})"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=12).digest(), "big")
