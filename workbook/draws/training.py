"""What training a model from scratch takes: optimiser, schedule, a loop that survives kills, and saving the result."""

from __future__ import annotations

import ctypes
import dataclasses
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from rlnlp.checkpoint import pack, unpack
from workbook.store.states import load_state, save_state


class TrainingError(RuntimeError):
    """Training cannot go on or cannot begin; the message names the step or the setting."""


def keep_memory() -> bool:
    """Ask glibc to keep freed memory for the next allocation; True if it could be asked.

    Tensors of some MB otherwise go back to the system after each step and are fetched, page by page, in the next:
    a quarter of the time of a small model on CPU. Numbers do not change, memory at its peak neither.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return False
    trim_threshold, mmap_threshold = -1, -3
    return bool(mallopt(mmap_threshold, 1 << 30) and mallopt(trim_threshold, 1 << 30))


@dataclasses.dataclass
class Training:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0


def adamw(model: nn.Module, settings) -> torch.optim.AdamW:
    weights = list(model.parameters())
    groups = [
        {"params": [w for w in weights if w.dim() >= 2], "weight_decay": settings.weight_decay},
        {"params": [w for w in weights if w.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.99), fused=True)


def learning_rate(step: int, steps: int, peak: float, warmup_fraction: float) -> float:
    """Linear warm-up to the peak, then a cosine to 2 % of it. step: 0 to steps - 1."""
    warm = max(1.0, warmup_fraction * steps)
    if step + 1 < warm:
        return peak * (step + 1) / warm
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step + 1 - warm) / max(1.0, steps + 1 - warm))))


def optimizer_step(model: nn.Module, optimizer, loss: Tensor, settings, step: int, steps: int) -> float:
    """Backward, clip, step at the schedule's rate; returns the loss.

    Where loss or gradient is not finite it returns NaN or infinity and leaves the weights as they are.
    """
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), getattr(settings, "max_grad_norm", 1.0))
    value = float(loss.detach()) + 0.0 * float(norm)
    if math.isfinite(value):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, settings.learning_rate, getattr(settings, "warmup_fraction", 0.05))
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return value


def fit(
    what: str,
    model: nn.Module,
    settings,
    steps: int,
    loss_at: Callable[[int], Tensor],
    entries: int,
    checkpoint_folder: str | Path | None = None,
    progress: str = "",
    save_every_s: float = 20.0,
) -> list[tuple[int, float]]:
    """Train a model; returns the loss curve: (step, mean loss since the entry before), ``entries`` of them at most.

    what: of messages; loss_at: step -> loss of its batch, which depends on the step alone. checkpoint_folder: a kill
    continues from the state there. progress: label of the bar on stderr, "" for none.
    Raises TrainingError for a loss or gradient that is not finite (names the step).
    """
    from tqdm import tqdm

    state = Training(model, adamw(model, settings))
    saved = load_state(checkpoint_folder) if checkpoint_folder else None
    tensors, meta = saved or ({}, {})
    if saved:
        unpack(state, tensors, meta["numbers"])
    curve, summed, since = meta.get("curve", []), meta.get("summed", 0.0), meta.get("since", 0)
    every, saved_at = math.ceil(steps / entries), time.monotonic()
    bar = tqdm(total=steps, initial=state.step, desc=progress, disable=not progress, file=sys.stderr, mininterval=5)
    while state.step < steps:
        loss = optimizer_step(model, state.optimizer, loss_at(state.step), settings, state.step, steps)
        if not math.isfinite(loss):
            last = f"; last good state: {checkpoint_folder}" if checkpoint_folder else ""
            raise TrainingError(
                f"{what}: loss or gradient is not finite at step {state.step} of {steps}{last}; "
                f"a lower learning_rate than {settings.learning_rate} may help"
            )
        state.step, summed, since = state.step + 1, summed + loss, since + 1
        bar.update()
        if state.step % every == 0 or state.step == steps:
            curve.append([state.step, summed / since])
            summed, since = 0.0, 0
        if checkpoint_folder and time.monotonic() - saved_at > save_every_s:
            tensors, numbers = pack(state)
            meta = {"numbers": numbers, "curve": curve, "summed": summed, "since": since}
            save_state(checkpoint_folder, tensors, meta)
            saved_at = time.monotonic()
    bar.close()
    return [tuple(point) for point in curve]


def save(folder: str | Path, model, tokenizer, card: str) -> None:
    """save_pretrained of model and tokenizer, with a README.md; loads without a network and without pickle."""
    folder = Path(folder)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(card.strip() + "\n", encoding="utf-8")
