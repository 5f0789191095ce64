"""vLLM, in process and as a server, on a tiny model; a job of its own where vLLM is installed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents import ModelOptions, make_agent
from agents.chat import ChatModel, Decoding, Generation, Request, open_model
from agents.chat.grammar import parallel_grammar
from agents.reply import parse_reply
from leaderboard.play import play
from leaderboard.protocol import make_env
from tests.agents.chat.tiny import tiny_model

pytest.importorskip("vllm", reason="vLLM is not installed; see docs/agents.md")
pytestmark = [
    pytest.mark.filterwarnings("default"),  # vLLM's own are many
    pytest.mark.timeout(600),
]
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def engine(folder: Path) -> ChatModel:
    return open_model(f"vllm:{folder}", dtype="float32")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ChatModel]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
    options = ["--port", str(port), "--dtype", "float32", "--served-model-name", "tiny"]
    process = subprocess.Popen(
        [sys.executable, *command, *options, "--enforce-eager"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
    )
    try:
        for _ in range(300):
            assert process.poll() is None, "the server did not start"
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).close()
                break
            except OSError:
                time.sleep(1)
        model = open_model(f"http://127.0.0.1:{port}/v1")
        yield model
        model.close()
    finally:
        process.terminate()
        process.wait(30)


LISTS = [["go to desk 1", "look"], [], ["take mug 1 from desk 1", "go to desk 1"]]


def asks(think: int | None) -> list[Request]:
    grammar = None if think is None else parallel_grammar(LISTS, think)
    texts = ["go", "take the mug " * 20, "a b c"]
    return [
        Request([{"role": "user", "content": text}], seed, grammar)
        for seed, text in enumerate(texts)
    ]


@pytest.mark.parametrize("where", ["engine", "server"])
def test_greedy_replies_are_those_of_transformers(
    request: pytest.FixtureRequest, folder: Path, where: str
) -> None:
    decoding = Decoding(max_tokens=8)
    replies = request.getfixturevalue(where).generate(asks(None), decoding)
    expected = open_model(str(folder)).generate(asks(None), decoding)
    for reply, other in zip(replies, expected, strict=True):
        assert isinstance(reply, Generation)
        assert isinstance(other, Generation)
        # Half a letter at the end is shown by one of them only.
        assert reply.text.strip("\ufffd ") == other.text.strip("\ufffd ")
        assert (reply.tokens_in, reply.tokens_out) == (other.tokens_in, other.tokens_out)


@pytest.mark.parametrize("where", ["engine", "server"])
@pytest.mark.parametrize("think", [0, 6])
def test_admissible_decoding_never_leaves_the_grammar(
    request: pytest.FixtureRequest, where: str, think: int
) -> None:
    decoding = Decoding(temperature=1.0, max_tokens=200, mode="admissible", think=think)
    for reply in request.getfixturevalue(where).generate(asks(think), decoding):
        assert isinstance(reply, Generation), reply
        read = parse_reply(reply.text, 3, LISTS, reply.finish_reason)
        assert {issue.code for issue in read.issues} <= {"no_action"}


@pytest.mark.parametrize("where", ["engine", "server"])
def test_a_whole_episode(request: pytest.FixtureRequest, where: str) -> None:
    options = ModelOptions(request.getfixturevalue(where), decoding=Decoding(max_tokens=20))
    env = make_env("toy", "test", 2, 3)
    twin = env.sibling()
    tasks = env.task_set.tasks[:3]
    results = list(play([env, twin], make_agent("parallel", options, 2), tasks, seed=0))
    assert [result.error for result in results] == [None] * 3
    assert all(len(result.replies) == 3 for result in results)
    env.close()
    twin.close()
