"""The stage ``update``, and the minibatch of fixed shapes that it measures."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable

from bench.gpu.scale import model_of, prompts_of
from bench.gpu.stage import Stage, by_worth, compiler, timed
from workbook.stages.roofline import Shape, step_of_weights_bytes, update_flops

SLOW = {"fp32": 3e13, "tf32": 1e14, "bf16": 1e14}  # operations a second of a slow update: whether a row fits the time


def fixed_batch(shape: Shape, episodes: int, P: int, T: int, device: str) -> dict:
    """Episodes of equal length as a minibatch: what ``static_update.cells`` makes of an experience, random."""
    import torch

    from rlnlp.models import positions

    prompts = prompts_of(shape, episodes, P, device, seed=5)
    responses = torch.randint(0, shape.vocabulary - 1, (episodes, T), device=device)
    seen = torch.nn.functional.pad(prompts.mask, (0, T - 1), value=True)
    numbers = {name: torch.randn(episodes, T, device=device) for name in ("old", "advantages", "values", "returns")}
    numbers["old"] = numbers["old"] * 0.1 - 10.8
    ids = torch.cat([prompts.ids, responses[:, :-1]], 1)
    return {"ids": ids, "seen": seen, "position": positions(seen), "responses": responses, **numbers}


def fixed_loss(state, batch: dict, sampling, config):
    """PPO's minibatch loss at fixed shapes."""
    from rlnlp.static_update import minibatch_loss

    return minibatch_loss(state, batch, sampling, 0, config)[0]


def backward(state, batch: dict, sampling, config, precision: str, loss_of: Callable = fixed_loss) -> None:
    """Forward and backward of one minibatch. state: a policy and its value network."""
    import torch

    from rlnlp.precision import numerics

    device = torch.device(batch["ids"].device.type)
    whole = "tf32" if precision == "tf32" else "fp32"  # of backward too; bf16 is of forward
    with numerics(whole, device):
        with numerics(precision, device):
            loss = loss_of(state, batch, sampling, config)
        loss.backward()


def clear(weights: list) -> None:
    for weight in weights:
        weight.grad = None


def gradients(weights: list, *given) -> None:
    """``backward`` into gradients that were not there."""
    clear(weights)
    backward(*given)


def step(optimizer, weights: list) -> None:
    """The clip and AdamW, without reading the norm back."""
    import torch

    torch.nn.utils.clip_grad_norm_(weights, 0.5)
    optimizer.step()


def adamw(weights: list):
    import torch

    return torch.optim.AdamW(weights, 1e-6, eps=1e-5, weight_decay=0.0, fused=True)


def update(stage: Stage) -> None:
    """Forward and backward of a minibatch at fixed shapes: as written (eager), recorded in a graph as runs record them,
    compiled and recorded; the optimiser's step by itself."""
    import torch

    from rlnlp import rollout
    from rlnlp.engine import Engine
    from rlnlp.learners import ppo
    from rlnlp.models import ValueModel
    from rlnlp.recorded import WARM, Step

    P, T, scale = stage.scale.prompt, stage.scale.new, stage.scale
    first, most = next(iter(scale.shapes)), stage.precisions[-1]
    plan = [(first, n, most, "recorded") for n in scale.minibatches]
    plan += [(first, n, most, "compiled, recorded") for n in scale.minibatches[::2]]
    plan += [(name, n, p, "eager") for p in by_worth(stage) for name in scale.shapes for n in scale.minibatches]
    held: dict[str, tuple] = {}
    for name, episodes, precision, variant in plan:
        shape = scale.shapes[name]
        needed = (scale.warm + scale.repeats) * update_flops(shape, episodes, P, T) / SLOW[precision]
        if not stage.time_for(40 if "compiled" in variant else 3 + needed, f"{variant} {name} {episodes} {precision}"):
            continue
        if name not in held:
            held.clear()
            policy = model_of(shape, stage.device)
            value = ValueModel(policy)
            weights = [*policy.parameters(), *value.parameters()]
            held[name] = policy, value, weights
            with stage.row("optimizer", shape=name, bytes=step_of_weights_bytes(shape)) as row:
                for weight in weights:
                    weight.grad = torch.ones_like(weight)
                row |= timed(step, stage, adamw(weights), weights)
                clear(weights)
        policy, value, weights = held[name]
        facts = {"shape": name, "episodes": episodes, "precision": precision, "tokens": episodes * (P + T - 1)}
        with stage.row(variant, **facts, flops=update_flops(shape, episodes, P, T)) as row:
            loss_of = torch.compile(fixed_loss, **compiler(stage)) if "compiled" in variant else fixed_loss
            state = types.SimpleNamespace(policy=policy, value=value, engine=Engine(precision))
            sampling = rollout.sampling_from(policy, T)
            batch = fixed_batch(shape, episodes, P, T, stage.device)
            given = state, batch, sampling, ppo.Config(), precision, loss_of
            work = functools.partial(gradients, weights, *given)
            if variant != "eager":
                work = Step(work, batch["ids"].device)
                for _ in range(WARM + 1):  # the last of them records
                    work()
            row |= timed(work, stage)
            del work  # a recorded step, and its memory
        clear(weights)
