"""Chat models: one protocol, several back ends."""

from agents.chat.grammar import Choice, Free, Grammar
from agents.chat.model import ChatModel, Decoding, Generation, ModelError, Request, open_model

__all__ = [
    "ChatModel",
    "Choice",
    "Decoding",
    "Free",
    "Generation",
    "Grammar",
    "ModelError",
    "Request",
    "open_model",
]
