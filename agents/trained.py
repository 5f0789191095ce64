"""The trained agents that ship with the project: `sft`, `grpo`, `gigpo` and `dpepo`.

Each is a small transformer that began with random weights (`dpepo`); its folder in
``agents/checkpoints`` says how it was trained and how it plays. With ``--model`` the same names
play a model of your own, such as a folder of `dpepo.train`.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from agents.agent import ModelOptions
from agents.chat.model import Decoding, ModelError
from agents.chat_agent import ChatAgent, parallel

__all__ = ["CHECKPOINTS", "dpepo", "gigpo", "grpo", "sft", "trained"]

CHECKPOINTS = Path(__file__).parent / "checkpoints"


def trained(name: str, options: ModelOptions | None = None) -> ChatAgent:
    """Return a trained agent.

    Args:
        name: Its folder in ``agents/checkpoints``, where ``play.json`` says how it plays.
        options: Model, prompt and decoding to play with instead.

    Raises:
        ModelError: Its checkpoint is not there.
    """
    if options is not None:
        return parallel(options)
    folder = CHECKPOINTS / name
    try:
        play = json.loads((folder / "play.json").read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"no checkpoint of {name!r} in {folder}: {error.strerror}") from error
    return parallel(ModelOptions(str(folder), play["style"], Decoding(**play["decoding"])))


sft = partial(trained, "sft")
grpo = partial(trained, "grpo")
gigpo = partial(trained, "gigpo")
dpepo = partial(trained, "dpepo")
