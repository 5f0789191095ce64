"""The trained agents and the checkpoints that ship."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents import ModelOptions, make_agent
from agents.chat.model import Decoding, ModelError
from agents.chat.scripted import ScriptedModel
from agents.trained import CHECKPOINTS, trained

NAMES = ("sft", "grpo", "gigpo", "dpepo")


@pytest.mark.parametrize("name", NAMES)
def test_every_checkpoint_opens_and_says_what_it_is(name: str) -> None:
    agent = make_agent(name, n=4)
    settings = agent.settings
    play = json.loads((CHECKPOINTS / name / "play.json").read_text())
    assert settings["decoding"] == Decoding(**play["decoding"]).to_json()
    assert settings["prompt"] == play["style"] == "compact"
    assert settings["model"] == name
    card = (CHECKPOINTS / name / "README.md").read_text()
    for word in ("Data", "Budget", "Scores", "valid_unseen"):
        assert word in card
    agent.close()


def test_the_checkpoints_are_small() -> None:
    files = [path for path in CHECKPOINTS.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} <= {".json", ".jinja", ".md", ".safetensors"}
    assert sum(path.stat().st_size for path in files) < 15e6


def test_another_model_can_be_given() -> None:
    options = ModelOptions(ScriptedModel(lambda messages: ""), style="paper")
    assert make_agent("dpepo", options).settings["prompt"] == "paper"


def test_a_missing_checkpoint_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("agents.trained.CHECKPOINTS", tmp_path)
    with pytest.raises(ModelError, match="no checkpoint of 'dpepo'"):
        trained("dpepo")
