"""The Java server: one for all, gone when nobody needs it, replaced when it fails."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from parallel_envs import EngineError
from parallel_envs.scienceworld import server as server_module
from parallel_envs.scienceworld.server import JavaServer
from tests.engines import SMALL, make

TASK = {"options": {"task_id": SMALL["scienceworld"]}}


def java_children() -> list[psutil.Process]:
    """The Java processes that this process started."""
    return [p for p in psutil.Process().children(recursive=True) if "java" in p.name()]


def gone(pid: int, seconds: float = 20) -> bool:
    """Wait for a process to end."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(autouse=True)
def _clean_up() -> Iterator[None]:
    """Let one failure stay one failure."""
    yield
    if JavaServer._current is not None:
        JavaServer._current.stop()
        JavaServer._current = None


def test_all_environments_of_a_process_share_one_server() -> None:
    first, second = make("scienceworld", n=2), make("scienceworld", n=4)
    assert java_children() == []
    first.reset(**TASK)
    second.reset(**TASK)
    assert len(java_children()) == 1
    first.close()
    first.close()
    _, _, _, _, info = second.step(("look around", "", "", ""))
    assert info["acted"][0]
    assert len(java_children()) == 1
    second.close()
    assert java_children() == []


def test_a_new_task_does_not_start_a_new_server() -> None:
    env = make("scienceworld", n=1)
    env.reset(seed=0)
    (before,) = java_children()
    env.reset(seed=1)
    assert java_children() == [before]
    env.close()


def test_many_episodes_take_no_more_than_a_few() -> None:
    """50 episodes: no file or thread more, and Java stays below 400 MB (stock: 1 GB each)."""
    env = make("scienceworld", n=4)
    me = psutil.Process()

    def play(seed: int) -> None:
        _, info = env.reset(seed=seed)
        for turn in range(2):
            env.step(tuple(actions[turn] for actions in info["admissible_actions"]))

    for seed in range(5):
        play(seed)
    files, threads = me.num_fds(), me.num_threads()
    for seed in range(50):
        play(seed)
    assert me.num_fds() <= files + 2  # a second connection, when Python forgets objects
    assert me.num_threads() <= threads
    (java,) = java_children()
    assert java.memory_info().rss < 400 * 2**20
    env.close()


def test_a_killed_server_is_an_error_and_reset_brings_a_new_one() -> None:
    env = make("scienceworld", n=2)
    start, _ = env.reset(**TASK)
    (java,) = java_children()
    java.kill()
    with pytest.raises(EngineError, match=r"the Java server failed .* reset"):
        env.step(("look around", "look around"))
    with pytest.raises(Exception, match="reset"):
        env.step(("look around", "look around"))
    again, info = env.reset(**TASK)
    assert again == start
    assert info["turn"] == 0
    assert [process.pid for process in java_children()] != [java.pid]
    env.close()
    assert java_children() == []


def test_a_server_that_died_between_episodes_is_replaced_without_a_word() -> None:
    env, other = make("scienceworld", n=1), make("scienceworld", n=1)
    start, _ = env.reset(**TASK)
    other.reset(**TASK)
    java_children()[0].kill()
    again, _ = env.reset(**TASK)
    assert again == start
    with pytest.raises(EngineError):
        other.step(("look around",))  # its replicas were in the server that died
    other.reset(**TASK)
    assert len(java_children()) == 1
    env.close()
    other.close()
    assert java_children() == []


def test_a_frozen_server_is_an_error_within_the_call_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "CALL_LIMIT", 10.0)
    env = make("scienceworld", n=1)
    start, _ = env.reset(**TASK)
    (java,) = java_children()
    java.send_signal(signal.SIGSTOP)
    with pytest.raises(EngineError, match="did not answer"):
        env.step(("look around",))
    assert gone(java.pid), "a frozen server must be ended"
    again, _ = env.reset(**TASK)
    assert again == start
    env.close()


def test_an_interrupted_call_ends_the_server() -> None:
    """Java would go on with the call, beside whatever is asked next."""
    env = make("scienceworld", n=1)
    start, _ = env.reset(**TASK)
    server = env.task_set._server

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        server.call(interrupt)
    with pytest.raises(EngineError, match="interrupted"):
        env.step(("look around",))
    assert env.reset(**TASK)[0] == start
    env.close()


HOLDER = """
import sys, time
from tests.engines import SMALL, make
env = make("scienceworld", n=1)
env.reset(options={"task_id": SMALL["scienceworld"]})
print(env.task_set._server._process.pid, flush=True)
if sys.argv[1] == "wait":
    time.sleep(60)
elif sys.argv[1] == "raise":
    raise SystemExit("on purpose")
"""


@pytest.mark.parametrize("end", ["exit", "raise", "wait"])
def test_no_server_outlives_its_python(end: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", HOLDER, end],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    pid = int(parent.stdout.readline())
    if end == "wait":
        assert psutil.pid_exists(pid)
        os.kill(parent.pid, signal.SIGKILL)
    parent.communicate(timeout=30)
    assert gone(pid)


def test_a_forked_child_is_told_to_make_its_own() -> None:
    env = make("scienceworld", n=1)
    env.reset(**TASK)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            env.step(("look around",))
        except EngineError as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert "made before a fork" in pipe.read()
    *_, info = env.step(("look around",))
    assert info["acted"][0]
    env.close()


def test_a_java_without_fixed_hashes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some Javas ignore the switch; the server must find out before a game is played."""
    real = server_module.launch_gateway

    def launch(**arguments: object) -> object:
        options = [o for o in arguments.pop("javaopts") if "hashCode" not in o]
        return real(**arguments, javaopts=options)

    monkeypatch.setattr(server_module, "launch_gateway", launch)
    with pytest.raises(EngineError, match="hashCode=2"):
        JavaServer()
    assert java_children() == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_java_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "find_java", lambda: "/bin/false")
    with pytest.raises(EngineError, match="/bin/false"):
        JavaServer()
    gc.collect()  # py4j leaves the pipes of what did not start to the garbage collector
