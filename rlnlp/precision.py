"""What matrix products are computed in: fp32, tf32 or bf16. Weights and everything after a product stay fp32."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WORDS = ("fp32", "tf32", "bf16")
EVEN = 8  # columns: a product with an odd number of them (GPT-2 has 50,257 tokens) has slow kernels on cuda in bf16


@contextmanager
def numerics(precision: str, device: torch.device) -> Iterator[None]:
    """Within it, matrix products in fp32, tf32 (fp32 numbers, 10 bits multiplied) or bf16 (autocast). Raises
    ``ValueError`` for another word."""
    if precision not in WORDS:
        raise ValueError(f"precision: expected fp32, tf32 or bf16, got {precision!r}")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:  # without autocast's own store of casts: what a graph reads must outlive the block that recorded it
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False) if precision == "bf16" else nullcontext():
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def in_bf16(model: PreTrainedModel) -> PreTrainedModel:
    """The model, whose trunk and head from now on multiply in bf16 wherever they are run, in every later copy of it
    too; weights, hidden states that come out, logits and gradients are fp32. No code that runs it has to know."""
    trunks = [model.base_model] if not model.config.is_encoder_decoder else [model.get_encoder(), model.get_decoder()]
    for part in [*trunks, model.get_output_embeddings()]:
        part.__class__ = _in_bf16(type(part))
    return model


@functools.cache
def _in_bf16(kind: type[nn.Module]) -> type[nn.Module]:
    """A class like ``kind``, of the same name, whose forward pass is autocast; a class and no closure on the module,
    which a copy of the module would share with it."""

    @functools.wraps(kind.forward)
    def forward(self, *args, **named):
        with numerics("bf16", next(self.parameters()).device):
            return _in_fp32(kind.forward(self, *args, **named))

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})


def _in_fp32(found: Any) -> Any:
    if isinstance(found, Tensor):
        return found.float()
    found.last_hidden_state = found.last_hidden_state.float()
    return found


def one_kernel(model: PreTrainedModel) -> PreTrainedModel:
    """The model with GPT-2's activation in one kernel instead of eight: the same formula, rounded otherwise."""
    from transformers.activations import NewGELUActivation

    for module in list(model.modules()):
        for name, part in module.named_children():
            if isinstance(part, NewGELUActivation):
                setattr(module, name, nn.GELU(approximate="tanh"))
    return model


def rounded(model: PreTrainedModel) -> PreTrainedModel:
    """A frozen copy whose matrices are bf16 for good: what autocast would round at every step. Embeddings stay fp32.
    The head has rows of zeros more, up to a multiple of ``EVEN``, unless its vocabulary is limited: whoever reads its
    logits leaves those out."""
    frozen = copy.deepcopy(model).requires_grad_(False).eval()
    last = frozen.get_output_embeddings()
    for module in frozen.modules():
        weight = module._parameters.get("weight")
        if weight is not None and weight.dim() == 2 and not isinstance(module, nn.Embedding):
            for name, own in list(module.named_parameters(recurse=False)):
                if module is last and not module._buffers:
                    own = torch.cat([own, own.new_zeros(-len(own) % EVEN, *own.shape[1:])])
                setattr(module, name, nn.Parameter(own.to(torch.bfloat16), requires_grad=False))
    return frozen


@torch.no_grad()
def refresh(frozen: nn.Module, model: nn.Module) -> None:
    """Round the weights of ``model``, as they are now, into its ``rounded`` copy, in place."""
    ours = dict(frozen.named_parameters(remove_duplicate=False))
    for name, weight in model.named_parameters(remove_duplicate=False):
        rounded = ours[name]
        (rounded if rounded.shape == weight.shape else rounded[: len(weight)]).copy_(weight)
