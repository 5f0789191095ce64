"""The planner expert: Fast Downward on the part of the problem that the goal names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parallel_envs.alfworld.downward import Downward, parse_pddl, translate
from parallel_envs.errors import EngineError

if TYPE_CHECKING:
    from parallel_envs.alfworld.blueprint import Blueprint

__all__ = ["plan", "reduced_problem"]


def plan(blueprint: Blueprint, facts: int) -> tuple[str, ...]:
    """Return commands that win from a state, empty when there is no plan.

    Args:
        blueprint: The game.
        facts: The state, as bits of the blueprint's table.
    """
    holding = [(fact.predicate, *fact.arguments) for fact in blueprint.table.facts(facts)]
    problem = reduced_problem(blueprint.problem, holding)
    try:
        _, sas = translate(blueprint.domain, problem, optimize=True)
    except EngineError:  # the goal is out of reach
        return ()
    return tuple(blueprint.command(operator) for operator in Downward.solve(sas))


def reduced_problem(problem: str, facts: list[tuple[str, ...]]) -> str:
    """Return a PDDL problem with `facts` as its start and no object that the goal leaves out.

    Receptacles have no capacity and objects do not hinder one another, so an object that is not
    in hand and of a type that the goal does not name is in no shortest plan. Leaving those out is
    exact and makes the largest games a matter of milliseconds.

    Args:
        problem: PDDL problem.
        facts: What holds now, each a predicate and its arguments; ``not_…`` is ignored.
    """
    tree = parse_pddl(problem)
    sections = {section[0]: section for section in tree[1:]}
    goal_names = set(_flat(sections[":goal"]))
    needed = {fact[1] for fact in facts if fact[0] == "objecttype" and fact[2] in goal_names}
    needed |= {fact[2] for fact in facts if fact[0] == "holds"}
    kept, group = [], []
    words = iter(sections[":objects"][1:])
    for word in words:
        if word != "-":
            group.append(word)
            continue
        kind = next(words)
        kept += [[name, "-", kind] for name in group if kind != "object" or name in needed]
        group = []
    names = {name for name, _, _ in kept}
    start = sorted(
        fact
        for fact in facts
        if not fact[0].startswith(("not_", "new-axiom")) and names.issuperset(fact[1:])
    )
    return _written(
        [
            tree[0],
            sections["problem"],
            sections[":domain"],
            [":objects", *(word for item in kept for word in item)],
            [":init", *map(list, start), ["=", ["total-cost"], "0"]],
            sections[":goal"],
            *([sections[":metric"]] if ":metric" in sections else []),
        ]
    )


def _flat(tree: Any) -> list[str]:
    return [tree] if isinstance(tree, str) else [word for part in tree for word in _flat(part)]


def _written(tree: Any) -> str:
    return tree if isinstance(tree, str) else f"({' '.join(map(_written, tree))})"
