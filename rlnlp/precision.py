"""What matrix products are computed in: fp32, tf32 or bf16. Weights and everything after a product stay fp32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import nn

from rlnlp.models import frozen_copy

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@contextmanager
def numerics(precision: str, device: torch.device) -> Iterator[None]:
    """Within it, matrix products in fp32, tf32 (fp32 numbers, 10 bits multiplied) or bf16 (autocast). Raises
    ``ValueError`` for another word."""
    if precision not in ("fp32", "tf32", "bf16"):
        raise ValueError(f"precision: expected fp32, tf32 or bf16, got {precision!r}")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:  # without autocast's own store of casts: what a graph reads must outlive the block that recorded it
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False) if precision == "bf16" else nullcontext():
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def rounded(model: PreTrainedModel) -> PreTrainedModel:
    """A frozen copy whose matrices are bf16 for good: what autocast would round at every step. Embeddings stay fp32."""
    copy = frozen_copy(model)
    for module in copy.modules():
        weight = module._parameters.get("weight")
        if weight is not None and weight.dim() == 2 and not isinstance(module, nn.Embedding):
            for name, own in list(module.named_parameters(recurse=False)):
                setattr(module, name, nn.Parameter(own.to(torch.bfloat16), requires_grad=False))
    return copy


@torch.no_grad()
def refresh(copy: nn.Module, model: nn.Module) -> None:
    """Round the weights of ``model``, as they are now, into its ``rounded`` copy, in place."""
    ours = dict(copy.named_parameters(remove_duplicate=False))
    for name, weight in model.named_parameters(remove_duplicate=False):
        ours[name].copy_(weight)
