"""A small transformer from nothing, with a tokenizer of its own, that a laptop can train."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from parallel_envs.alfworld.package import import_alfworld

__all__ = ["alfworld_words", "tiny_model", "tiny_tokenizer"]

_SPECIAL = ("<|pad|>", "<|end|>", "<|unknown|>", "<|user|>", "<|reply|>")
# A tag, a word, a number or a mark is a token.
_TOKENS = r"</?\w+>|\d+|[^\W\d]+|[^\w\s]"
_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['content'] %}"
    "{% if message['role'] == 'assistant' %}<|reply|>{{ message['content'] }}<|end|>"
    "{% else %}<|user|>{{ message['content'] }}{% endif %}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|reply|>{% endif %}"
)


def alfworld_words() -> list[str]:
    """Return the words that actions and prompts of any ALFWorld game can hold.

    Example:
        >>> {"cellphone", "microwave", "heat", "27"} <= set(alfworld_words())
        True
    """
    objects = [name.lower() for name in import_alfworld("gen.constants").OBJECTS]
    verbs = "go to take from move open close use heat cool clean slice with examine look inventory"
    states = "at start closed holds done failed put in goal seen target tool new none hot two env"
    return [*objects, *verbs.split(), *states.split(), *map(str, range(1, 61))]


def tiny_tokenizer(texts: Iterable[str], words: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Return a tokenizer of whole words, numbers and tags; between them it writes blanks.

    What it does not know is one unknown token, so take texts of all games that are to be played.

    Args:
        texts: What is to be read and written.
        words: Further words.

    Example:
        >>> tokenizer = tiny_tokenizer(["<env_1>go to desk 12</env_1>"])
        >>> tokenizer.decode(tokenizer("<env_1>go to desk 12</env_1>").input_ids)
        '<env_1> go to desk 12 </env_1>'
    """
    split = pre_tokenizers.Split(Regex(_TOKENS), "removed", invert=True)
    counts: Counter[str] = Counter(words)
    for text in texts:
        counts.update(token for token, _ in split.pre_tokenize_str(text))
    known = sorted(set(counts) - set(_SPECIAL))
    vocabulary = {token: number for number, token in enumerate([*_SPECIAL, *known])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<|unknown|>"))
    tokenizer.pre_tokenizer = split
    made = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        unk_token="<|unknown|>",
        additional_special_tokens=["<|user|>", "<|reply|>"],
    )
    made.chat_template = _TEMPLATE
    return made


def tiny_model(
    tokenizer: PreTrainedTokenizerFast,
    *,
    layers: int = 4,
    width: int = 128,
    context: int = 512,
    seed: int = 0,
) -> Any:
    """Return a Llama of the tokenizer's size with random weights.

    Weights start at a scale of 0.06: at the usual 0.02 a model this small does not learn to copy.

    Args:
        tokenizer: Gives the size of the vocabulary.
        layers: Number of layers.
        width: Size of the residual stream; heads are of 32.
        context: Greatest number of tokens of prompt and reply.
        seed: Seed of the weights.
    """
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        max_position_embeddings=context,
        initializer_range=0.06,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config)
