"""Chat models behind any server that speaks OpenAI's protocol."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urldefrag, urlsplit

import openai

from agents.chat.grammar import to_regex
from agents.chat.model import Decoding, Generation, Message, ModelError, Request

__all__ = ["OpenAIServer"]

logger = logging.getLogger(__name__)


class OpenAIServer:
    """A model behind ``/v1/chat/completions``: a local server, or a service.

    The key is read from ``$OPENAI_API_KEY`` and never kept elsewhere; a local server needs none.
    Each request is tried again after a rate limit, a server's fault, a broken connection or an
    answer that is none, with waits that grow at random; then it is an error in its place, and the
    others go on.

    Args:
        address: Base address, ``http://localhost:8000/v1``; ``#NAME`` behind it chooses a model,
            otherwise the server must offer one only.
        concurrency: Greatest number of requests at a time.
        timeout: Seconds that one try may take altogether, however slowly the server drips.
        retries: How often a request is tried again.
        structured: How the server takes a regular expression for decoding ``"admissible"``:
            ``"vllm"`` (0.12 and newer), ``"guided"`` (older vLLM); None if it takes none.
    """

    def __init__(
        self,
        address: str,
        *,
        concurrency: int = 16,
        timeout: float = 120.0,
        retries: int = 4,
        structured: str | None = "vllm",
    ) -> None:
        base, name = urldefrag(address)
        self._concurrency, self._timeout, self._retries = concurrency, timeout, retries
        self._structured = structured
        self._host = urlsplit(base).hostname
        # One event loop for the life of the model: the client's connections belong to it.
        self._runner = asyncio.Runner()
        self._client: openai.AsyncOpenAI | None = openai.AsyncOpenAI(
            base_url=base,
            api_key=os.environ.get("OPENAI_API_KEY") or "none",
            timeout=timeout,
            max_retries=0,  # tried again below, faults of the answer included
        )
        try:
            self._name = name or self._runner.run(self._only_model(base))
        except ModelError:
            self.close()
            raise

    @property
    def settings(self) -> Mapping[str, Any]:
        """Name of the model. The address is nobody's business."""
        return {"model": self._name, "backend": "openai"}

    @property
    def context(self) -> int | None:
        """The protocol has no question for it."""
        return None

    def generate(
        self, requests: Sequence[Request], decoding: Decoding
    ) -> list[Generation | ModelError]:
        """Return a reply for each request, an error in the place of one that failed for good."""
        if self._structured is None and any(r.grammar is not None for r in requests):
            raise ModelError(
                "this server takes no grammar; use --decoding free, or one that does (vLLM)"
            )
        return self._runner.run(self._all(requests, decoding))

    def count(self, messages: Sequence[Message]) -> int:
        """Return roughly how many tokens a prompt takes: four characters for each."""
        return sum(len(message["content"]) for message in messages) // 4 + 4 * len(messages)

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._runner.run(self._client.close())
            self._runner.close()
            self._client = None

    async def _only_model(self, base: str) -> str:
        assert self._client is not None
        try:
            offered = [model.id async for model in await self._client.models.list()]
        except openai.OpenAIError as error:
            raise ModelError(
                f"no server answers at {base} ({_brief(error)}); start one, or check the address"
            ) from error
        if len(offered) != 1:
            raise ModelError(
                f"the server offers {', '.join(sorted(offered)) or 'no model'}; "
                f"choose one with {base}#NAME"
            )
        return offered[0]

    async def _all(
        self, requests: Sequence[Request], decoding: Decoding
    ) -> list[Generation | ModelError]:
        room = asyncio.Semaphore(self._concurrency)

        async def one(request: Request) -> Generation | ModelError:
            async with room:
                return await self._patiently(request, decoding)

        return await asyncio.gather(*map(one, requests))

    async def _patiently(self, request: Request, decoding: Decoding) -> Generation | ModelError:
        """Ask until there is an answer, the server refuses, or patience is at an end."""
        for attempt in range(self._retries + 1):
            try:
                # A deadline for the whole try: the client's own is for each piece of it.
                async with asyncio.timeout(self._timeout):
                    return await self._ask(request, decoding)
            except _Ignored as error:
                return ModelError(str(error))
            except (openai.APIStatusError, openai.APIConnectionError, TimeoutError) as error:
                problem: Exception = error
                if isinstance(error, openai.APIStatusError) and not _passing(error.status_code):
                    break
            except (openai.OpenAIError, ValueError, AttributeError, TypeError, IndexError) as error:
                problem = error  # an answer that is none: broken JSON, no choices
            if attempt < self._retries:
                await asyncio.sleep(_pause(attempt, problem))
        tries = "try" if attempt == 0 else "tries"
        return ModelError(f"the model did not answer in {attempt + 1} {tries}: {_brief(problem)}")

    async def _ask(self, request: Request, decoding: Decoding) -> Generation:
        extra: dict[str, Any] = {}
        regex = "" if request.grammar is None else to_regex(request.grammar)
        if regex:
            extra = (
                {"structured_outputs": {"regex": regex}}
                if self._structured == "vllm"
                else {"guided_regex": regex}
            )
        assert self._client is not None, "the model is closed"
        answer = await self._client.chat.completions.create(
            model=self._name,
            messages=list(request.messages),  # type: ignore[arg-type]
            temperature=decoding.temperature,
            top_p=decoding.top_p,
            max_tokens=decoding.max_tokens,
            seed=request.seed % (1 << 31),
            extra_body=extra or None,
        )
        choice = answer.choices[0]
        text = choice.message.content
        if text is None:
            raise ValueError("the answer has no text")
        if regex and choice.finish_reason != "length" and not re.fullmatch(regex, text):
            raise _Ignored("the server ignores the grammar it is given; use --decoding free")
        usage = answer.usage
        cached = usage and usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens
        return Generation(
            text=text,
            finish_reason=choice.finish_reason or "stop",
            tokens_in=usage.prompt_tokens if usage else self.count(request.messages),
            tokens_out=usage.completion_tokens if usage else len(text) // 4,
            tokens_cached=cached or None,
        )


class _Ignored(Exception):
    """The server did not keep to the grammar."""


def _passing(status: int) -> bool:
    """Whether a fault is likely to pass: rate limits and the server's own."""
    return status in (408, 409, 425, 429) or status >= 500


def _pause(attempt: int, error: Exception) -> float:
    """Return how long to wait: what the server asks for, else a random time that doubles."""
    if isinstance(error, openai.APIStatusError):
        try:
            return min(60.0, float(error.response.headers["retry-after"]))
        except (KeyError, ValueError):
            pass
    # Random, so that many clients that failed together do not come back together.
    return random.uniform(0, min(30.0, 0.5 * 2**attempt))


def _brief(error: Exception) -> str:
    """Return what a person needs of an error; never its headers, which could hold the key."""
    if isinstance(error, openai.APIStatusError):
        return f"HTTP {error.status_code}"
    return f"{type(error).__name__}: {str(error)[:200]}" if str(error) else type(error).__name__
