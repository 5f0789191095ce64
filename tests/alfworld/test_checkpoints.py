"""Checkpoints against the stock engine's own facts, on games of every type."""

from __future__ import annotations

import random

import pytest

from parallel_envs import ParallelTextEnv
from parallel_envs.alfworld.game import AlfworldGame
from tests.engines import make


@pytest.fixture(scope="module")
def env() -> ParallelTextEnv:
    made = make("alfworld", n=1, max_turns=50)
    yield made
    made.close()


def first_of_each_type(env: ParallelTextEnv) -> list[str]:
    return list({task.type: task.id for task in env.task_set.tasks}.values())


def expected(game: AlfworldGame) -> set[str]:
    """What the facts say, by name, derived without the masks."""
    facts = [(f.name, *(a.name for a in f.arguments)) for f in game.facts(game.replicas[0])]
    holding = set(facts)
    place = next(f[2] for f in facts if f[0] == "atlocation")
    at = {f[1] for f in facts if f[0] == "receptacleatlocation" and f[2] == place}
    closed = {f[1] for f in facts if f[0] == "openable" and ("opened", f[1]) not in holding}
    inside = [(f[1], f[2]) for f in facts if f[0] == "inreceptacle"]
    held = {f[2] for f in facts if f[0] == "holds"}
    kind = {f[1]: f[2].strip().removesuffix("type") for f in facts if f[0] == "receptacletype"}
    found = {f"place: {name}" for name in at}
    found |= {f"object: {item}" for item, where in inside if where in at - closed}
    found |= {f"object: {item}" for item in held} | {f"state: {item} held" for item in held}
    found |= {f"state: {item} in {kind[where]}" for item, where in inside if where in kind}
    for predicate in ("isclean", "ishot", "iscool", "istoggled"):
        found |= {f"state: {f[1]} {predicate[2:]}" for f in facts if f[0] == predicate}
    return found


def test_they_hold_exactly_when_the_facts_say_so(env: ParallelTextEnv) -> None:
    for task in first_of_each_type(env):
        _, info = env.reset(options={"task_id": task})
        game = env._game
        plan = env.expert_plan()
        rng = random.Random(0)
        walk = [*plan[:2], *(None for _ in range(6)), *env.expert_plan()]
        for action in walk:
            names = set(game.checkpoints)
            assert env._states[0].reached == names & expected(game), task
            if info["closed"][0] or info["turn"] == 49:
                break
            *_, info = env.step((action or rng.choice(info["admissible_actions"][0]),))


@pytest.mark.parametrize(
    ("kind", "needs"),
    [
        ("pick_heat_then_place_in_recep", "place: microwave 1"),
        ("pick_cool_then_place_in_recep", "place: fridge 1"),
        ("pick_clean_then_place_in_recep", "place: sinkbasin 1"),
        ("look_at_obj_in_light", "state: desklamp 1 toggled"),
    ],
)
def test_what_the_goal_needs_is_a_checkpoint(env: ParallelTextEnv, kind: str, needs: str) -> None:
    task = next(task.id for task in env.task_set.tasks if task.type == kind)
    env.reset(options={"task_id": task})
    assert needs in env.record().checkpoints
    for action in env.expert_plan():
        *_, info = env.step((action,))
    reached = {env.record().checkpoints[i] for t in env.record().turns for i in t.checkpoints[0]}
    assert info["won"][0]
    assert needs in reached


def test_no_more_than_the_goal_names(env: ParallelTextEnv) -> None:
    env.reset(
        options={"task_id": next(t.id for t in env.task_set.tasks if "Mug-None-Desk-" in t.id)}
    )
    for name in env.record().checkpoints:
        assert name.split(": ")[1].split()[0] in ("mug", "desk"), name
