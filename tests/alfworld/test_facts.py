"""Queries over bit sets against TextWorld's own state, on random facts and queries."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st
from textworld.logic import Placeholder, Proposition, Rule, State, Type, TypeHierarchy, Variable

from parallel_envs.alfworld.facts import Fact, FactTable, parse_query

OBJECTS = {"a": "thing", "b": "thing", "c": "thing", "u": "place", "v": "place"}
PREDICATES = {
    "near": ("thing", "thing"),
    "in": ("thing", "place"),
    "big": ("thing",),
    "lit": ("place",),
}
QUERIES = [
    "big(x: thing)",
    "in(x: thing, p: place)",
    "in(x: thing, p: place) & in(y: thing, p: place)",
    "near(x: thing, y: thing) & big(y: thing)",
    "near(x: thing, x: thing)",
    "lit(p: place) & in(x: thing, p: place) & near(x: thing, y: thing)",
]

facts = st.lists(
    st.sampled_from(sorted(PREDICATES)).flatmap(
        lambda name: st.tuples(
            st.just(name),
            st.tuples(
                *(
                    st.sampled_from([n for n, kind in OBJECTS.items() if kind == wanted])
                    for wanted in PREDICATES[name]
                )
            ),
        )
    ),
    max_size=12,
    unique=True,
)
bindings = st.dictionaries(
    st.sampled_from([("x", "thing"), ("p", "place")]), st.sampled_from(["a", "b", "u"]), max_size=2
).filter(lambda d: all(OBJECTS[v] == kind for (_, kind), v in d.items()))


def types() -> TypeHierarchy:
    hierarchy = TypeHierarchy()
    hierarchy.add(Type("object", []))
    for name in ("thing", "place"):
        hierarchy.add(Type(name, ["object"]))
    return hierarchy


def table_of(drawn: list[tuple[str, tuple[str, ...]]]) -> tuple[FactTable, int]:
    table = FactTable(OBJECTS, types(), set(PREDICATES) - {"lit"})
    state = 0
    for name, arguments in drawn:
        state |= table.bit(Fact(name, arguments))
    return table, state


@given(facts, st.sampled_from(QUERIES), bindings)
def test_answers_are_textworlds_in_textworlds_order(drawn, query, binding) -> None:
    table, state = table_of(drawn)
    stock = State.__new__(State)  # its constructor asks for a game of another kind
    stock._logic = SimpleNamespace(types=types())
    stock._facts, stock._vars_by_name, stock._vars_by_type, stock._var_counts = _empty()
    stock.add_facts(
        Proposition(name, [Variable(n, OBJECTS[n]) for n in arguments]) for name, arguments in drawn
    )
    mapping = {Placeholder(*key): Variable(v, OBJECTS[v]) for key, v in binding.items()}
    expected = [
        {(ph.name, ph.type): var.name for ph, var in found.items()}
        for found in stock.all_assignments(Rule.parse_conjunctive_query(query), mapping)
    ]
    assert list(table.answers(parse_query(query), state, binding)) == expected


def _empty():
    from collections import Counter, defaultdict

    return defaultdict(set), {}, defaultdict(set), Counter()


@given(facts, facts)
def test_the_key_of_a_change_is_the_change_of_the_key(one, other) -> None:
    table, state = table_of(one)
    changed = 0
    for name, arguments in other:
        changed |= table.bit(Fact(name, arguments))
    assert table.key(state) ^ table.key(state ^ changed) == table.key(changed)


@given(facts)
def test_the_key_does_not_depend_on_the_order_of_numbering(drawn) -> None:
    one, state = table_of(drawn)
    other, mirrored = table_of(drawn[::-1])
    assert one.key(state) == other.key(mirrored)
    unlit = [fact for fact in drawn if fact[0] != "lit"]
    fewer, rest = table_of(unlit)
    assert one.key(state) == fewer.key(rest), "invisible facts do not count"
    assert (one.key(state) == 0) == (unlit == [])


def test_effects_set_and_clear() -> None:
    table, state = table_of([("big", ("a",))])
    for atom, holds in (("NegatedAtom big(a)", False), ("Atom big(a)", True)):
        sets, clears = table.change(atom)
        state = state & ~clears | sets
        names = {fact.predicate for fact in table.facts(state)}
        assert names == ({"big"} if holds else {"not_big"})
