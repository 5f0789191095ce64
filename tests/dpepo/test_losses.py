"""Losses: against plain arithmetic and numeric gradients, and laws on random batches."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dpepo.losses import (
    entropy,
    kl_loss,
    log_probs,
    policy_loss,
    sequence_mean,
    token_mean,
    trajectory_lengths,
    trajectory_mean,
)

torch.set_num_threads(1)
double = torch.float64


@dataclass
class Batch:
    logp: Tensor
    old: Tensor
    advantage: Tensor
    mask: Tensor


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Draw up to 5 rows of up to 4 tokens, with ratios around the clips and far from them."""
    b, t = draw(st.integers(1, 5)), draw(st.integers(1, 4))

    def numbers(values: st.SearchStrategy[float], *shape: int) -> Tensor:
        size = math.prod(shape)
        drawn = draw(st.lists(values, min_size=size, max_size=size))
        return torch.tensor(drawn).to(double).reshape(shape)

    old = numbers(st.floats(-5, 0), b, t)
    difference = numbers(st.floats(-0.5, 0.5) | st.floats(-40, 40), b, t)
    mask = numbers(st.sampled_from([0.0, 1.0, 1.0]), b, t).bool()
    return Batch(old + difference, old, numbers(st.floats(-3, 3), b), mask)


