"""What ALFWorld replicas share, and what they must not."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from parallel_envs.alfworld import game as game_module
from parallel_envs.alfworld.downward import Downward
from parallel_envs.alfworld.tasks import AlfworldTasks
from tests.engines import SMALL, make


def hidden_files() -> list[str]:
    """Deleted files that this process still maps: the library's hidden copies."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return sorted({line.split()[-2] for line in maps if line.endswith("(deleted)")})


def test_many_episodes_take_no_more_than_one() -> None:
    """50 episodes: no copy of the library more, no open file, 60 MB (stock: 50 copies, 190 MB)."""
    env = make("alfworld", n=8)
    me = psutil.Process()

    def play(seed: int) -> None:
        _, info = env.reset(seed=seed)
        for turn in range(5):
            env.step(tuple(actions[turn] for actions in info["admissible_actions"]))

    for seed in range(10):  # fill the caches
        play(seed)
    memory, files, libraries = me.memory_info().rss, me.num_fds(), hidden_files()
    for seed in range(50):
        play(seed)
    assert hidden_files() == libraries
    assert me.num_fds() <= files
    assert me.memory_info().rss - memory < 60 * 2**20
    env.close()


def test_many_episodes_of_one_task_take_no_more_than_a_few(monkeypatch) -> None:
    """What states are remembered for speed is forgotten when they are many."""
    monkeypatch.setattr(game_module, "_MANY_STATES", 100)
    env = make("alfworld", n=4)
    transcripts = []
    for _ in range(6):
        observation, info = env.reset(options={"task_id": SMALL["alfworld"]})
        lines = [observation]
        for turn in range(20):
            actions = tuple(
                a[(7 * turn + i) % len(a)] for i, a in enumerate(info["admissible_actions"])
            )
            observation, *_, info = env.step(actions)
            lines.append((observation, info["state_key"]))
        transcripts.append(lines)
        assert len(env._game._positions) <= 100 + 4 * 20
    assert all(lines == transcripts[0] for lines in transcripts)
    env.close()


def test_a_forgotten_environment_gives_its_library_back() -> None:
    first = make("alfworld", n=1)
    first.reset(seed=0)  # TextWorld's parsers hold on to who called them first
    env = make("alfworld", n=1)
    env.reset(seed=0)
    free = len(Downward._pool)
    del env
    gc.collect()
    assert len(Downward._pool) == free + 1
    first.close()
    assert len(Downward._pool) == free + 2


def test_threads_take_turns() -> None:
    """Stock engines corrupt one another in threads."""

    def play(seed: int) -> list[Any]:
        env = make("alfworld", n=2)
        _, info = env.reset(seed=seed)
        lines = []
        for turn in range(10):
            joint = tuple(a[(turn + i) % len(a)] for i, a in enumerate(info["admissible_actions"]))
            observation, *_, info = env.step(joint)
            lines.append((observation["observations"], info["state_key"]))
        lines.append(env.expert_plan(0))
        env.close()
        return lines

    alone = [play(seed) for seed in (1, 2, 3, 1)]
    stdout, argv = sys.stdout, sys.argv
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(play, (1, 2, 3, 1))) == alone
    assert sys.stdout is stdout
    assert sys.argv is argv


def test_two_environments_at_once_need_two_copies_and_give_them_back() -> None:
    first, second = make("alfworld", n=2), make("alfworld", n=2)
    first.reset(seed=1)
    _, info = second.reset(seed=2)
    look, *_ = first.step(("look", ""))
    for actions in info["admissible_actions"][0]:
        second.step((actions, ""))
        if second._over:
            second.reset(seed=2)
    again, *_ = first.step(("look", ""))
    assert again == look
    first.close()
    second.close()
    free = len(Downward._pool)
    for seed in range(3):
        env = make("alfworld", n=2)
        env.reset(seed=seed)
        env.close()
    assert len(Downward._pool) == free


def test_python_is_left_as_it_was() -> None:
    """The translator overwrites sys.argv and sys.stdout, the expert draws global random numbers."""
    argv, stdout = sys.argv, sys.stdout
    random.seed(5)
    state = random.getstate()
    env = make("alfworld", n=1)
    env.reset(options={"task_id": SMALL["alfworld"]})
    env.expert_plan(0, "planner")
    env.expert_plan(0, "handcoded")
    env.close()
    assert sys.argv is argv
    assert sys.stdout is stdout
    assert random.getstate() == state


def test_importing_the_engine_does_not_read_the_command_line() -> None:
    code = "import parallel_envs.alfworld.game, sys; print(sys.argv)"
    done = subprocess.run(
        [sys.executable, "-c", code, "--split", "x"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['-c', '--split', 'x']"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_plays_on_its_own() -> None:
    code = (
        "import os, sys\n"
        "from tests.engines import SMALL, make\n"
        "env = make('alfworld', n=1); _, info = env.reset(options={'task_id': SMALL['alfworld']})\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    for action in info['admissible_actions'][0][:5]: env.step((action,))\n"
        "    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "_, _, _, _, after = env.step(('',))\n"
        "assert after['state_key'] == info['state_key']; print('same')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "same"


def test_bookkeeping_facts_do_not_make_a_new_state() -> None:
    """`look` marks a place as checked, which no text, command or goal ever reads."""
    env = make("alfworld", n=1)
    env.reset(options={"task_id": SMALL["alfworld"]})
    for action in ("look", "inventory", "help"):
        *_, info = env.step((action,))
        assert info["changed_nothing"][0], action
    facts = {fact.name for fact in env._game.facts(env._game.replicas[0])}
    assert "checked" in facts
    *_, info = env.step((next(a for a in info["admissible_actions"][0] if a.startswith("go")),))
    assert not info["changed_nothing"][0]
    env.close()


def test_states_reached_on_different_ways_have_one_key() -> None:
    env = make("alfworld", n=2)
    _, info = env.reset(options={"task_id": SMALL["alfworld"]})
    first, second = [a for a in info["admissible_actions"][0] if a.startswith("go to")][:2]
    *_, info = env.step((first, second))
    assert info["state_key"][0] != info["state_key"][1]
    *_, info = env.step((second, ""))
    assert info["state_key"][0] == info["state_key"][1]
    env.close()


def test_the_start_is_known_before_anyone_moves() -> None:
    tasks = AlfworldTasks("valid_unseen", [SMALL["alfworld"]])
    game = tasks.open(tasks.tasks[0], 2)
    start = game.start()
    game.step(0, start[0].admissible_actions[0])
    assert game.start() == start
    game.close()
