"""How large a measurement is, and what is measured: shapes, models of them, prompts, a reward, rules of sampling."""

from __future__ import annotations

from dataclasses import dataclass

from workbook.stages.roofline import Shape

PRECISIONS = ("fp32", "tf32", "bf16")
RULES = ("plain", "top_k", "top_p", "nlpo")


@dataclass(frozen=True)
class Scale:
    """How large everything is: on a GPU as here, with ``--tiny`` as in TINY."""

    shapes: dict[str, Shape]
    prompt: int = 64
    new: int = 48
    batches: tuple[int, ...] = (64, 256, 512, 128)
    minibatches: tuple[int, ...] = (32, 2, 128)  # episodes
    repeats: int = 10
    warm: int = 3
    gemm: int = 8192
    copy: int = 2**30  # bytes
    paper: tuple[int, int, int] = (27, 5, 20)  # episodes, epochs, minibatches
    large: int = 512  # episodes
    evaluated: int = 5000
    together: int = 1000
    processes: tuple[int, ...] = (1, 2, 4)
    updates: int = 10  # of a process that shares the GPU


REAL = Scale({"124M": Shape(12, 768), "355M": Shape(24, 1024), "774M": Shape(36, 1280)})
TINY = Scale({"tiny": Shape(2, 32, 300, 64, 16)}, 6, 8, (4, 2), (4, 2), 2, 1, 64, 2**16, (5, 2, 2), 6, 12, 6, (1, 2), 1)


def model_of(shape: Shape, device: str, seed: int = 0):
    """Random weights, no dropout, fp32; the last token is EOS. The formula of gelu that has one kernel."""
    import torch
    import transformers

    torch.manual_seed(seed)
    eos = shape.vocabulary - 1
    config = transformers.GPT2Config(
        n_layer=shape.layers, n_embd=shape.width, n_head=shape.width // shape.head, vocab_size=shape.vocabulary,
        n_positions=shape.positions, bos_token_id=eos, eos_token_id=eos, pad_token_id=eos, resid_pdrop=0.0,
        embd_pdrop=0.0, attn_pdrop=0.0, activation_function="gelu_pytorch_tanh",
    )  # fmt: skip
    with torch.device(device):
        return transformers.GPT2LMHeadModel(config).eval()


def prompts_of(shape: Shape, B: int, P: int, device: str, seed: int = 0):
    """B random prompts of 3/4 P to P tokens, padded on the left."""
    import torch

    from rlnlp.types import Prompts

    numbers = torch.Generator().manual_seed(seed)
    mask = torch.arange(P)[None] >= torch.randint(0, P // 4 + 1, (B, 1), generator=numbers)
    ids = torch.randint(0, shape.vocabulary - 1, (B, P), generator=numbers) * mask
    return Prompts(ids.to(device), mask.to(device), [""] * B, [[] for _ in range(B)], [str(i) for i in range(B)])


def rising(rollout):
    """A reward that needs no text: the share of tokens larger than the one before."""
    tokens = rollout.responses
    return (tokens[:, 1:] > tokens[:, :-1]).float().mean(1), {}


def rules_of(name: str, mask_model) -> dict:
    """Arguments of ``sample_static`` for a rule of RULES."""
    from rlnlp.static_rollout import Truncation

    return {
        "plain": {},
        "top_k": {"sampler": Truncation(50)},
        "top_p": {"sampler": Truncation(0, 0.9)},
        "nlpo": {"sampler": Truncation(50), "mask_model": mask_model, "mask_rule": Truncation(0, 0.9)},
    }[name]
