"""Rollouts on a Ray cluster are those of one process."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from dpepo import train
from dpepo.train import Config, Trainer, command

pytest.importorskip("ray")

from dpepo.scale.ray import RayTrainer

# A busy machine starts Ray's processes slowly. All of these tests share one cluster.
pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("ray")]

CHECKPOINT = Path(train.__file__).parents[1] / "agents" / "checkpoints" / "sft"


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def small(**changes: Any) -> Config:
    config = Config(
        model=str(CHECKPOINT),
        split="valid_seen",
        n=2,
        max_turns=3,
        tasks=2,
        group=2,
        updates=2,
        batch=2,
        precision="float32",
    )
    return replace(config, **changes)


def changed(trainer: Trainer) -> None:
    """Move the weights, as an update does."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in trainer.policy.learning.values():
            weight += 0.05 * torch.randn(weight.shape, generator=generator)


def test_rollouts_are_those_of_one_process_under_the_weights_of_each_update(
    two_nodes: Any, tmp_path: Path
) -> None:
    here = Trainer(small(), tmp_path)
    there = RayTrainer(small(ray=two_nodes.address), tmp_path)
    try:
        first = here.play()
        assert there.play() == first
        changed(here)
        moved = here.play()
        assert moved != first
        changed(there)
        assert there.play() == moved
    finally:
        here.close()
        there.close()


def test_the_command_trains_on_a_cluster(two_nodes: Any, tmp_path: Path) -> None:
    options = "--split valid_seen --n 1 --max-turns 2 --tasks 1 --group 2 --updates 1 --workers 1"
    arguments = ["--model", str(CHECKPOINT), "--out", str(tmp_path), *options.split()]
    done = CliRunner().invoke(command(), [*arguments, "--ray", two_nodes.address])
    assert done.exit_code == 0, done.output
    (row,) = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert row["update"] == 1
    assert (tmp_path / "model.safetensors").exists()


def test_a_wrong_address_is_explained(tmp_path: Path) -> None:
    arguments = ["--model", str(CHECKPOINT), "--out", str(tmp_path), "--ray", "127.0.0.1:9"]
    done = CliRunner().invoke(command(), arguments, env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert "there is no Ray cluster at '127.0.0.1:9'" in done.output
