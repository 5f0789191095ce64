"""The OpenAI back end against a real server that misbehaves."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agents.chat import Decoding, Generation, ModelError, Request, open_model
from agents.chat.grammar import react_grammar
from agents.chat.openai_server import OpenAIServer
from leaderboard.run import app
from leaderboard.store import RunFolder
from tests.agents.chat.server import Server, serve

HELLO = [{"role": "user", "content": "Hello?"}]


@pytest.fixture
def server() -> Iterator[Server]:
    with serve(Server()) as running:
        yield running


@pytest.fixture
def model(server: Server) -> Iterator[OpenAIServer]:
    made = open_model(server.address, timeout=1.0, retries=2)
    yield made
    made.close()
    made.close()


def ask(model: OpenAIServer, count: int = 1) -> list[Generation | ModelError]:
    return model.generate([Request(HELLO, seed=i) for i in range(count)], Decoding(max_tokens=7))


def test_a_good_answer_and_what_was_asked(server: Server, model: OpenAIServer) -> None:
    (reply,) = ask(model)
    assert reply == Generation("hello", "stop", 11, 3)
    (asked,) = server.requests
    assert asked["model"] == "toy-model"
    assert asked["messages"] == HELLO
    assert (asked["max_tokens"], asked["temperature"], asked["seed"]) == (7, 0.0, 0)


@pytest.mark.parametrize(
    "fault",
    [429, 500, 503, 408, "broken JSON", "no choices", "no text", "cut off", "hang up", "drip"],
)
def test_a_passing_fault_is_tried_again(server: Server, model: OpenAIServer, fault: Any) -> None:
    server.script = [fault]
    (reply,) = ask(model)
    assert isinstance(reply, Generation), reply
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("fault", "tries", "message"),
    [
        (429, 3, "3 tries: HTTP 429"),
        (500, 3, "3 tries: HTTP 500"),
        ("broken JSON", 3, "3 tries"),
        ("no choices", 3, "3 tries"),
        (401, 1, "1 try: HTTP 401"),
        (404, 1, "1 try: HTTP 404"),
    ],
)
def test_a_lasting_fault_is_an_error_in_its_place_and_the_others_go_on(
    server: Server, model: OpenAIServer, fault: Any, tries: int, message: str
) -> None:
    server.script = [fault] * tries
    (reply,) = ask(model)
    assert isinstance(reply, ModelError)
    assert message in str(reply)
    assert len(server.requests) == tries
    assert all(isinstance(reply, Generation) for reply in ask(model, 5))


def test_no_more_requests_at_a_time_than_allowed(server: Server) -> None:
    server.delay = 0.05
    model = open_model(server.address, concurrency=3)
    assert len(ask(model, 12)) == 12
    assert server.most == 3
    model.close()


def test_the_key_is_sent_and_kept_nowhere(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    caplog.set_level(logging.DEBUG)
    model = open_model(server.address, retries=0)
    server.script = [GOOD := 200, 401, "cut off"]
    replies = [*ask(model), *ask(model), *ask(model)]
    assert server.headers[0]["authorization"] == "Bearer sk-very-secret"
    assert GOOD == 200
    assert "secret" not in f"{replies} {model.settings} {caplog.text}"
    assert "127.0.0.1" not in json.dumps(dict(model.settings))
    model.close()


def test_which_model_is_meant(server: Server) -> None:
    server.models = ("a", "b")
    with pytest.raises(ModelError, match=r"offers a, b; choose one with http.*#NAME"):
        open_model(server.address)
    model = open_model(f"{server.address}#b")
    ask(model)
    assert server.requests[0]["model"] == "b"
    model.close()


def test_no_server_is_said_so() -> None:
    with pytest.raises(ModelError, match=r"no server answers at http://127\.0\.0\.1:9/v1"):
        open_model("http://127.0.0.1:9/v1")


def test_a_grammar_is_sent_as_an_expression(server: Server, model: OpenAIServer) -> None:
    request = Request(HELLO, grammar=react_grammar(["look"], 0))
    (reply,) = model.generate([request], Decoding(mode="admissible"))
    assert isinstance(reply, ModelError)
    assert "ignores the grammar" in str(reply)
    server.answer = lambda request: "<action>look</action>"
    (reply,) = model.generate([request], Decoding(mode="admissible"))
    assert isinstance(reply, Generation)
    assert server.requests[0]["structured_outputs"] == {"regex": "(<action>look</action>)"}
    other = open_model(server.address, structured=None)
    with pytest.raises(ModelError, match="takes no grammar; use --decoding free"):
        other.generate([request], Decoding(mode="admissible"))
    other.close()


def _first_admissible(request: dict[str, Any]) -> str:
    """Play the first action of the list in the prompt, as a model would."""
    text = request["messages"][1]["content"].partition("Admissible actions")[2]
    return f"<think>First.</think><action>{text.splitlines()[1][2:].split('; ')[0]}</action>"


def test_a_whole_run_with_a_server_that_fails_now_and_then(server: Server, tmp_path: Path) -> None:
    server.answer = _first_admissible
    server.script = [200, 429, 200, 500, "cut off", 200, 200, 401]
    options = ["--env", "toy", "--n", "1", "--max-turns", "4", "--out", str(tmp_path)]
    command = ["--agent", "react", "--model", server.address, *options]
    result = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    (folder,) = (RunFolder(path) for path in tmp_path.iterdir())
    results = folder.results()
    failed = [r for r in results if r.error]
    assert len(failed) == 1
    assert "HTTP 401" in failed[0].error
    for played in (r for r in results if not r.error):
        turns = played.episode.turns
        assert all(turn.admissible == (True,) for turn in turns)
        assert played.tokens_in == 11 * len(turns)
        assert {reply.issues for reply in played.replies} == {()}
    assert "1 of 3 episodes have no result" in result.output
    assert folder.protocol().settings["model"] == "toy-model"
    again = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert "have no result" not in again.output
    assert [r.error for r in folder.results()] == [None] * 3
