"""Training on TRL is training by `dpepo.train`: same episodes, same loss, same steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpepo.lessons import lessons
from dpepo.rollout import Played
from dpepo.scale.shares import padded, share
from dpepo.tiny import alfworld_words, tiny_model, tiny_tokenizer
from dpepo.train import Config, Trainer

pytest.importorskip("trl")

from dpepo.scale.served import Served
from dpepo.scale.trl import TRLTrainer, arguments, run


class Paid(Trainer):
    """A trainer some of whose attempts are paid, so that there is something to learn."""

    def play(self) -> list[Played]:
        return [
            replace(p, turns=(*p.turns[:-1], replace(p.turns[-1], reward=float(i % 2))))
            for i, p in enumerate(super().play())
        ]


@pytest.fixture(scope="module", autouse=True)
def _one_quiet_thread() -> Iterator[None]:
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CI", "1")  # TRL reports its use from elsewhere
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of random weights that knows ALFWorld's words."""
    out = tmp_path_factory.mktemp("tiny")
    tags = "<think></think><parallel><env_1></env_1><env_2></env_2></parallel>"
    tokenizer = tiny_tokenizer([tags], alfworld_words())
    tokenizer.save_pretrained(out)
    tiny_model(tokenizer, layers=1, width=32).save_pretrained(out)
    return out


def small(folder: Path, **changes: Any) -> Config:
    config = Config(
        model=str(folder),
        split="valid_seen",
        n=2,
        max_turns=2,
        tasks=2,
        group=3,
        updates=2,
        micro=5,
        batch=6,
        think=2,
        precision="float32",
        lr=1e-3,
    )
    return replace(config, **changes)


def on_trl(config: Config, out: Path, kind: type[Trainer] = Paid, *given: str) -> TRLTrainer:
    options = ["--report_to", "none", "--disable_tqdm", "True", "--save_strategy", "no"]
    return TRLTrainer(kind(config, out), arguments(config, out, [*options, *given]))


def weights(trainer: Trainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.policy.learning.values()])


@pytest.mark.parametrize("algorithm", ["dpepo", "grpo", "gigpo"])
def test_a_run_is_that_of_our_own_trainer(folder: Path, tmp_path: Path, algorithm: str) -> None:
    config = small(folder, algorithm=algorithm, steps=2)
    own = Paid(config, tmp_path)
    start = weights(own)
    for update in range(2):
        own.rng = np.random.default_rng((config.seed, update, 0))
        learned = own.learn(own.play())
    scaled = on_trl(config, tmp_path)
    scaled.train()
    assert (weights(own) - start).abs().max() > 1e-3
    torch.testing.assert_close(weights(scaled.ours), weights(own), rtol=0, atol=1e-5)
    last = [row for row in scaled.state.log_history if "kl" in row][-1]
    for name in ("kl", "entropy", "grad_norm"):
        assert last[name] == pytest.approx(learned[name], rel=1e-3)
    for trainer in (own, scaled.ours):
        trainer.close()


def test_loss_and_gradient_are_those_of_our_own_trainer(folder: Path, tmp_path: Path) -> None:
    own = Paid(small(folder, micro=100, max_turns=3), tmp_path)
    played = own.play()
    assert any(a is not None and len(a) > 1 for t in played[0].turns for a in t.allowed)
    own.learn(played)  # leaves its gradient, clipped to a norm of 1
    expected = torch.cat([p.grad.flatten() for p in own.policy.learning.values()])
    scaled = on_trl(own.config, tmp_path)
    policy = scaled.ours.policy
    losses = []
    for scaled.parts in (1, 5, 30):  # of 18 turns; with 30, whole micro-batches are empty
        batches = scaled.batches(played)
        assert len(batches) == scaled.parts
        policy.model.zero_grad()
        values = torch.stack([scaled._compute_loss(policy.model, batch) for batch in batches])
        values.sum().backward()
        found = torch.cat([p.grad.flatten() for p in policy.learning.values()])
        clipped = found / found.norm().clamp(min=1.0)
        torch.testing.assert_close(clipped, expected, rtol=1e-4, atol=1e-6)
        losses.append(float(values.sum().detach()))
    assert losses == pytest.approx([losses[0]] * 3, abs=1e-6)
    for trainer in (own, scaled.ours):
        trainer.close()


def test_padding_gives_every_part_as_many_rows(folder: Path, tmp_path: Path) -> None:
    own = Paid(small(folder), tmp_path)
    found, trajectories = lessons("grpo", own.play())
    own.close()
    assert trajectories == 6
    for parts in (1, 5, 7, len(found), 3 * len(found)):
        rows = padded(found, parts)
        assert len(rows) % parts == 0
        assert len(rows) - len(found) < parts
        assert rows[len(rows) - len(found) :] == found
        assert not any(row.turn.reply for row in rows[: len(rows) - len(found)])


class PaidOnce(Paid):
    """In the second update all attempts end alike."""

    def play(self) -> list[Played]:
        self.update += 1
        return super().play() if self.update == 1 else Trainer.play(self)


def test_an_update_without_differences_moves_nothing(folder: Path, tmp_path: Path) -> None:
    after = []
    for updates in (1, 2):
        scaled = on_trl(small(folder, updates=updates), tmp_path, PaidOnce)
        scaled.train()
        after.append(weights(scaled.ours))
        scaled.ours.close()
    assert scaled.ours.update == 2
    assert torch.equal(*after)


