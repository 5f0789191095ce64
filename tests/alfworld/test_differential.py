"""Replicas against the unmodified engine: every text, command list, win and fact is the same."""

from __future__ import annotations

import random

import pytest

from parallel_envs.alfworld.tasks import OFFICIAL_COUNTS, AlfworldTasks
from parallel_envs.game import GameState, Task
from tests.alfworld.stock import StockGame, difference

# The stock engine leaves game files open.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

REPLICAS = 2
STEPS = 50
GAMES_OF_A_TYPE = 4  # 24 games in all


def games(kind: str) -> list[tuple[AlfworldTasks, Task]]:
    """Draw official games of a type, half of them from each evaluation split."""
    drawn = []
    for split in ("valid_seen", "valid_unseen"):
        tasks = AlfworldTasks(split, [kind])
        chosen = random.Random(kind).sample(tasks.tasks, GAMES_OF_A_TYPE // 2)
        drawn += [(tasks, task) for task in chosen]
    return drawn


def next_command(rng: random.Random, state: GameState, plan: list[str]) -> str:
    """Walk at random, evenly over kinds of commands, now and then as the expert would."""
    if rng.random() < 0.05:
        return rng.choice(["zzz", "", "  look ", "Look", "go to nowhere 1", "take all"])
    if plan and rng.random() < 0.3:
        return plan.pop(0)
    kinds: dict[str, list[str]] = {}
    for command in state.admissible_actions:
        kinds.setdefault(command.split()[0], []).append(command)
    return rng.choice(kinds[rng.choice(sorted(kinds))])


@pytest.mark.parametrize("number", range(GAMES_OF_A_TYPE))
@pytest.mark.parametrize("kind", sorted(OFFICIAL_COUNTS["train"]))
def test_interleaved_replicas_equal_separate_stock_engines(kind: str, number: int) -> None:
    tasks, task = games(kind)[number]
    rng = random.Random(task.id)
    game = tasks.open(task, REPLICAS)
    stocks = [StockGame(tasks.path(task)) for _ in range(REPLICAS)]
    try:
        states = list(game.start())
        plan = game.expert_plan(0, "planner")
        plans = [list(plan) for _ in range(REPLICAS)]
        for replica, stock in enumerate(stocks):
            assert difference(states[replica], game.facts(game.replicas[replica]), stock) is None
        order = [replica for replica in range(REPLICAS) for _ in range(STEPS)]
        rng.shuffle(order)
        for replica in order:
            command = next_command(rng, states[replica], plans[replica])
            states[replica] = game.step(replica, command)
            stocks[replica].step(command)
            facts = game.facts(game.replicas[replica])
            assert difference(states[replica], facts, stocks[replica]) is None, command
    finally:
        game.close()
        for stock in stocks:
            stock.close()
