"""A decode step of fixed shapes without a host sync: what one CUDA graph can record and replay.

``StaticDecoder`` answers as ``models.Decoder`` does, for causal models, in memory that never moves: a cache of P + T
slots, one mask over them, counters on the device. ``recorded.Step`` records a step. The readable path stays
``models.Decoder``.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rlnlp.models import head, positions
from rlnlp.precision import numerics, refresh, rounded
from rlnlp.types import Prompts

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel

ALIGNED = 8  # rows of a mask begin at multiples of so many numbers; else attention on cuda copies it in every layer


class StaticDecoder:
    """One causal model generating ``new_tokens`` tokens for batches of one shape; rows never leave the batch.

    prompts: the first batch [B, P]; ``start`` begins another one. Raises ``ValueError`` for a model it cannot serve.
    """

    def __init__(self, model: PreTrainedModel, prompts: Prompts, new_tokens: int, precision: str = "fp32") -> None:
        if model.config.is_encoder_decoder or model.config._attn_implementation != "sdpa":
            kind = "an encoder-decoder" if model.config.is_encoder_decoder else model.config._attn_implementation
            raise ValueError(f"static decoding: expected a causal model with sdpa attention, got {kind}")
        self.shape, device = tuple(prompts.ids.shape), prompts.ids.device
        (B, P), self.tokens = self.shape, len(model.get_output_embeddings().weight)
        self.source, self.model = model, rounded(model) if precision == "bf16" else model
        self.slot = torch.zeros(1, dtype=torch.long, device=device)  # of the token fed last
        self.cache, self.precision = static_cache(model, P + new_tokens, self.slot), precision
        self.mask = attention_mask(torch.zeros(B, 1, 1, P + new_tokens, dtype=torch.bool, device=device), precision)
        self.position, self.token = (torch.zeros(B, 1, dtype=torch.long, device=device) for _ in range(2))
        self.start(prompts)

    def start(self, prompts: Prompts) -> None:
        """Begin with prompts of the same shape, in the same memory, with the model's weights as they are now."""
        if (shape := tuple(prompts.ids.shape)) != self.shape:
            raise ValueError(f"static decoding: expected prompts {self.shape}, as in the first batch, got {shape}")
        if self.model is not self.source:
            refresh(self.model, self.source)
        self.cache.reset()
        prompt = prompts.mask.view(shape[0], 1, 1, -1)
        self.mask.fill_(-torch.inf).narrow(3, 0, shape[1]).masked_fill_(prompt, 0)
        self.slot.fill_(shape[1] - 1)
        self.position.copy_(prompts.mask.sum(1, keepdim=True) - 1)
        self.prompts: Prompts | None = prompts

    def logits(self) -> Tensor:
        """Raw logits [B, V] of the next token: after ``start`` from the whole prompt, then from the token appended."""
        if self.prompts is None:
            return self._run(self.token, self.mask, self.position)
        prompts, self.prompts = self.prompts, None
        (P, S), device = (prompts.ids.shape[1], self.mask.shape[3]), prompts.ids.device
        before = torch.ones(P, S, dtype=torch.bool, device=device).tril()
        itself = torch.eye(P, S, dtype=torch.bool, device=device)  # padding sees itself: no row of attention is empty
        return self._run(prompts.ids, before & (self.mask == 0) | itself, positions(prompts.mask))

    def append(self, tokens: Tensor) -> None:
        """Feed the tokens [B] just chosen."""
        self.token.copy_(tokens.unsqueeze(1))
        self.slot += 1
        self.position += 1
        self.mask.index_fill_(3, self.slot, 0)

    def _run(self, ids: Tensor, mask: Tensor, position: Tensor) -> Tensor:
        given = {"input_ids": ids, "attention_mask": mask, "position_ids": position, "past_key_values": self.cache}
        with numerics(self.precision, ids.device):
            last = self.model.base_model(**given, use_cache=True).last_hidden_state[:, -1]
            return head(self.model, last)[:, : self.tokens].float()


def attention_mask(seen: Tensor, precision: str) -> Tensor:
    """0 where ``seen`` [..., S] bool, else -inf: what every layer would make of it, made once, with aligned rows."""
    S, kind = seen.shape[-1], torch.bfloat16 if precision == "bf16" else torch.float32
    rows = torch.zeros(*seen.shape[:-1], -(-S // ALIGNED) * ALIGNED, dtype=kind, device=seen.device)[..., :S]
    return rows.masked_fill_(~seen, -torch.inf)


def static_cache(model: PreTrainedModel, slots: int, slot: Tensor) -> Cache:
    """The library's static cache, of which every layer writes at ``slot`` [1] instead of counting for itself, and a
    whole prompt from slot 0. Its own count stays 0."""
    from transformers import StaticCache

    def write(layer, keys: Tensor, values: Tensor, *rest, **more) -> tuple[Tensor, Tensor]:
        if not layer.is_initialized:
            layer.lazy_initialization(keys, values)
        for memory, new in ((layer.keys, keys), (layer.values, values)):
            if new.shape[2] == 1:
                memory.index_copy_(2, slot, new.to(memory.dtype))  # rotary keys are fp32 where values are bf16
            else:  # a whole prompt
                memory.narrow(2, 0, new.shape[2]).copy_(new)
        return layer.keys, layer.values

    cache = StaticCache(config=model.config, max_cache_len=slots)
    if any(layer.is_sliding for layer in cache.layers):
        raise ValueError("static decoding: expected full attention in every layer, got a sliding window")
    for layer in cache.layers:
        layer.update = functools.partial(write, layer)
    return cache