def gradient(loss: Tensor, of: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(loss, of)
    return found


def reference(rho: float, a: float, low: float, high: float, dual: float | None) -> float:
    """The objective as the papers print it, on plain numbers."""
    objective = min(rho * a, min(max(rho, 1 - low), 1 + high) * a)
    if dual is not None and a < 0:
        objective = max(objective, dual * a)
    return -objective


@pytest.mark.parametrize("ratio", ["token", "sequence"])
@pytest.mark.parametrize("dual", [None, 3.0])
@given(batch=batches())
def test_the_printed_formula(ratio, dual, batch) -> None:
    found = policy_loss(
        batch.logp,
        batch.old,
        batch.advantage,
        batch.mask,
        eps_low=0.2,
        eps_high=0.28,
        dual_clip=dual,
        ratio=ratio,
    )
    for row, mask in enumerate(batch.mask.tolist()):
        logs = (batch.logp[row] - batch.old[row]).tolist()
        counted = [x for x, counts in zip(logs, mask, strict=True) if counts]
        for token, counts in enumerate(mask):
            log_rho = logs[token] if ratio == "token" else sum(counted) / max(len(counted), 1)
            rho = math.exp(min(max(log_rho, -20), 20))
            expected = reference(rho, batch.advantage[row].item(), 0.2, 0.28, dual)
            assert found[row, token].item() == pytest.approx(expected if counts else 0)


# One logit θ and two tokens: π(1) = σ(θ). Ratios inside the clips, beyond each, and beyond dual 3.
@pytest.mark.parametrize("theta", [-2.5, -0.35, -0.05, 0.1, 0.3, 1.1])
@pytest.mark.parametrize("advantage", [1.5, -0.7])
@pytest.mark.parametrize("ratio", ["token", "sequence"])
def test_gradients_of_a_coin(theta, advantage, ratio) -> None:
    """Autograd against central differences of plain arithmetic, old policy θ = 0."""
    tokens = [1, 1, 0]

    def plain(x: float) -> float:
        p = 1 / (1 + math.exp(-x))
        ratios = [(p if token else 1 - p) / 0.5 for token in tokens]
        if ratio == "sequence":
            ratios = [math.prod(ratios) ** (1 / len(ratios))] * len(ratios)
        policy = [reference(rho, advantage, 0.2, 0.28, 3.0) for rho in ratios]
        kl = [0.5 / (p if t else 1 - p) - 1 - math.log(0.5 / (p if t else 1 - p)) for t in tokens]
        disorder = -p * math.log(p) - (1 - p) * math.log(1 - p)
        return sum(policy) / 3 + 0.1 * sum(kl) / 3 - 0.05 * disorder

    x = torch.tensor(theta, dtype=double, requires_grad=True)
    logits = torch.stack([torch.zeros_like(x), x]).expand(1, 3, 2)
    mask = torch.ones(1, 3, dtype=torch.bool)
    logp = log_probs(logits, torch.tensor([tokens]), mask)
    old = torch.full_like(logp, math.log(0.5)).detach()
    terms = policy_loss(
        logp, old, torch.tensor([advantage], dtype=double), mask, eps_high=0.28, ratio=ratio
    )
    terms = terms + 0.1 * kl_loss(logp, old, mask) - 0.05 * entropy(logits, mask)
    loss = token_mean(terms, mask, tokens=3)
    assert loss.item() == pytest.approx(plain(theta))
    h = 1e-5
    numeric = (plain(theta + h) - plain(theta - h)) / (2 * h)
    assert gradient(loss, x).item() == pytest.approx(numeric, abs=1e-8, rel=1e-6)


@pytest.mark.parametrize("ratio", ["token", "sequence"])
@given(batch=batches())
def test_at_a_ratio_of_one_the_gradient_is_that_of_reinforce(ratio, batch) -> None:
    logp = batch.old.clone().requires_grad_()
    terms = policy_loss(logp, batch.old, batch.advantage, batch.mask, ratio=ratio)
    found = gradient(token_mean(terms, batch.mask, tokens=1), logp)
    expected = torch.where(batch.mask, -batch.advantage[:, None], 0.0)
    assert torch.allclose(found, expected)


def test_clips_stop_the_gradient_on_their_side_only() -> None:
    log_ratio = torch.tensor([[0.5, -0.5], [0.5, -0.5]], dtype=double, requires_grad=True)
    a = torch.tensor([1.0, -1.0], dtype=double)
    mask = torch.ones(2, 2, dtype=torch.bool)
    loss = policy_loss(log_ratio, torch.zeros_like(log_ratio), a, mask)
    found = gradient(loss.sum(), log_ratio)
    rho = log_ratio.detach().exp()
    assert torch.allclose(found, torch.tensor([[0, -rho[0, 1]], [rho[1, 0], 0]], dtype=double))


@given(batches())
def test_the_sequence_ratio_is_the_geometric_mean(batch) -> None:
    mask = torch.ones_like(batch.mask)
    terms = policy_loss(batch.logp, batch.old, batch.advantage, mask, ratio="sequence")
    log_mean = (batch.logp - batch.old).mean(-1, keepdim=True)
    one = policy_loss(log_mean, torch.zeros_like(log_mean), batch.advantage, mask[:, :1])
    assert torch.allclose(terms, one.expand_as(terms))
    assert torch.allclose(
        sequence_mean(terms, mask, len(mask)), sequence_mean(one, mask[:, :1], len(mask))
    )


@given(batches())
def test_bounds_of_the_loss(batch) -> None:
    found = policy_loss(batch.logp, batch.old, batch.advantage, batch.mask, eps_high=0.3)
    a = batch.advantage[:, None].expand_as(found)
    up, down = batch.mask & (a >= 0), batch.mask & (a < 0)
    assert (found[up] >= -1.3 * a[up] - 1e-9).all()
    assert (found[down] >= -0.8 * a[down] - 1e-9).all()
    assert (found[down] <= -3 * a[down] + 1e-9).all()
    single = policy_loss(
        batch.logp, batch.old, batch.advantage, batch.mask, eps_high=0.3, dual_clip=None
    )
    assert (found <= single).all()


@given(batches())
def test_huge_ratios_leave_finite_values_and_gradients(batch) -> None:
    for ratio in ("token", "sequence"):
        for factor in (1, 100):
            logp = (factor * batch.logp).requires_grad_()
            loss = policy_loss(
                logp, batch.old, batch.advantage, batch.mask, dual_clip=None, ratio=ratio
            )
            loss = (loss + kl_loss(logp, batch.old, batch.mask)).sum()
            assert torch.isfinite(loss)
            assert torch.isfinite(gradient(loss, logp)).all()


@given(batches())
def test_kl(batch) -> None:
    found = kl_loss(batch.logp, batch.old, batch.mask)
    assert (found >= 0).all()
    assert (found <= math.exp(10)).all()
    assert (kl_loss(batch.old, batch.old, batch.mask) == 0).all()
    near = batch.mask & ((batch.logp - batch.old).abs() < 10)
    x = (batch.old - batch.logp)[near]
    assert torch.allclose(found[near], x.exp() - x - 1)


def test_kl_is_unbiased() -> None:
    p, q = torch.tensor([0.3, 0.7], dtype=double), torch.tensor([0.6, 0.4], dtype=double)
    values = kl_loss(p.log()[None], q.log()[None], torch.ones(1, 2, dtype=torch.bool))
    assert (p * values[0]).sum().item() == pytest.approx((p * (p / q).log()).sum().item())


def test_entropy() -> None:
    logits = torch.tensor([[[0.0, 0, 0, 0], [5, 5, -math.inf, -math.inf]]], requires_grad=True)
    found = entropy(logits, torch.ones(1, 2, dtype=torch.bool))
    assert found.tolist() == [pytest.approx([math.log(4), math.log(2)])]
    assert torch.isfinite(gradient(found.sum(), logits)).all()


def padded(batch: Batch, filler: float) -> Batch:
    def fill(values: Tensor) -> Tensor:
        return torch.where(batch.mask, values, filler)

    return Batch(fill(batch.logp), fill(batch.old), batch.advantage, batch.mask)


@pytest.mark.parametrize("ratio", ["token", "sequence"])
@pytest.mark.parametrize("filler", [math.nan, math.inf, -math.inf])
@settings(max_examples=30)
@given(batch=batches())
def test_the_padding_never_leaks(ratio, filler, batch) -> None:
    losses, gradients = [], []
    for each in (batch, padded(batch, filler)):
        logp = each.logp.clone().requires_grad_()
        terms = policy_loss(logp, each.old, each.advantage, each.mask, ratio=ratio)
        terms = terms + kl_loss(logp, each.old, each.mask)
        loss = token_mean(terms, each.mask, 3) + sequence_mean(terms, each.mask, 2)
        losses.append(loss.item())
        gradients.append(gradient(loss, logp))
    assert losses[0] == losses[1]
    assert torch.equal(*gradients)
    assert (gradients[1][~batch.mask] == 0).all()
    # nor through a term that was not masked
    terms = torch.where(batch.mask, 1.0, filler)
    lengths = trajectory_lengths(batch.mask, torch.arange(len(batch.mask)))
    assert token_mean(terms, batch.mask, 1).item() == batch.mask.sum().item()
    assert sequence_mean(terms, batch.mask, 1).item() == pytest.approx(batch.mask.any(-1).sum())
    found = trajectory_mean(terms, batch.mask, lengths, 1)
    assert found.item() == pytest.approx(batch.mask.any(-1).sum())


def test_broken_logits_in_the_padding_never_reach_the_gradient() -> None:
    bad, nan = [math.nan, math.nan], math.nan
    logits = torch.tensor([[bad, [1.0, 2.0]], [[3.0, 1.0], [nan, 0.0]]], requires_grad=True)
    mask = torch.tensor([[False, True], [True, False]])
    logp = log_probs(logits, torch.tensor([[-100, 1], [0, -100]]), mask)
    first, second = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 1.0])
    expected = [[0, first.log_softmax(0)[1].item()], [second.log_softmax(0)[0].item(), 0]]
    assert logp.tolist() == [pytest.approx(row) for row in expected]
    found = gradient((logp - entropy(logits, mask)).sum(), logits)
    assert (found[~mask] == 0).all()
    assert (found[mask] != 0).all()
    assert torch.isfinite(found).all()


