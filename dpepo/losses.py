"""The clipped objective, its KL and entropy terms, and the ways to average them.

Every term is one number for each token, of shape (B, T) for B rows of at most T response tokens;
`mask` is True for the tokens that count, elsewhere a term and its gradient are 0, whatever stands
there, NaN included. A reduction turns a term into the loss. Its denominator is given, not counted:
with that of the whole batch, the losses of micro-batches sum to the loss of the batch, and so do
their gradients.

Example:
    >>> logp = torch.tensor([[-1.0, -2.0], [-1.5, 0.0]], requires_grad=True)
    >>> mask = torch.tensor([[True, True], [True, False]])
    >>> advantage = torch.tensor([1.0, -1.0])
    >>> terms = policy_loss(logp, logp.detach(), advantage, mask)
    >>> terms = terms + 0.01 * kl_loss(logp, logp.detach(), mask)
    >>> loss = token_mean(terms, mask, tokens=3)
    >>> loss.backward()
    >>> logp.grad
    tensor([[-0.3333, -0.3333],
            [ 0.3333,  0.0000]])
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

__all__ = [
    "Ratio",
    "entropy",
    "kl_loss",
    "log_probs",
    "policy_loss",
    "sequence_mean",
    "token_mean",
    "trajectory_lengths",
    "trajectory_mean",
]

Ratio = Literal["token", "sequence"]

LOG_RATIO_LIMIT = 20.0  # e^20 is far outside every clip; beyond, gradients would be 0 · inf
KL_LIMIT = 10.0


def policy_loss(
    logp: Tensor,
    old_logp: Tensor,
    advantage: Tensor,
    mask: Tensor,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.2,
    dual_clip: float | None = 3.0,
    ratio: Ratio = "token",
) -> Tensor:
    """Return -min(ρA, clip(ρ, 1 - eps_low, 1 + eps_high)·A) of each token, (B, T).

    Where A < 0, it is at most -dual_clip·A, so that no single ratio rules the update.

    Args:
        logp: log π of the tokens, (B, T).
        old_logp: The same under the policy that sampled them, (B, T), without gradient.
        advantage: A of each row, (B,).
        mask: Which tokens count, (B, T) bool.
        eps_low: How far ρ may fall.
        eps_high: How far ρ may rise; greater than `eps_low` for DAPO's "clip higher".
        dual_clip: Greatest ρ that counts where A < 0, above 1; None for no bound.
        ratio: ``"token"``: ρ = π/π_old of the token. ``"sequence"``: that of GSPO, the geometric
            mean over the row's tokens, with much smaller clips (3e-4 and 4e-4 there).

    Source:
        Schulman et al., PPO, arXiv 1707.06347; dual clip: Ye et al., arXiv 1912.09729; asymmetric
        clip: Yu et al., DAPO, arXiv 2503.14476; sequence ratio: Zheng et al., GSPO, arXiv
        2507.18071.

    Example:
        >>> new, old = torch.tensor([[2.0], [9.0]]).log(), torch.tensor([[1.0], [1.0]]).log()
        >>> policy_loss(new, old, torch.tensor([1.0, -1.0]), torch.ones(2, 1, dtype=torch.bool))
        tensor([[-1.2000],
                [ 3.0000]])
    """
    if not (0 <= eps_low < 1 and eps_high >= 0):
        raise ValueError(
            f"eps_low must be in [0, 1) and eps_high at least 0, not {eps_low} and {eps_high}"
        )
    if dual_clip is not None and dual_clip <= 1:
        raise ValueError(f"dual_clip must be above 1 or None, not {dual_clip}")
    _require_shapes(mask, logp, old_logp)
    if advantage.shape != mask.shape[:1]:
        raise ValueError(
            f"advantage must hold one number for each of {mask.shape[0]} rows, "
            f"not the shape {tuple(advantage.shape)}"
        )
    log_ratio = _masked(logp, mask) - _masked(old_logp, mask)
    if ratio == "sequence":
        mean = log_ratio.sum(-1) / _lengths(mask)
        log_ratio = mean[:, None].expand_as(log_ratio)
    elif ratio != "token":
        raise ValueError(f"ratio must be 'token' or 'sequence', not {ratio!r}")
    rho = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    a = advantage[:, None]
    loss = torch.maximum(-rho * a, -rho.clamp(1 - eps_low, 1 + eps_high) * a)
    if dual_clip is not None:
        loss = torch.where(a < 0, torch.minimum(loss, -dual_clip * a), loss)
    return _masked(loss, mask)


def kl_loss(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> Tensor:
    """Return the k3 estimate of KL(π ‖ π_ref) of each token, (B, T): e^x - x - 1, at least 0.

    x = log π_ref - log π, clamped to ±10.

    Args:
        logp: log π of the tokens, (B, T).
        ref_logp: The same under the reference policy, (B, T), without gradient.
        mask: Which tokens count, (B, T) bool.

    Source:
        J. Schulman, Approximating KL divergence, 2020, http://joschu.net/blog/kl-approx.html.

    Example:
        >>> ones = torch.ones(1, 1, dtype=torch.bool)
        >>> kl_loss(torch.tensor([[-1.0]]), torch.tensor([[-2.0]]), ones)
        tensor([[0.3679]])
    """
    _require_shapes(mask, logp, ref_logp)
    x = (_masked(ref_logp, mask) - _masked(logp, mask)).clamp(-KL_LIMIT, KL_LIMIT)
    return torch.expm1(x) - x


def entropy(logits: Tensor, mask: Tensor) -> Tensor:
    """Return the entropy in nats of the distribution that each token was drawn from, (B, T).

    Args:
        logits: Of the tokens, (B, T, V); position t holds what token t was drawn from.
        mask: Which tokens count, (B, T) bool.

    Example:
        >>> entropy(torch.zeros(1, 1, 4), torch.ones(1, 1, dtype=torch.bool))
        tensor([[1.3863]])
    """
    logp = torch.log_softmax(_counted(logits, mask), -1)
    # An impossible token has p = 0 and log p = -inf; it adds 0, not NaN.
    values = -(logp.exp() * logp.clamp(min=torch.finfo(logp.dtype).min)).sum(-1)
    return _spread(values, mask)


def log_probs(logits: Tensor, tokens: Tensor, mask: Tensor) -> Tensor:
    """Return log π of the tokens, (B, T).

    Args:
        logits: Of the tokens, (B, T, V); position t holds what token t was drawn from.
        tokens: What was drawn, (B, T) integers; any integers where the mask is False.
        mask: Which tokens count, (B, T) bool.
    """
    _require_shapes(mask, tokens)
    logp = torch.log_softmax(_counted(logits, mask), -1)
    return _spread(logp.gather(-1, tokens[mask][:, None])[:, 0], mask)


def token_mean(values: Tensor, mask: Tensor, tokens: float) -> Tensor:
    """Return the mean over tokens, a scalar: each token weighs the same.

    Args:
        values: A term of the loss, (B, T).
        mask: Which tokens count, (B, T) bool.
        tokens: Number of tokens that count in the whole batch.
    """
    return _weighted_sum(values, mask, None, tokens)


def sequence_mean(values: Tensor, mask: Tensor, sequences: float) -> Tensor:
    """Return the mean over rows of the means over their tokens, a scalar: each row weighs the same.

    Args:
        values: A term of the loss, (B, T).
        mask: Which tokens count, (B, T) bool. A row without any adds 0.
        sequences: Number of rows of the whole batch.
    """
    return _weighted_sum(values, mask, _lengths(mask), sequences)


def trajectory_mean(values: Tensor, mask: Tensor, lengths: Tensor, trajectories: float) -> Tensor:
    """Return the mean over trajectories of the means over their tokens, a scalar.

    Each trajectory weighs the same, however many turns it took.

    Args:
        values: A term of the loss, (B, T).
        mask: Which tokens count, (B, T) bool.
        lengths: `trajectory_lengths` of the rows, (B,), counted in the whole batch.
        trajectories: Number of trajectories of the whole batch.
    """
    if lengths.shape != mask.shape[:1]:
        raise ValueError(
            f"lengths must hold one number for each of {mask.shape[0]} rows, "
            f"not the shape {tuple(lengths.shape)}"
        )
    return _weighted_sum(values, mask, lengths.clamp(min=1), trajectories)


def trajectory_lengths(mask: Tensor, trajectory: Tensor) -> Tensor:
    """Return the number of tokens of each row's trajectory, (B,).

    Args:
        mask: Which tokens count, (B, T) bool, of the whole batch.
        trajectory: The trajectory of each row, (B,) integers.

    Example:
        >>> mask = torch.tensor([[True, True], [True, False], [True, True]])
        >>> trajectory_lengths(mask, torch.tensor([5, 5, 8]))
        tensor([3, 3, 2])
    """
    names, which = torch.unique(trajectory, return_inverse=True)
    tokens = mask.sum(-1)
    return tokens.new_zeros(len(names)).index_add(0, which, tokens)[which]


def _weighted_sum(
    values: Tensor, mask: Tensor, lengths: Tensor | None, denominator: float
) -> Tensor:
    _require_shapes(mask, values)
    if not denominator > 0:
        raise ValueError(
            f"the denominator must be above 0, not {denominator}; count it in the whole batch"
        )
    values = _masked(values, mask)
    if lengths is not None:
        values = values / lengths[:, None]
    return values.sum() / denominator


def _masked(values: Tensor, mask: Tensor) -> Tensor:
    """Return the values with 0 in the padding; unlike a product, it stops NaN both ways."""
    return torch.where(mask, values, torch.zeros_like(values))


def _lengths(mask: Tensor) -> Tensor:
    return mask.sum(-1).clamp(min=1)


def _counted(logits: Tensor, mask: Tensor) -> Tensor:
    """Return the logits of the tokens that count, (N, V)."""
    if logits.dim() != 3 or logits.shape[:2] != mask.shape:
        raise ValueError(
            f"logits must have the mask's shape {tuple(mask.shape)} and one more dimension, "
            f"not {tuple(logits.shape)}"
        )
    _require_shapes(mask)
    return logits[mask]


def _spread(values: Tensor, mask: Tensor) -> Tensor:
    """Put the values of the tokens that count into their places, 0 elsewhere: (B, T)."""
    return values.new_zeros(mask.shape).masked_scatter(mask, values)


def _require_shapes(mask: Tensor, *others: Tensor) -> None:
    if mask.dtype != torch.bool or mask.dim() != 2:
        raise ValueError(
            f"mask must be a bool tensor of two dimensions, not {mask.dtype} of the shape "
            f"{tuple(mask.shape)}"
        )
    for other in others:
        if other.shape != mask.shape:
            raise ValueError(
                f"expected the mask's shape {tuple(mask.shape)}, not {tuple(other.shape)}"
            )
