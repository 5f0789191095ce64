"""Reinforcement learning in one file: ``python -m dpepo.train --help``.

An update draws some tasks, plays each several times (`dpepo.rollout`), compares the attempts
(`dpepo.advantages`, weighed by `dpepo.weights`) and takes a few clipped steps (`dpepo.losses`).
GRPO, GiGPO, DPEPO and RLOO differ in the advantage alone.
"""

from __future__ import annotations

import inspect
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
import torch
import typer
from tqdm import tqdm

from agents.chat.hf import TransformersModel
from agents.chat.model import Decoding, DecodingMode
from agents.chat_agent import ChatAgent
from agents.prompt import style
from dpepo.advantages import estimator_names
from dpepo.curves import Curves, alarms
from dpepo.lessons import lessons, objective
from dpepo.policy import Policy, Precision, arithmetic
from dpepo.rollout import Played, rollout
from dpepo.weights import Mode, WeightConfig
from parallel_envs import ParallelEnvsError, Task
from parallel_envs.registration import constructor

__all__ = ["Config", "Trainer", "check", "command", "main"]


@dataclass(frozen=True)
class Config:
    """What a training run does.

    Attributes:
        algorithm: Name of the advantage estimator.
        env: Environment.
        split: Split of the tasks.
        model: Folder or hub id that training starts from; also the reference of the KL term.
        prompt: Prompt style.
        n: Number of replicas.
        max_turns: Turn limit of an episode.
        tasks: Tasks of an update.
        group: Attempts at each task.
        updates: Greatest number of updates.
        env_steps: Stop after the update in which as many steps of replicas were taken; 0: no limit.
        steps: Optimiser steps of an update, each over all of its turns.
        micro: Turns of a micro-batch; it changes nothing but memory.
        lora: Rank of a LoRA adapter on all linear layers; 0 trains all weights.
        precision: What passes compute in, bfloat16 or float32; weights are kept in float32.
        lr: Learning rate.
        kl: Weight of the KL term.
        clip: How far a ratio may go from 1.
        temperature: Of the rollouts.
        mode: Decoding of the rollouts.
        think: In mode admissible: greatest number of tokens of reasoning.
        max_tokens: Greatest length of a reply.
        batch: Episodes that are played beside one another.
        weight_mode: How DPEPO's counts are put together.
        alpha: DPEPO's factor for repeated actions; 1 switches it off.
        omega: DPEPO's factor for equal actions in a turn.
        gamma: DPEPO's factor for repeated transitions.
        beta: DPEPO's factor for transitions that others made.
        save_every: Updates between checkpoints.
        seed: Seed of everything.
        ray: Play on a Ray cluster: auto, HOST:PORT, ray://HOST:PORT, or local for this machine.
        workers: Processes of the cluster that play; 0 is one for each GPU, without any each CPU.
    """

    algorithm: str = "dpepo"
    env: str = "alfworld"
    split: str = "train"
    model: str = ""
    prompt: str = "compact"
    n: int = 4
    max_turns: int = 25
    tasks: int = 16
    group: int = 8
    updates: int = 30
    env_steps: int = 0
    steps: int = 1
    micro: int = 64
    lora: int = 0
    precision: Precision = "bfloat16"
    lr: float = 3e-4
    kl: float = 0.02
    clip: float = 0.2
    temperature: float = 1.0
    mode: DecodingMode = "admissible"
    think: int = 8
    max_tokens: int = 80
    batch: int = 64
    weight_mode: Mode = "code"
    alpha: float = 0.8
    omega: float = 0.8
    gamma: float = 0.95
    beta: float = 0.95
    save_every: int = 5
    seed: int = 0
    ray: str = ""
    workers: int = 0


