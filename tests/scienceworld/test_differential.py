"""Interleaved replicas against engines that play alone, each in a Java server of its own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from parallel_envs.scienceworld.server import JavaServer
from parallel_envs.scienceworld.tasks import VARIATIONS
from parallel_envs.scienceworld.world import Snapshot, World

REPLICAS = 2
STEPS = 50
TASKS = sorted(VARIATIONS)[::2]  # 15 of the 30
ALONE = 5  # of them also against the raw engine, which is asked nothing but to step


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[JavaServer, JavaServer]]:
    """One server that replicas share and one for those that play alone."""
    shared, lonely = JavaServer(), JavaServer()
    yield shared, lonely
    shared.stop()
    lonely.stop()


def next_action(rng: random.Random, now: Snapshot) -> str:
    """Walk at random, evenly over kinds of actions; ask ambiguous things, wait, talk nonsense."""
    kinds: dict[str, list[str]] = {}
    for action in now.valid_actions:
        kinds.setdefault(action.split()[0], []).append(action)
    kinds.pop("focus", None)  # it mostly ends the game
    odd = rng.random()
    if odd < 0.1:
        return rng.choice(["open door", "pick up", "xyzzy", "", "task", "wait"])
    return rng.choice(kinds[rng.choice(sorted(kinds))])


def play_shared(
    server: JavaServer, task: str, variation: int, rng: random.Random
) -> list[list[tuple[str, Snapshot]]]:
    """Play replicas in random order; return each one's actions and what came of them."""
    worlds = [World(server) for _ in range(REPLICAS)]
    played = [[("", world.load(task, variation))] for world in worlds]
    order = [replica for replica in range(REPLICAS) for _ in range(STEPS)]
    rng.shuffle(order)
    for replica in order:
        action = next_action(rng, played[replica][-1][1])
        played[replica].append((action, worlds[replica].step(action)))
    return played


@pytest.mark.parametrize("task", TASKS)
def test_interleaved_replicas_equal_lonely_ones(
    servers: tuple[JavaServer, JavaServer], task: str
) -> None:
    shared, lonely = servers
    rng = random.Random(task)
    variation = rng.randrange(sum(VARIATIONS[task]))
    played = play_shared(shared, task, variation, rng)
    for replica in played:
        world = World(lonely)
        assert world.load(task, variation) == replica[0][1]
        for action, expected in replica[1:]:
            assert world.step(action) == expected, action


@pytest.mark.parametrize("task", TASKS[:ALONE])
def test_interleaved_replicas_equal_the_raw_engine(
    servers: tuple[JavaServer, JavaServer], task: str
) -> None:
    shared, lonely = servers
    rng = random.Random(task + "raw")
    variation = rng.randrange(sum(VARIATIONS[task]))
    for replica in play_shared(shared, task, variation, rng):
        java: Any = lonely.jvm.scienceworld.runtime.pythonapi.PythonInterface()
        java.load(task, variation, "", False)
        assert java.step("look around") == replica[0][1].text
        for action, expected in replica[1:]:
            assert java.step(action) == expected.text, action
            assert round(100 * java.getScore()) == expected.score
        valid = list(java.getValidActionObjectCombinations())
        assert [a for a in dict.fromkeys(valid) if a != "reset task"] == list(
            replica[-1][1].valid_actions
        )


def test_a_replay_leads_to_the_same_state(servers: tuple[JavaServer, JavaServer]) -> None:
    shared, lonely = servers
    (replica, *_) = play_shared(shared, "grow-fruit", 3, random.Random(0))
    world = World(lonely)
    world.load("grow-fruit", 3)
    assert world.replay([action for action, _ in replica[1:]]) == replica[-1][1]