@pytest.mark.parametrize("lora", [0, 4])
def test_a_stopped_run_goes_on_exactly(folder: Path, tmp_path: Path, lora: int) -> None:
    config = small(folder, updates=3, lora=lora, save_every=1)
    whole = on_trl(config, tmp_path / "whole")
    whole.train()
    on = ("--save_strategy", "steps")
    first = on_trl(replace(config, updates=2), tmp_path / "parts", Paid, *on)
    first.train()
    second = on_trl(config, tmp_path / "parts", Paid, *on)
    start = weights(second.ours)
    second.train(resume_from_checkpoint=True)
    assert not torch.equal(weights(second.ours), start)
    torch.testing.assert_close(weights(second.ours), weights(whole.ours), rtol=0, atol=0)
    for trainer in (whole, first, second):
        trainer.ours.close()


@pytest.mark.timeout(900)  # three interpreters load torch; on a busy machine that takes a while
def test_two_processes_share_an_update(folder: Path, tmp_path: Path) -> None:
    own = Paid(small(folder, tasks=1), tmp_path)
    start, played = weights(own), []
    for process in range(2):
        own.rng = np.random.default_rng((0, 0, process))
        played += own.play()
    assert len({p.task_id for p in played}) == 2
    learned = own.learn(played)
    own.close()
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*launch, "-m", "tests.dpepo.test_scale_trl", str(folder), str(tmp_path)],
        env={**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1", "CI": "1"},
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (first, norm, asked), (second, *_, asked_too) = (
        torch.load(tmp_path / f"{process}.pt") for process in range(2)
    )
    assert torch.equal(first, second)
    assert norm == pytest.approx(learned["grad_norm"], rel=1e-3)
    # Adam's first step is the sign of a gradient: where that is nearly 0, a sum in another order
    # flips it. So the steps are compared as a whole.
    step, expected = first - start, weights(own) - start
    assert torch.nn.functional.cosine_similarity(step, expected, dim=0) > 0.99
    assert asked == asked_too == [3, 2]


class Counting:
    """An engine that ends every reply at once, and counts what it is asked."""

    def __init__(self, end: int) -> None:
        self.end, self.asked = end, []

    def generate(self, prompts: list[list[int]], **_: Any) -> tuple[Any, ...]:
        self.asked.append(len(prompts))
        return prompts, [[prompt[0], self.end] for prompt in prompts], None, None


def test_a_served_policy_gives_every_prompt_its_answer(folder: Path, tmp_path: Path) -> None:
    config = small(folder, mode="free", think=0)
    own = Trainer(config, tmp_path)
    engine = Counting(own.chat.tokenizer.eos_token_id)
    own.agent.model = Served.by(engine, own.chat)
    played = own.play()
    own.close()
    assert engine.asked == [6, 6]
    for turn in (turn for p in played for turn in p.turns):
        assert turn.reply == (turn.prompt[0], engine.end)
        assert turn.allowed == (None, None)


def test_the_command_trains_and_goes_on(folder: Path, tmp_path: Path) -> None:
    options = "--split valid_seen --n 1 --max-turns 2 --tasks 1 --group 2 --batch 2 --save-every 1"
    ours = ["--model", str(folder), "--out", str(tmp_path), *options.split(), "--updates"]
    quiet = ["--", "--disable_tqdm", "True", "--report_to", "none"]
    for updates in ("1", "2"):
        with pytest.raises(SystemExit) as done:
            run([*ours, updates, *quiet])
        assert done.value.code == 0
    state = json.loads((tmp_path / "checkpoint-2" / "trainer_state.json").read_text())
    told = [row for row in state["log_history"] if "won" in row]
    assert [row["step"] for row in told] == [1, 2]
    assert json.loads((tmp_path / "run.json").read_text())["updates"] == 2
    played = Trainer(small(tmp_path), tmp_path)  # the folder is a model
    played.close()


@pytest.mark.parametrize(
    ("processes", "options", "told"),
    [
        ("1", "--updates 1", "give --model"),
        ("3", "--model M --tasks 16", "3 processes cannot share --tasks 16 evenly"),
        ("1", "--model M --env-steps 9", "limit this run by --updates"),
        ("1", "--model M -- --temperature 2", "temperature cannot be given"),
        ("1", "--model M -- --tempo 2", "--tempo"),
        ("1", "--model M -- --use_vllm", "give --mode free"),
        ("1", "--model M --algorithm ppo", "dpepo, gigpo, grpo, rloo"),
    ],
)
def test_a_command_that_cannot_work_says_why(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    processes: str,
    options: str,
    told: str,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", processes)
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as done:
        run(["--out", str(tmp_path), *options.replace("M", str(folder)).split()])
    assert done.value.code == 2
    assert told in capsys.readouterr().err


def test_another_run_is_not_gone_on_with(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checkpoint-1").mkdir()
    (tmp_path / "run.json").write_text(json.dumps({"lr": 0.5}))
    with pytest.raises(SystemExit):
        run(["--out", str(tmp_path), "--model", str(folder)])
    assert "another algorithm" in capsys.readouterr().err


@pytest.mark.parametrize("change", [{"env_steps": 9}, {"ray": "auto"}, {"workers": 2}])
def test_what_only_the_readable_trainer_does_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"dpepo\.train alone"):
        share(Config(**change), 1)


if __name__ == "__main__":  # one process of two
    out = Path(sys.argv[2])
    one = on_trl(share(small(Path(sys.argv[1]), updates=1), 2), out)
    one.train()
    one.ours.close()
    rank = one.accelerator.process_index
    counting = Counting(one.ours.chat.tokenizer.eos_token_id)
    served = Served.by(counting, one.ours.chat)
    for number in ((3, 2), (1,))[rank]:  # the second process is done earlier
        assert len(served._answers([[7]] * number) or ()) == number
    served.finish()
    (norm,) = (row["grad_norm"] for row in one.state.log_history if "grad_norm" in row)
    torch.save((weights(one.ours), norm, counting.asked), out / f"{rank}.pt")
