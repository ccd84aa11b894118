"""A decode step of fixed shapes without a host sync: what one CUDA graph can record and replay.

``StaticDecoder`` answers as ``models.Decoder`` does, for causal models, in memory that never moves: a cache of P + T
slots, one mask over them, counters on the device. ``Step`` records the work of a step on cuda; elsewhere, and where it
is told to, the same work is done as written (the eager twin). The readable path stays ``models.Decoder``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rlnlp.models import head, positions
from rlnlp.precision import numerics, refresh, rounded
from rlnlp.types import Prompts

if TYPE_CHECKING:
    from transformers import PreTrainedModel

WARM = 3  # steps done before one is recorded: libraries allocate and choose kernels then, which no graph may hold


class StaticDecoder:
    """One causal model generating ``new_tokens`` tokens for batches of one shape; rows never leave the batch.

    prompts: the first batch [B, P]; ``start`` begins another one. Raises ``ValueError`` for a model it cannot serve.
    """

    def __init__(self, model: PreTrainedModel, prompts: Prompts, new_tokens: int, precision: str = "fp32") -> None:
        from transformers import StaticCache

        if model.config.is_encoder_decoder or model.config._attn_implementation != "sdpa":
            kind = "an encoder-decoder" if model.config.is_encoder_decoder else model.config._attn_implementation
            raise ValueError(f"static decoding: expected a causal model with sdpa attention, got {kind}")
        self.shape, device = tuple(prompts.ids.shape), prompts.ids.device
        B, P = self.shape
        self.source, self.model = model, rounded(model) if precision == "bf16" else model
        self.cache, self.precision = StaticCache(config=model.config, max_cache_len=P + new_tokens), precision
        if any(layer.is_sliding for layer in self.cache.layers):
            raise ValueError("static decoding: expected full attention in every layer, got a sliding window")
        self.seen = torch.zeros(B, 1, 1, P + new_tokens, dtype=torch.bool, device=device)
        self.slot = torch.zeros(1, dtype=torch.long, device=device)  # of the token fed last
        self.position, self.token = (torch.zeros(B, 1, dtype=torch.long, device=device) for _ in range(2))
        self.start(prompts)

    def start(self, prompts: Prompts) -> None:
        """Begin with prompts of the same shape, in the same memory, with the model's weights as they are now."""
        if (shape := tuple(prompts.ids.shape)) != self.shape:
            raise ValueError(f"static decoding: expected prompts {self.shape}, as in the first batch, got {shape}")
        if self.model is not self.source:
            refresh(self.model, self.source)
        self.cache.reset()
        self.seen.zero_().narrow(3, 0, shape[1]).copy_(prompts.mask.view(shape[0], 1, 1, -1))
        self.slot.fill_(shape[1] - 1)
        self.position.copy_(prompts.mask.sum(1, keepdim=True) - 1)
        self.prompts: Prompts | None = prompts

    def logits(self) -> Tensor:
        """Raw logits [B, V] of the next token: after ``start`` from the whole prompt, then from the token appended."""
        if self.prompts is None:
            return self._run(self.token, self.seen, self.position)
        prompts, self.prompts = self.prompts, None
        (P, S), device = (prompts.ids.shape[1], self.seen.shape[3]), prompts.ids.device
        before = torch.ones(P, S, dtype=torch.bool, device=device).tril()
        itself = torch.eye(P, S, dtype=torch.bool, device=device)  # padding sees itself: no row of attention is empty
        return self._run(prompts.ids, before & self.seen | itself, positions(prompts.mask))

    def append(self, tokens: Tensor) -> None:
        """Feed the tokens [B] just chosen."""
        self.token.copy_(tokens.unsqueeze(1))
        self.slot += 1
        self.position += 1
        self.seen.index_fill_(3, self.slot, True)

    def _run(self, ids: Tensor, mask: Tensor, position: Tensor) -> Tensor:
        given = {"input_ids": ids, "attention_mask": mask, "position_ids": position, "past_key_values": self.cache}
        with numerics(self.precision, ids.device):
            return head(self.model, self.model.base_model(**given, use_cache=True).last_hidden_state[:, -1]).float()


class Step:
    """``work``, which reads and writes the same memory every time: on cuda recorded once, then replayed.

    The first ``WARM`` calls do it as written; recording does nothing by itself. graph=False: always as written.
    """

    def __init__(self, work: Callable[[], None], device: torch.device, graph: bool = True) -> None:
        self.work, self.graph, self.calls, self.device = work, None, 0, device
        self.stream = torch.cuda.Stream(device) if graph and device.type == "cuda" else None

    def __call__(self) -> None:
        self.calls += 1
        if self.stream is None:
            return self.work()
        with torch.cuda.device(self.device):  # streams and graphs are the current card's
            if self.calls <= WARM:
                self.stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(self.stream):
                    self.work()
                return torch.cuda.current_stream().wait_stream(self.stream)
            if self.graph is None:
                self.graph = self._recorded()
            self.graph.replay()

    def _recorded(self) -> torch.cuda.CUDAGraph:
        """The work as a graph. A graph that is freed while another is recorded spoils it: garbage is collected before,
        and not in between. Where it fails, the stream is what it was before."""
        before, collects = torch.cuda.current_stream(), gc.isenabled()
        gc.collect()
        gc.disable()
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.work()
            return graph
        finally:
            torch.cuda.set_stream(before)
            gc.enable() if collects else None