@pytest.mark.parametrize("mean", ["token", "sequence", "trajectory"])
@given(batch=batches(), trajectory=st.lists(st.integers(0, 2), min_size=5, max_size=5))
def test_four_micro_batches_sum_to_the_batch(mean, batch, trajectory) -> None:
    numbers = torch.tensor(trajectory[: len(batch.mask)])
    lengths = trajectory_lengths(batch.mask, numbers)

    def loss(logp: Tensor, part: slice) -> Tensor:
        mask = batch.mask[part]
        terms = policy_loss(logp[part], batch.old[part], batch.advantage[part], mask)
        if mean == "token":
            return token_mean(terms, mask, max(int(batch.mask.sum()), 1))
        if mean == "sequence":
            return sequence_mean(terms, mask, len(batch.mask))
        return trajectory_mean(terms, mask, lengths[part], len(numbers.unique()))

    whole, split = batch.logp.clone().requires_grad_(), batch.logp.clone().requires_grad_()
    at_once = loss(whole, slice(None))
    at_once.backward()
    total = 0.0
    for part in (slice(0, 1), slice(1, 2), slice(2, 3), slice(3, 5)):  # the last ones may be empty
        micro = loss(split, part)
        micro.backward()
        total += micro.item()
    assert total == pytest.approx(at_once.item())
    assert torch.allclose(split.grad, whole.grad)


def test_what_weighs_the_same() -> None:
    mask = torch.tensor([[True, True, True], [True, False, False], [True, True, False]])
    values = torch.tensor([[1.0, 1, 1], [5, 0, 0], [9, 9, 0]])
    trajectory = torch.tensor([1, 1, 0])
    assert token_mean(values, mask, 6).item() == pytest.approx((3 + 5 + 18) / 6)
    assert sequence_mean(values, mask, 3).item() == pytest.approx((1 + 5 + 9) / 3)
    lengths = trajectory_lengths(mask, trajectory)
    assert lengths.tolist() == [4, 4, 2]
    assert trajectory_mean(values, mask, lengths, 2).item() == pytest.approx((8 / 4 + 9) / 2)


def test_arguments_are_checked() -> None:
    x, mask, a = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool), torch.zeros(2)
    policy_loss(x, x, a, mask)
    with pytest.raises(ValueError, match="mask must be a bool tensor"):
        policy_loss(x, x, a, mask.float())
    with pytest.raises(ValueError, match=r"the mask's shape \(2, 3\), not \(3,\)"):
        policy_loss(x, x[0], a, mask)
    with pytest.raises(ValueError, match="one number for each of 2 rows"):
        policy_loss(x, x, torch.zeros(2, 1), mask)
    with pytest.raises(ValueError, match="eps_low must be"):
        policy_loss(x, x, a, mask, eps_low=1)
    with pytest.raises(ValueError, match="dual_clip must be above 1"):
        policy_loss(x, x, a, mask, dual_clip=1)
    with pytest.raises(ValueError, match="ratio must be"):
        policy_loss(x, x, a, mask, ratio="row")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="logits must have"):
        entropy(x, mask)
    for bad in (0, -1, math.nan):
        with pytest.raises(ValueError, match="count it in the whole batch"):
            token_mean(x, mask, bad)
    with pytest.raises(ValueError, match="lengths must hold"):
        trajectory_mean(x, mask, torch.ones(3), 1)
