"""`Blueprint`: everything about one ALFWorld game that its replicas share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import textworld.logic
from textworld.generator.game import EntityInfo

from parallel_envs.alfworld.checkpoints import Checkpoints
from parallel_envs.alfworld.downward import exclusive, translate
from parallel_envs.alfworld.facts import Binding, Fact, FactTable
from parallel_envs.alfworld.grammar import Action, Grammar, parse_logic
from parallel_envs.alfworld.package import import_alfworld

__all__ = ["Blueprint", "blueprint"]


class Blueprint:
    """A game, grounded and parsed once, however many replicas play it.

    Attributes:
        domain: PDDL domain of the game.
        problem: PDDL problem of the game.
        sas: The grounded problem, as the Fast Downward library reads it.
        grammar: The text rules.
        table: Numbers the game's facts.
        initial: The facts that the problem states.
        checkpoints: What there is to discover for the goal.
    """

    def __init__(self, domain: str, problem: str, grammar: str) -> None:
        self.domain, self.problem = domain, problem
        task, self.sas = translate(domain, problem)
        self._actions, rules = parse_logic(grammar)
        self._parameters: dict[str, tuple[tuple[str, str], ...]] = {
            action.name: tuple((p.name.strip("?"), p.type_name) for p in action.parameters)
            for action in task.actions
        }
        type_of = {item.name: item.type_name for item in task.objects}
        read_by_text = {
            predicate
            for alternatives in rules.values()
            for rule in alternatives
            for predicate in rule.predicates()
        }
        self.table = FactTable(type_of, _type_hierarchy(task), _read_by_rules(task) | read_by_text)
        self.initial = 0
        for atom in task.init:
            # What is not an atom is a cost: a number, not a fact.
            if hasattr(atom, "predicate") and atom.predicate != "=":
                self.initial |= self.table.bit(Fact(atom.predicate, tuple(atom.args)))
        mentioned = {name for fact in self.table.facts(self.initial) for name in fact.arguments}
        self.entities = _entities({name: type_of[name] for name in mentioned})
        names = {entity.id: entity.name for entity in self.entities.values()}
        self.checkpoints = Checkpoints(domain, problem, self.table, self.initial, names)
        self.grammar = Grammar(rules, self.entities)
        changing = {
            effect.literal.predicate for action in task.actions for effect in action.effects
        }
        for action in self._actions.values():
            changeable = changing & self.grammar.predicates(action.command)
            if changeable:
                raise NotImplementedError(
                    f"the wording of {action.command!r} depends on {sorted(changeable)}, which "
                    "changes while the game is played; every ALFWorld release has fixed wording"
                )
        self._commands: dict[str, str] = {}

    def binding(self, operator: str) -> Binding:
        """Return which object each parameter of a ground action stands for.

        Args:
            operator: Name of the ground action, ``"openobject agent1 loc_a fridge_1"``.
        """
        name, *arguments = operator.split()
        # The translator adds a parameter for each "exists"; ground names leave those out.
        return dict(zip(self._parameters[name], arguments, strict=False))

    def action(self, operator: str) -> Action:
        """Return the templates of a ground action."""
        return self._actions[operator.split(" ", 1)[0]]

    def command(self, operator: str) -> str:
        """Return what the player types for a ground action."""
        command = self._commands.get(operator)
        if command is None:
            command = self.text(self.action(operator).command, self.binding(operator), self.initial)
            self._commands[operator] = command
        return command

    def text(self, template: str, binding: Binding, state: int) -> str:
        """Render a template about a state."""
        return self.grammar.render(
            template, binding, lambda query, bound: self.table.answers(query, state, bound)
        )


@exclusive
@lru_cache(maxsize=8)
def blueprint(domain: str, problem: str, grammar: str) -> Blueprint:
    """Return the blueprint of a game, remembered for the last few games played."""
    return Blueprint(domain, problem, grammar)


def _type_hierarchy(task: Any) -> textworld.logic.TypeHierarchy:
    types = textworld.logic.TypeHierarchy()
    for kind in {kind.name: kind for kind in reversed(task.types)}.values():
        types.add(textworld.logic.Type(kind.name, kind.supertype_names))
    return types


def _entities(type_of: Mapping[str, str]) -> dict[str, EntityInfo]:
    """Name the objects as ALFWorld does: ``mug_bar_…`` becomes ``mug 1``."""
    entities = {name: EntityInfo(name, kind) for name, kind in type_of.items()}
    names = import_alfworld("agents.utils.misc").Demangler(game_infos=entities)
    for entity in entities.values():
        entity.name = names.demangle_alfred_name(entity.id)
        entity.definite, entity.indefinite = "the", "a"
    return entities


def _read_by_rules(task: Any) -> set[str]:
    """Return the predicates that decide which actions apply, what they do, or who wins."""
    found: set[str] = set()

    def visit(condition: Any) -> None:
        if hasattr(condition, "predicate"):
            found.add(condition.predicate)
        for part in getattr(condition, "parts", ()):
            visit(part)

    visit(task.goal)
    for axiom in task.axioms:
        visit(axiom.condition)
    for action in task.actions:
        visit(action.precondition)
        for effect in action.effects:
            visit(effect.condition)
    return found
