"""Tiny random models and prompts for tests; nothing is downloaded, nothing is trained."""

from __future__ import annotations

import itertools

import torch
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

from rlnlp.types import Prompts, Rollout, Sampling

PAD, EOS = 0, 1


def gpt2(vocabulary=50, seed=0, width=32, layers=2, positions=64, spread=0.3):
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=vocabulary,
        n_embd=width,
        n_layer=layers,
        n_head=2,
        n_positions=positions,
        bos_token_id=EOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        initializer_range=spread,
    )
    return GPT2LMHeadModel(config).eval()


def t5(vocabulary=50, seed=0, width=32, layers=2, positions=64, spread=1.0):
    torch.manual_seed(seed)
    config = T5Config(
        vocab_size=vocabulary,
        d_model=width,
        d_kv=width // 2,
        d_ff=2 * width,
        num_layers=layers,
        num_heads=2,
        decoder_start_token_id=PAD,
        eos_token_id=EOS,
        pad_token_id=PAD,
        dropout_rate=0.0,
        initializer_factor=spread,
    )
    return T5ForConditionalGeneration(config).eval()


MAKE = {"causal": gpt2, "encoder-decoder": t5}


def prompts(rows=16, length=6, vocabulary=50, seed=3, ragged=True) -> Prompts:
    """Random prompts; with ``ragged`` the first 0 to 3 tokens are left padding."""
    ids = torch.randint(2, vocabulary, (rows, length), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones(rows, length, dtype=torch.bool)
    if ragged:
        for row in range(rows):
            mask[row, : row % 4] = False
    names = [f"example-{i}" for i in range(rows)]
    return Prompts(ids * mask, mask, [f"prompt {i}" for i in range(rows)], [["reference"] for _ in names], names)


def every_response(vocabulary: int, horizon: int) -> list[tuple[int, ...]]:
    """All responses of the token MDP: they end at the first EOS or at the horizon."""
    out = []
    for length in range(1, horizon + 1):
        for tokens in itertools.product(range(vocabulary), repeat=length):
            if EOS not in tokens[:-1] and (tokens[-1] == EOS or length == horizon):
                out.append(tokens)
    return out


def as_rollout(responses: list[tuple[int, ...]], prompt: torch.Tensor, horizon: int) -> Rollout:
    """Given responses to one prompt [P] as a rollout whose log-probabilities are still zero."""
    B = len(responses)
    ids = torch.full((B, horizon), PAD)
    mask = torch.zeros(B, horizon, dtype=torch.bool)
    for row, tokens in enumerate(responses):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        mask[row, : len(tokens)] = True
    start = prompt.expand(B, -1)
    names = [str(i) for i in range(B)]
    prompts = Prompts(start, torch.ones_like(start, dtype=torch.bool), names, [[] for _ in names], names)
    ended = torch.tensor([tokens[-1] == EOS for tokens in responses])
    zeros = torch.zeros(B, horizon)
    return Rollout(prompts, ids, mask, ended, zeros, zeros, Sampling(EOS, PAD, horizon))
