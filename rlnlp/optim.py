"""Natural gradients: Fisher products, conjugate gradient, the step to a KL bound, line search; no models, no
settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """Tensors of any shapes as one vector [P]."""
    return torch.cat([t.reshape(-1) for t in tensors])


def categorical_kl(old: Tensor, new: Tensor) -> Tensor:
    """KL(old || new) [N] in nats of log-probabilities [N, V]; a token that ``old`` cannot choose (-inf) adds
    nothing."""
    return (old.exp() * (old - new).masked_fill(old == -torch.inf, 0.0)).sum(-1)


def fisher_product(logprobs: Tensor, parameters: list[Tensor]) -> Callable[[Tensor], Tensor]:
    """v [P] -> F v [P], F the Fisher matrix of the distributions ``logprobs`` [N, V], averaged over the N states.

    F = the Hessian of mean KL(old || new) at new = old, so F v is the gradient of v . (the KL's gradient): one more
    backward pass per product through a graph that is kept. It holds the activations and logits behind ``logprobs``
    about twice, and no matrix [P, P]. Operations without a second derivative (fused attention) raise ``RuntimeError``.
    """
    kl = categorical_kl(logprobs.detach(), logprobs).mean()
    gradient = flat(torch.autograd.grad(kl, parameters, create_graph=True, allow_unused=True, materialize_grads=True))

    def product(v: Tensor) -> Tensor:
        rows = torch.autograd.grad(
            gradient, parameters, v, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        return flat(rows)

    return product


def conjugate_gradient(product: Callable[[Tensor], Tensor], b: Tensor, steps: int, tolerance: float = 1e-6) -> Tensor:
    """Solve A x = b for a symmetric positive definite A known by its products; Hestenes and Stiefel 1952.

        x += a p,  r -= a A p,  p <- r' + (r'.r' / r.r) p,   a = r.r / p.A p;   x = 0, p = r = b at the start

    product    v [P] -> A v [P]
    b          [P] float
    steps      at most so many products; with P steps the answer is exact up to rounding
    tolerance  stop once |b - A x| <= tolerance |b|
    Returns    [P] float; b = 0 gives 0; one step gives the steepest-descent step along b
    A direction without curvature (p.A p <= 0: A is not positive definite, or rounding has won) ends it early.
    """
    x, residual, direction = b.new_zeros(b.shape), b.clone(), b.clone()
    square = start = residual.dot(residual)
    for _ in range(steps):
        if square <= tolerance**2 * start:
            break
        along = product(direction)
        curvature = direction.dot(along)
        if not curvature > 0:
            break
        length = square / curvature
        x += length * direction
        residual -= length * along
        before, square = square, residual.dot(residual)
        direction = residual + square / before * direction
    return x


def natural_step(
    product: Callable[[Tensor], Tensor], gradient: Tensor, bound: float, damping: float, steps: int
) -> Tensor:
    """The step s [P] along (F + damping I)^-1 g on which the KL's quadratic model s.F s / 2 is ``bound`` (nats).

    product   v [P] -> F v [P];  gradient  g [P] of what is to grow;  steps  of conjugate gradient
    Returns 0 where F is not felt along the direction (g = 0, say): no length would reach the bound.
    A large damping gives the direction of g itself; 0 the natural gradient. The length does not depend on g's.
    """
    direction = conjugate_gradient(lambda v: product(v) + damping * v, gradient, steps)
    curvature = direction.dot(product(direction))
    return direction * (2 * bound / curvature).sqrt() if curvature > 0 else torch.zeros_like(gradient)


def line_search(accepted: Callable[[float], bool], shrink: float, tries: int) -> float:
    """The first of 1, shrink, shrink^2, ... (``tries`` of them) that ``accepted`` takes; 0 where it takes none.

    shrink in (0, 1). Backtracking from the full step: what is returned need not be the best, only good enough.
    """
    for i in range(tries):
        if accepted(shrink**i):
            return shrink**i
    return 0.0