class Trainer:
    """A training run: its model, its reference, its random numbers, and its folder."""

    def __init__(self, config: Config, out: Path) -> None:
        self.config, self.out = config, out
        self.weights = WeightConfig(
            config.alpha, config.omega, config.gamma, config.beta, mode=config.weight_mode
        )
        torch.manual_seed(config.seed)  # of an adapter's first weights
        self.policy = Policy(config.model, config.lora, config.precision)
        self.chat = TransformersModel.of(
            self.policy.model, self.policy.tokenizer, batch_size=config.batch
        )
        decoding = Decoding(
            temperature=config.temperature,
            max_tokens=config.max_tokens,
            mode=config.mode,
            think=config.think if config.mode == "admissible" else 0,
        )
        self.agent = ChatAgent(self.chat, style(config.prompt), decoding)
        self.optimizer = torch.optim.AdamW(
            list(self.policy.learning.values()), lr=config.lr, weight_decay=0.0
        )
        self.rng = np.random.default_rng(config.seed)
        self.update = self.env_steps = 0
        first = constructor(config.env)(n=config.n, split=config.split, max_turns=config.max_turns)
        others = range(1, min(config.batch, config.tasks * config.group))
        self.envs = [first, *(first.sibling() for _ in others)]

    def run(self) -> Iterator[dict[str, float]]:
        """Make every update that is still missing, and yield what each came to."""
        while not self.finished:
            start = time.perf_counter()
            played = self.play()
            middle = time.perf_counter()
            learned = self.learn(played)
            self.update += 1
            self.env_steps += sum(p.episode.steps for p in played)
            row = {
                "update": self.update,
                "env_steps": self.env_steps,
                **self.described(played),
                **learned,
                "rollout_seconds": middle - start,
                "learn_seconds": time.perf_counter() - middle,
            }
            if self.update % self.config.save_every == 0 or self.finished:
                self.save()
            yield row

    @property
    def finished(self) -> bool:
        """Whether all updates or all environment steps are done."""
        config = self.config
        return self.update >= config.updates or 0 < config.env_steps <= self.env_steps

    def draw(self) -> list[Task]:
        """Draw the tasks of an update, each `group` times."""
        tasks = self.envs[0].task_set.tasks
        drawn = self.rng.choice(len(tasks), size=self.config.tasks, replace=False)
        return [tasks[i] for i in drawn for _ in range(self.config.group)]

    def play(self) -> list[Played]:
        """Draw the tasks of an update and attempt each `group` times."""
        chosen = self.draw()
        with torch.no_grad(), arithmetic(self.policy.device, self.config.precision):
            return rollout(self.envs, self.agent, chosen, self.rng, self.weights)

    def learn(self, played: Sequence[Played]) -> dict[str, float]:
        """Take the optimiser steps of an update."""
        config = self.config
        taught, trajectories = lessons(config.algorithm, played)
        if not taught:
            return {"taught": 0.0}
        groups = [taught[i : i + config.micro] for i in range(0, len(taught), config.micro)]
        turns = [[lesson.turn for lesson in group] for group in groups]
        known = [self.policy.reference_logps(each, config.temperature) for each in turns]
        old: list[torch.Tensor] = []
        totals = np.zeros(2)
        norm = 0.0
        for step in range(config.steps):
            self.optimizer.zero_grad(set_to_none=True)
            totals[:] = 0
            for number, (group, reference) in enumerate(zip(groups, known, strict=True)):
                now = self.policy.logps(turns[number], config.temperature)
                if step == 0:
                    old.append(now[0].detach())  # it is the policy that played
                value, *seen = objective(
                    group, now, old[number], reference, trajectories, config.clip, config.kl
                )
                if not torch.isfinite(value):
                    torch.save(turns[number], self.out / "bad_batch.pt")
                    raise FloatingPointError(
                        f"update {self.update + 1}: the loss is {float(value.detach())}; the turns "
                        f"are in {self.out / 'bad_batch.pt'}"
                    )
                value.backward()  # type: ignore[no-untyped-call]
                totals += [float(term) for term in seen]
            norm = float(torch.nn.utils.clip_grad_norm_(self.policy.learning.values(), 1.0))
            self.optimizer.step()
        return {
            "kl": float(totals[0]),
            "entropy": float(totals[1]),
            "grad_norm": norm,
            "taught": len(taught) / sum(len(p.turns) for p in played),
        }

    def described(self, played: Sequence[Played]) -> dict[str, float]:
        """Return what the episodes of an update came to."""
        turns = [turn for p in played for turn in p.turns]
        return {
            "won": float(np.mean([p.episode.won for p in played])),
            "score": float(np.mean([p.episode.best_score for p in played])),
            "turns": len(turns) / len(played),
            "steps": float(np.mean([p.episode.steps for p in played])),
            "weight": float(np.mean([turn.weight for turn in turns])),
            "acting": float(np.mean([any(t.actions) for p in played for t in p.episode.turns])),
            "tokens_in": float(sum(len(turn.prompt) for turn in turns)),
            "tokens_out": float(sum(len(turn.reply) for turn in turns)),
        }

    def save(self) -> None:
        """Write model, optimiser and random numbers, so that a crash leaves the old or the new."""
        self.policy.model.save_pretrained(self.out)
        self.chat.tokenizer.save_pretrained(self.out)
        state = {
            "config": asdict(self.config),
            "update": self.update,
            "env_steps": self.env_steps,
            "weights": self.policy.learning,
            "optimizer": self.optimizer.state_dict(),
            "rng": self.rng.bit_generator.state,
        }
        beside = self.out / "state.new"
        torch.save(state, beside)
        beside.replace(self.out / "state.pt")

    def resume(self) -> bool:
        """Go on from the folder's checkpoint; False if there is none.

        Raises:
            ValueError: It is of another configuration; the message says which.
        """
        path = self.out / "state.pt"
        if not path.exists():
            return False
        state = torch.load(path, weights_only=False)
        ours = asdict(self.config)
        longer = ("updates", "env_steps", "ray", "workers")
        changed = [k for k in ours if k not in longer and state["config"].get(k) != ours[k]]
        if changed:
            there = state["config"]
            differences = ", ".join(f"{k}: {there.get(k)} there, {ours[k]} now" for k in changed)
            raise ValueError(f"{self.out} holds another run ({differences}); choose another --out")
        self.policy.load(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.rng.bit_generator.state = state["rng"]
        self.update, self.env_steps = int(state["update"]), int(state["env_steps"])
        return True

    def close(self) -> None:
        """Free the environments."""
        for env in self.envs:
            env.close()


def check(config: Config) -> None:
    """Refuse what no trainer can do.

    Raises:
        ValueError: There is no model to start from, or no estimator of that name.
    """
    if not config.model:
        raise ValueError("give --model: a folder to start from, such as dpepo.sft makes")
    if config.algorithm not in estimator_names():
        raise ValueError(f"--algorithm must be one of {', '.join(estimator_names())}")


def main(out: Path, config: Config) -> None:
    """Make a training run, or go on with the one in the folder."""
    make = Trainer
    try:
        check(config)
        out.mkdir(parents=True, exist_ok=True)
        if config.ray:
            from dpepo.scale.ray import RayTrainer as make  # it needs the extra "ray"
        trainer = make(config, out)
        if trainer.resume():
            typer.echo(f"Going on after update {trainer.update}.")
    except (ValueError, ParallelEnvsError) as error:
        raise typer.BadParameter(str(error)) from error
    (out / "run.json").write_text(json.dumps(asdict(config), indent=2) + "\n")
    curves = Curves(out, trainer.update)
    unit, total = (
        ("env_steps", config.env_steps) if config.env_steps else ("update", config.updates)
    )
    bar = tqdm(total=total, initial=getattr(trainer, unit), unit=f" {unit}", disable=None)
    for row in trainer.run():
        curves.add(row)
        bar.update(row[unit] - bar.n)
        bar.set_postfix_str(f"won {row['won']:.2f}, {row['update']} updates")
        for alarm in alarms(curves.rows):
            tqdm.write(f"WARNING after update {row['update']}: {alarm}")
    bar.close()
    curves.close()
    trainer.close()


ABOUT = """Train a model by what its actions lead to.

Example: python -m dpepo.train --algorithm dpepo --model sft --out run"""


def command(start: Callable[[Path, Config], None] = main, about: str = ABOUT) -> typer.Typer:
    """Return the command line of `start`, whose options are the fields of `Config`."""
    described = dict(re.findall(r"^ {8}(\w+): (.+)$", Config.__doc__ or "", re.MULTILINE))
    kinds = get_type_hints(Config)
    kinds["mode"] = kinds["weight_mode"] = kinds["precision"] = str
    options = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=Annotated[kinds[field.name], typer.Option(help=described[field.name])],
        )
        for field in fields(Config)
    ]
    folder = inspect.Parameter(
        "out",
        inspect.Parameter.KEYWORD_ONLY,
        annotation=Annotated[Path, typer.Option(help="Folder of the run; a stopped one goes on.")],
    )

    def run(**given: Any) -> None:
        start(given.pop("out"), Config(**given))

    run.__doc__ = about
    run.__signature__ = inspect.Signature([folder, *options])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in (folder, *options)}
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(run)
    return app


if __name__ == "__main__":
    command()()
