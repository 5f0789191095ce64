"""The trainer on TRL: several GPUs, vLLM, reports: ``python -m dpepo.scale.trl --help``.

TRL's `GRPOTrainer` keeps the loop: processes, accumulation, optimiser, checkpoints, reports. What
is played, what it is worth and the loss are those of `dpepo.train`, one of whose `Trainer` each
process holds. TRL takes one prompt and one reply for an attempt; here a row is one turn, with a
prompt of its own, and an update has as many rows as its attempts took turns.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from datasets import Dataset
from torch import Tensor
from transformers import HfArgumentParser
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOConfig, GRPOTrainer

from dpepo.lessons import lessons, objective
from dpepo.policy import arithmetic, token_logps
from dpepo.rollout import Played
from dpepo.scale.served import Served
from dpepo.scale.shares import padded, share
from dpepo.train import Config, Trainer, check, command

__all__ = ["TRLTrainer", "arguments", "main", "run"]

ABOUT = """Train on TRL. Options of TRL itself come behind a --.

Example: accelerate launch -m dpepo.scale.trl --model sft --out run -- --report_to wandb"""


def arguments(config: Config, out: Path, given: Sequence[str] = ()) -> GRPOConfig:
    """Return TRL's settings: those that follow from ours, and others as they are given.

    Args:
        config: What one process does.
        out: Folder of the run.
        given: Options of TRL, such as ``["--report_to", "wandb"]``.

    Raises:
        ValueError: TRL has no such option, or ours decide or exclude it.
    """
    parts = -(-config.tasks * config.group * config.max_turns // config.micro)
    ours = {
        "output_dir": str(out),
        "seed": config.seed,
        "max_steps": config.updates * config.steps,
        "num_iterations": config.steps,
        "gradient_accumulation_steps": parts,
        # TRL's own rows stand for nothing; their number is how many prompts vLLM takes at a time.
        "per_device_train_batch_size": 2 * -(-config.batch // (2 * parts)),
        "num_generations": 2,
        "lr_scheduler_type": "constant",
        "beta": 0.0,  # the objective has its KL term, and the policy its reference
        "bf16": False,  # `arithmetic` decides
        "temperature": config.temperature,
        "max_completion_length": config.max_tokens,
        "disable_dropout": True,
        "ignore_data_skip": True,
        "dataloader_pin_memory": False,
    }
    parser = HfArgumentParser(GRPOConfig)
    parser.set_defaults(**ours, report_to=["tensorboard"], logging_steps=1)
    parser.set_defaults(save_steps=config.save_every * config.steps)
    if not torch.cuda.is_available():  # its second pass would take another kernel than the first
        parser.set_defaults(gradient_checkpointing=None)
    (made,) = parser.parse_args_into_dataclasses(args=list(given), look_for_args_file=False)
    changed = [name for name, value in ours.items() if getattr(made, name) != value]
    if changed:
        raise ValueError(f"{', '.join(changed)} cannot be given; options before the -- decide it")
    if made.use_vllm and config.mode != "free":
        raise ValueError("TRL's vLLM takes no grammar of each prompt; give --mode free")
    return made


class TRLTrainer(GRPOTrainer):  # type: ignore[misc]
    """Trains the policy of a `Trainer` on what that `Trainer` plays.

    Args:
        ours: Plays this process's share, and holds policy, reference and optimiser.
        args: As `arguments` makes them.
    """

    def __init__(self, ours: Trainer, args: GRPOConfig) -> None:
        self.ours, self.parts = ours, args.gradient_accumulation_steps
        super().__init__(
            model=ours.policy.model,
            args=args,
            # TRL asks for both; prompts and rewards come from the environments.
            reward_funcs=lambda **_: [],
            train_dataset=Dataset.from_dict({"prompt": [""] * (args.generation_batch_size // 2)}),
            processing_class=ours.policy.tokenizer,
            optimizers=(ours.optimizer, None),
        )
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise ValueError("each process holds the whole model; launch without FSDP or DeepSpeed")
        if self.use_vllm:
            ours.agent.model = self.served = Served.by(self.vllm_generation, ours.chat)

    def play(self) -> list[Played]:
        """Play this process's share of an update, and report what all shares came to."""
        update = self.state.global_step // self.num_iterations
        # Anew for each update and process: a run that goes on draws what it would have drawn.
        self.ours.rng = np.random.default_rng((self.args.seed, update, self.args.process_index))
        self.ours.policy.model.eval()
        if self.use_vllm:
            self.vllm_generation.sync_weights()
        played = self.ours.play()
        if self.use_vllm:
            self.served.finish()
        self.ours.policy.model.train()
        self._report(self.ours.described(played), "mean")
        return played

    def batches(self, played: Sequence[Played]) -> list[dict[str, Any]]:
        """Return the micro-batches of an update; all processes have the same number of them."""
        found, mine = lessons(self.ours.config.algorithm, played)
        count = int(self.accelerator.reduce(torch.tensor(mine, device=self.args.device)))
        rows = padded(found, self.parts)
        size = len(rows) // self.parts
        starts = range(0, len(rows), size)
        return [{"rows": rows[i : i + size], "trajectories": count} for i in starts]

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """Take the step of a micro-batch. An update that teaches nothing moves no weight."""
        loss: Tensor = super().training_step(*args, **kwargs)
        if not self._buffered_inputs[0]["trajectories"]:
            self.model.zero_grad(set_to_none=True)  # at a gradient of 0 Adam would still move
        return loss

    def _prepare_inputs(self, _: Any) -> Any:
        if self._step % (self.parts * self.num_iterations) == 0 or self._buffered_inputs is None:
            self._buffered_inputs: Any = self.batches(self.play())
        return self._buffered_inputs[self._step % self.parts]

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        config, rows, count = self.ours.config, inputs["rows"], max(1, inputs["trajectories"])
        turns = [row.turn for row in rows]
        if "reference" not in inputs:
            inputs["reference"] = self.ours.policy.reference_logps(turns, config.temperature)
        with arithmetic(str(self.args.device), config.precision):
            now = token_logps(model, turns, config.temperature)
        old = inputs.setdefault("old", now[0].detach())  # at first it is the policy that played
        value, *seen = objective(rows, now, old, inputs["reference"], count, config.clip, config.kl)
        if not torch.isfinite(value):
            raise FloatingPointError(f"step {self.state.global_step + 1}: the loss is not finite")
        # TRL reports the mean over micro-batches, of which these are shares.
        away, spread = (float(term) * self.parts for term in seen)
        self._report({"kl": away, "entropy": spread}, "sum")
        return value * self.accelerator.num_processes  # over which gradients are averaged

    def _report(self, values: dict[str, float], how: str) -> None:
        mine = torch.tensor(list(values.values()), device=self.args.device)
        for name, value in zip(values, self.accelerator.reduce(mine, how).tolist(), strict=True):
            self._metrics["train"][name].append(value)


