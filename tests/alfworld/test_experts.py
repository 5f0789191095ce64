"""ALFWorld's experts: the planner wins from anywhere, the hand-coded one mostly."""

from __future__ import annotations

import random

import pytest

from parallel_envs.alfworld.blueprint import blueprint
from parallel_envs.alfworld.downward import parse_pddl
from parallel_envs.alfworld.planner import reduced_problem
from parallel_envs.alfworld.tasks import OFFICIAL_COUNTS, AlfworldTasks


@pytest.mark.parametrize("kind", sorted(OFFICIAL_COUNTS["train"]))
def test_the_planner_wins_from_wherever_play_has_led(kind: str) -> None:
    tasks = AlfworldTasks("valid_unseen", [kind])
    rng = random.Random(kind)
    game = tasks.open(rng.choice(tasks.tasks), 1)
    (state,) = game.start()
    for _ in range(20):
        if state.won:
            break
        state = game.step(0, rng.choice(state.admissible_actions))
    for command in game.expert_plan(0, "planner"):
        assert command in state.admissible_actions
        state = game.step(0, command)
    assert state.won
    assert game.expert_plan(0, "planner") == ()
    game.close()


def test_the_hand_coded_expert_wins_most_games_and_says_when_not() -> None:
    tasks = AlfworldTasks("valid_unseen")
    won = 0
    for task in tasks.tasks[::10]:
        game = tasks.open(task, 1)
        (state,) = game.start()
        plan = game.expert_plan(0, "handcoded")
        assert plan == game.expert_plan(0, "handcoded"), "it must not depend on chance"
        for command in plan:
            state = game.step(0, command)
        assert state.won == (plan != ())
        won += state.won
        game.close()
    assert won >= 12  # of 14


def test_a_lost_expert_is_an_empty_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    from parallel_envs.alfworld.package import import_alfworld

    expert = import_alfworld("agents.expert").HandCodedTWAgent
    tasks = AlfworldTasks("valid_unseen")
    game = tasks.open(tasks.tasks[0], 1)
    game.start()

    def lost(*_: object) -> str:
        raise IndexError("pop from empty list")

    monkeypatch.setattr(expert, "act", lost)
    assert game.expert_plan(0, "handcoded") == ()
    game.close()


def test_the_reduced_problem_keeps_what_the_goal_names_and_nothing_else() -> None:
    tasks = AlfworldTasks("valid_unseen", ["pick_clean_then_place_in_recep"])
    game = tasks.open(tasks.tasks[0], 1)
    shared = game._blueprint
    assert shared is blueprint(shared.domain, shared.problem, _grammar(tasks))
    facts = [(fact.predicate, *fact.arguments) for fact in shared.table.facts(shared.initial)]
    problem = reduced_problem(shared.problem, facts)
    sections = {part[0]: part for part in parse_pddl(problem)[1:]}
    start = sections[":init"][1:]
    kinds = {fact[2] for fact in start if fact[0] == "objecttype"}
    assert kinds == {"bowltype"}
    receptacles = [fact for fact in facts if fact[0] == "receptacleatlocation"]
    assert len([fact for fact in start if fact[0] == "receptacleatlocation"]) == len(receptacles)
    game.close()


def _grammar(tasks: AlfworldTasks) -> str:
    import json

    return json.loads(tasks.path(tasks.tasks[0]).read_text())["grammar"]
