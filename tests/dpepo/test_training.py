"""From demonstrations to reinforcement, with a model of 60,000 parameters on real games."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from agents.chat.hf import TransformersModel
from agents.chat.model import Decoding
from agents.chat_agent import ChatAgent
from agents.prompt import style
from agents.reply import parse_reply
from dpepo import demonstrate, sft
from dpepo.lessons import rows_of
from dpepo.policy import Policy, token_logps
from dpepo.rollout import rollout
from dpepo.tiny import tiny_model, tiny_tokenizer
from dpepo.train import Config, Trainer, command
from dpepo.weights import WeightConfig, episode_weights
from parallel_envs.episode import replay
from tests.engines import make

TASKS = 3


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Demonstrations of a few real games."""
    path = tmp_path_factory.mktemp("demo") / "turns.jsonl"
    options = ["--split", "valid_seen", "--games", "4", "--n", "2", "--noise", "0.2"]
    done = CliRunner().invoke(demonstrate.app, [str(path), *options])
    assert done.exit_code == 0, done.output
    return path


@pytest.fixture(scope="module")
def folder(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned a little from them."""
    out = tmp_path_factory.mktemp("sft")
    options = ["--epochs", "6", "--layers", "2", "--width", "64", "--batch", "8"]
    done = CliRunner().invoke(sft.app, [str(data), "--out", str(out), *options])
    assert done.exit_code == 0, done.output
    return out


@pytest.fixture
def trainer(folder: Path, tmp_path: Path) -> Trainer:
    made = Trainer(small(folder), tmp_path)
    yield made
    made.close()


def small(folder: Path, **changes: Any) -> Config:
    config = Config(
        model=str(folder),
        split="valid_seen",
        n=2,
        max_turns=3,
        tasks=2,
        group=3,
        updates=2,
        batch=3,
        precision="float32",
        lr=1e-4,
    )
    return replace(config, **changes)


def turns_of(data: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.read_text().splitlines()]


def test_demonstrations_are_admissible_replies_to_the_prompt(data: Path) -> None:
    turns = turns_of(data)
    assert {turn["n"] for turn in turns} == {2}
    assert [turn["turn"] for turn in turns][:3] == [0, 1, 2]
    for turn in turns:
        reply = parse_reply(turn["reply"], 2)
        assert reply.issues == ()
        assert turn["messages"][-1]["content"].startswith("goal: ")


def test_the_tokenizer_reads_and_writes_every_demonstration(data: Path) -> None:
    turns = turns_of(data)
    texts = [text for turn in turns for text in (turn["messages"][-1]["content"], turn["reply"])]
    tokenizer = tiny_tokenizer(texts)
    for turn in turns:
        tokens = tokenizer(turn["reply"], add_special_tokens=False)["input_ids"]
        assert tokenizer.unk_token_id not in tokens
        again = tokenizer.decode(tokens)
        assert parse_reply(again, 2).actions == parse_reply(turn["reply"], 2).actions


def test_the_loss_is_of_the_reply_and_a_little_of_the_prompt(data: Path) -> None:
    turns = turns_of(data)[:6]
    tokenizer = tiny_tokenizer(
        text for turn in turns for text in (turn["messages"][-1]["content"], turn["reply"])
    )
    model = tiny_model(tokenizer, layers=1, width=32)
    batch = sft.examples(turns, tokenizer)
    expected = []
    for example in batch:
        tokens = torch.tensor([example.tokens])
        logp = model(tokens).logits[0, :-1].log_softmax(-1).detach()
        picked = -logp.gather(-1, tokens[0, 1:, None])[:, 0]
        expected.append((picked[: example.prompt - 1].sum(), picked[example.prompt - 1 :].sum()))
    prompt = sum(example.prompt - 1 for example in batch)
    reply = sum(len(example.tokens) - example.prompt for example in batch)
    value, replies = (part.detach() for part in sft.loss(model, batch, 0.1))
    assert float(replies) == pytest.approx(float(sum(r for _, r in expected)) / reply, rel=1e-4)
    whole = sum(0.1 * p + r for p, r in expected) / (0.1 * prompt + reply)
    assert float(value) == pytest.approx(float(whole), rel=1e-4)


def test_every_weight_has_one_optimizer(data: Path) -> None:
    model = tiny_model(tiny_tokenizer(["a"]), layers=2, width=32)
    names = {id(weight): name for name, weight in model.named_parameters()}

    def held(recipe: sft.Recipe) -> list[list[str]]:
        return [
            [names[id(weight)] for group in optimizer.param_groups for weight in group["params"]]
            for optimizer, _ in sft.optimizers(model, recipe)
        ]

    (alone,) = held(sft.Recipe())
    adam, muon = held(sft.Recipe(matrix_lr=0.02))
    assert sorted(alone) == sorted(adam + muon) == sorted(names.values())
    assert all(re.search(r"layers\.\d+\.(mlp|self_attn)", name) for name in muon)
    assert not any(re.search(r"layers\.\d+\.(mlp|self_attn)", name) for name in adam)


def test_learning_lowers_the_loss(folder: Path) -> None:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["reply_loss"] < rows[0]["reply_loss"] - 0.5


def test_a_rollout_is_what_the_environment_says_and_the_policy_did(trainer: Trainer) -> None:
    played = trainer.play()
    assert len(played) == 6
    assert len({p.task_id for p in played}) == 2
    for p in played:
        assert len(p.turns) == len(p.episode.turns)
        assert sum(turn.reward for turn in p.turns) == pytest.approx(p.episode.best_score)
        assert tuple(turn.weight for turn in p.turns) == episode_weights(p.episode, WeightConfig())
        for turn, sample in zip(p.episode.turns, p.turns, strict=True):
            text = trainer.chat.tokenizer.decode(sample.reply, skip_special_tokens=True)
            read = parse_reply(text, 2)
            assert tuple(read.actions.get(i, "") for i in (1, 2)) == turn.actions
            assert all(
                a is None or t in a for a, t in zip(sample.allowed, sample.reply, strict=True)
            )
            assert turn.acted == turn.admissible
    env = make("alfworld", split="valid_seen", n=2, max_turns=3)
    assert replay(played[0].episode, env) == played[0].episode
    env.close()


def test_a_rollout_does_not_depend_on_how_many_run_beside_one_another(folder: Path) -> None:
    def episodes(batch: int) -> list[Any]:
        made = Trainer(small(folder, batch=batch), folder)
        found = [p.episode for p in made.play()]
        made.close()
        return found

    assert episodes(1) == episodes(3)


def test_log_probabilities_are_those_of_the_draw(trainer: Trainer) -> None:
    samples = [turn for p in trainer.play()[:2] for turn in p.turns]
    with torch.no_grad():
        logp, mask, _ = token_logps(trainer.policy.model, samples, 1.0)
        for row, sample in enumerate(samples):
            tokens = torch.tensor([(*sample.prompt, *sample.reply)])
            logits = trainer.policy.model(tokens).logits[0, len(sample.prompt) - 1 : -1]
            for place, (token, allowed) in enumerate(
                zip(sample.reply, sample.allowed, strict=True)
            ):
                among = logits[place, list(allowed)].log_softmax(-1)
                expected = float(among[allowed.index(token)])
                assert float(logp[row, place]) == pytest.approx(expected, abs=1e-4)
    assert not bool(logp[~mask].any())


def test_rows_group_the_attempts_at_a_task(trainer: Trainer) -> None:
    played = trainer.play()
    rows = rows_of(played)
    assert len(rows) == sum(len(p.turns) for p in played)
    assert len(set(rows.group.tolist())) == 2
    assert len(set(rows.trajectory.tolist())) == 6
    assert rows.returns.max() == max(p.episode.best_score for p in played)


def _pretend(trainer: Trainer) -> list[Any]:
    """Give some trajectories a win, so that there is something to learn."""
    played = trainer.play()
    return [
        replace(p, turns=(*p.turns[:-1], replace(p.turns[-1], reward=float(i % 2))))
        for i, p in enumerate(played)
    ]


@pytest.mark.parametrize("algorithm", ["grpo", "gigpo", "dpepo", "rloo"])
def test_an_update_makes_what_won_likelier(trainer: Trainer, algorithm: str) -> None:
    trainer.config = replace(trainer.config, algorithm=algorithm, steps=3)
    played = _pretend(trainer)
    for group in trainer.optimizer.param_groups:
        group["lr"] = 3e-3

    def likelihood(wins: bool) -> float:
        chosen = [
            t for p in played for t in p.turns if (sum(x.reward for x in p.turns) > 0) == wins
        ]
        with torch.no_grad():
            return float(token_logps(trainer.policy.model, chosen, 1.0)[0].sum() / len(chosen))

    before = likelihood(True) - likelihood(False)
    learned = trainer.learn(played)
    assert likelihood(True) - likelihood(False) > before
    assert np.isfinite(learned["kl"])


def test_micro_batches_change_nothing(folder: Path, tmp_path: Path) -> None:
    weights = []
    for micro in (2, 100):
        made = Trainer(small(folder, micro=micro), tmp_path)
        made.learn(_pretend(made))
        weights.append(torch.cat([p.detach().flatten() for p in made.policy.model.parameters()]))
        made.close()
    assert torch.allclose(*weights, atol=2e-5)


def test_a_stopped_run_goes_on_exactly(folder: Path, tmp_path: Path) -> None:
    whole = Trainer(small(folder, updates=3, save_every=1), tmp_path / "whole")
    (tmp_path / "whole").mkdir()
    rows = list(whole.run())
    whole.close()
    (tmp_path / "parts").mkdir()
    first = Trainer(small(folder, updates=3, save_every=1), tmp_path / "parts")
    next(first.run())
    first.close()
    second = Trainer(small(folder, updates=3, save_every=1), tmp_path / "parts")
    assert second.resume()
    again = list(second.run())
    second.close()

    def timeless(row: dict[str, float]) -> dict[str, float]:
        return {name: value for name, value in row.items() if "seconds" not in name}

    assert [timeless(row) for row in again] == [timeless(row) for row in rows[1:]]
    for name, weight in second.policy.learning.items():
        assert torch.equal(weight, whole.policy.learning[name])
    with pytest.raises(ValueError, match=r"lr: 0.0001 there, 0.5 now"):
        Trainer(small(folder, updates=3, save_every=1, lr=0.5), tmp_path / "parts").resume()


def test_an_adapter_learns_and_its_base_does_not(folder: Path, tmp_path: Path) -> None:
    made = Trainer(small(folder, lora=4, save_every=1), tmp_path)
    names = set(made.policy.learning)
    assert names
    assert all("lora" in name for name in names)
    before = {name: p.detach().clone() for name, p in made.policy.model.named_parameters()}
    played = _pretend(made)
    samples = [turn for p in played for turn in p.turns]
    start = made.policy.reference_logps(samples, 1.0)
    learned = made.learn(played)
    assert learned["kl"] == pytest.approx(0.0, abs=1e-6)  # an adapter begins with no effect
    for name, parameter in made.policy.model.named_parameters():
        assert torch.equal(parameter, before[name]) != ("lora_B" in name)
    assert torch.equal(made.policy.reference_logps(samples, 1.0), start)
    made.update = 1
    made.save()
    again = Trainer(small(folder, lora=4, save_every=1), tmp_path)
    assert again.resume()
    for name, parameter in again.policy.learning.items():
        assert torch.equal(parameter, made.policy.learning[name])
    for each in (made, again):
        each.close()
    played_back = TransformersModel(str(tmp_path))
    with torch.no_grad():
        there = token_logps(played_back.model, samples[:2], 1.0)[0]
        here = token_logps(again.policy.model, samples[:2], 1.0)[0]
    assert torch.allclose(there, here, atol=1e-5)


def test_a_run_stops_when_its_steps_are_spent(folder: Path, tmp_path: Path) -> None:
    made = Trainer(small(folder, updates=9, env_steps=20), tmp_path)
    rows = list(made.run())
    made.close()
    assert rows[-1]["env_steps"] >= 20 > (rows[-2]["env_steps"] if len(rows) > 1 else 0)
    assert (tmp_path / "state.pt").exists()


def test_half_precision_learns_nearly_the_same(folder: Path, tmp_path: Path) -> None:
    logps = []
    exact = Trainer(small(folder), tmp_path)
    samples = [turn for p in exact.play() for turn in p.turns]
    exact.close()
    for precision in ("float32", "bfloat16"):
        policy = Policy(str(folder), precision=precision)
        logp, mask, spread = policy.logps(samples, 1.0)
        assert logp.dtype == spread.dtype == torch.float32
        assert bool((spread[mask] >= 0).all())
        logps.append(logp.detach())
    assert float((logps[0] - logps[1]).abs().mean()) < 0.05


def test_a_loss_that_is_not_finite_stops_with_its_batch(trainer: Trainer) -> None:
    played = _pretend(trainer)
    with torch.no_grad():
        next(iter(trainer.policy.model.parameters())).fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="the loss is nan; the turns"):
        trainer.learn(played)
    assert (trainer.out / "bad_batch.pt").exists()


def test_the_command_trains_and_explains_itself(folder: Path, tmp_path: Path) -> None:
    options = "--split valid_seen --n 1 --max-turns 2 --tasks 1 --group 2 --updates 1 --batch 2"
    arguments = ["--model", str(folder), "--out", str(tmp_path), *options.split()]
    done = CliRunner().invoke(command(), arguments)
    assert done.exit_code == 0, done.output
    (row,) = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert row["update"] == 1
    assert (tmp_path / "model.safetensors").exists()
    told = CliRunner().invoke(command(), ["--help"], env={"COLUMNS": "200"}).output
    for word in ("--algorithm", "--weight-mode", "Weight of the KL term"):
        assert word in told
    wrong = CliRunner().invoke(command(), [*arguments, "--algorithm", "ppo"])
    assert wrong.exit_code == 2
    assert "must be one of" in wrong.output
    wrong = CliRunner().invoke(command(), [*arguments, "--env", "chess"])
    assert wrong.exit_code == 2
    assert "alfworld, scienceworld, toy" in wrong.output


def test_rollouts_use_the_agents_own_prompt_and_parser(trainer: Trainer) -> None:
    plain = ChatAgent(trainer.chat, style("compact"), Decoding(max_tokens=20))
    task = trainer.envs[0].task_set.tasks[0]
    rng = np.random.default_rng(0)
    (free,) = rollout(trainer.envs, plain, [task], rng, WeightConfig())
    assert all(allowed is None for turn in free.turns for allowed in turn.allowed)