def main(out: Path, config: Config, given: Sequence[str] = ()) -> None:
    """Make a training run on TRL, or go on with the one in the folder."""
    try:
        check(config)
        mine = share(config, int(os.environ.get("WORLD_SIZE", "1")))
        out.mkdir(parents=True, exist_ok=True)
        last = get_last_checkpoint(str(out))  # type: ignore[no-untyped-call]
        there = json.loads((out / "run.json").read_text()) if last else asdict(config)
        changed = [k for k, v in asdict(config).items() if k != "updates" and there.get(k) != v]
        if changed:
            raise ValueError(f"{out} holds a run with another {', '.join(changed)}")
        args = arguments(mine, out, given)  # here processes meet: all have read, and may write
        trainer = TRLTrainer(Trainer(mine, out), args)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    (out / "run.json").write_text(json.dumps(asdict(config), indent=2) + "\n")
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(str(out))
    trainer.ours.close()


def run(argv: Sequence[str]) -> None:
    """Read a command line: the options of `dpepo.train`, and behind a ``--`` those of TRL."""
    cut = argv.index("--") if "--" in argv else len(argv)
    command(lambda out, config: main(out, config, argv[cut + 1 :]), ABOUT)(argv[:cut])


if __name__ == "__main__":
    run(sys.argv[1:])
