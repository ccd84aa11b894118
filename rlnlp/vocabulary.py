"""A smaller action space: some of a model's tokens can never be chosen, and all code that reads its logits agrees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ABSENT = -1e9  # logit of a token that does not exist: no mass in float32, and finite, so that 0 x log 0 is 0


def limit_vocabulary(model: PreTrainedModel, allowed_ids: list[int]) -> None:
    """Leave ``model`` a smaller action space, in place: only the tokens ``allowed_ids`` can be chosen from now on.

    The others get the constant ``ABSENT`` added to their logits, in the output embedding itself, so that sampling,
    scoring, KL and every copy of the model agree without knowing; their log-probabilities are about -1e9 nats. It has
    no parameters: tied weights stay tied and nothing new is trained. Prompts may still hold any token. The list goes
    into the model's config, and ``pretrained.load`` applies it again; other code that loads the saved model sees all
    tokens. A second call replaces the first.
    Raises ``ValueError`` for ids outside the vocabulary, without the end token, and for an output embedding with a
    bias.
    """
    layer, size = model.get_output_embeddings(), model.get_output_embeddings().out_features
    if wrong := [i for i in allowed_ids if not 0 <= i < size]:
        raise ValueError(f"limit_vocabulary: expected ids from 0 to {size - 1}, got {wrong[:5]}")
    eos = model.generation_config.eos_token_id
    eos = eos if eos is not None else model.config.eos_token_id
    for end in eos if isinstance(eos, (list, tuple)) else [eos]:
        if end not in allowed_ids:
            raise ValueError(
                f"limit_vocabulary: the end token {end} is not among the allowed ids, so episodes could not end"
            )
    if "bias" in layer._parameters and layer.bias is not None:
        raise ValueError(f"limit_vocabulary: the output embedding of {type(model).__name__} has a bias of its own")
    bias = torch.full((size,), ABSENT, dtype=layer.weight.dtype, device=layer.weight.device)
    bias[list(allowed_ids)] = 0.0
    if "bias" in layer._parameters:
        del layer.bias
        layer.register_buffer("bias", bias, persistent=False)  # a buffer: requires_grad_(True) cannot wake it
    else:
        layer.bias.copy_(bias)
    model.config.allowed_token_ids = sorted(set(allowed_ids))


def limited(model: PreTrainedModel) -> bool:
    """Whether ``limit_vocabulary`` was applied to the model."""
    return getattr(model.config, "allowed_token_ids", None) is not None
