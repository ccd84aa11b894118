"""The stage ``decode``."""

from __future__ import annotations

import functools

from bench.gpu.scale import RULES, model_of, prompts_of, rules_of
from bench.gpu.stage import Stage, by_worth, compiler, timed
from workbook.stages.roofline import step_bytes

EAGER = 3  # repeats of the eager twin, of which a step takes as long as ten recorded ones


def decode(stage: Stage) -> None:
    """Time of a step, not of a rollout: the readable path, the eager twin, the graph, one compiled and recorded."""
    import torch

    scale, measured = stage.scale, functools.partial(measure, stage)
    first = next(iter(scale.shapes))
    policies = {}

    def policy_of(name: str):
        if name not in policies:
            policies.clear()
            policies[name] = model_of(scale.shapes[name], stage.device)
        return policies[name]

    policy, small, most = policy_of(first), scale.batches[0], stage.precisions[-1]
    older = model_of(scale.shapes[first], stage.device, 1)
    with torch.no_grad():
        measured(first, policy, small, "fp32", "readable")
        for B in scale.batches[:2]:
            measured(first, policy, B, "fp32", "eager")
        if stage.time_for(30, "compiled"):
            measured(first, policy, small, most, "compiled")
        for rule in RULES[1:]:
            measured(first, policy, small, most, "graph", rule, older)
        for B in scale.batches:
            for precision in by_worth(stage)[:2]:
                measured(first, policy, B, precision, "graph")
        for precision in by_worth(stage)[:2]:
            for name in list(scale.shapes)[1:]:
                for B in scale.batches:
                    measured(name, policy_of(name), B, precision, "graph")


def measure(
    stage: Stage, name: str, policy, B: int, precision: str, variant: str, rule: str = "plain", older=None
) -> None:
    """The row of one model, batch, precision and variant, if there is time for it."""
    import torch

    from rlnlp import rollout
    from rlnlp.static_rollout import StaticSampler

    P, T, scale = stage.scale.prompt, stage.scale.new, stage.scale
    facts = {"shape": name, "B": B, "precision": precision, "rule": rule}
    if not stage.time_for(2, f"{variant} {name} B {B} {precision} {rule}"):
        return
    with stage.row(variant, **facts) as row:
        prompts, given = prompts_of(scale.shapes[name], B, P, stage.device), rules_of(rule, older)
        sampling = rollout.sampling_from(policy, T, min_new_tokens=T)
        row |= {"bytes": step_bytes(scale.shapes[name], B, P, T, precision), "tokens": B}
        if variant == "readable":
            numbers = torch.Generator().manual_seed(0)
            work = lambda: rollout.sample(policy, prompts, sampling, numbers, **given)
            row |= per(T, timed(work, stage, repeats=2))
            return
        numbers = torch.rand(B, T, dtype=torch.float64)
        graph = variant != "eager"  # compiled: fewer kernels, recorded all the same
        sampler = StaticSampler(policy, prompts, sampling, **given, precision=precision, graph=graph)
        if variant == "compiled":
            sampler.step.work = torch.compile(sampler.step.work, **compiler(stage))

        def steps() -> None:
            for _ in range(T - 1):
                sampler.step()

        begin = lambda: sampler.begin(prompts, numbers)
        row |= per(T - 1, timed(steps, stage, prepare=begin, repeats=0 if graph else EAGER))
        row["prefill_ms"] = timed(begin, stage, repeats=3)["median_ms"]


def per(n: int, row: dict) -> dict:
    """Milliseconds of one of the ``n`` parts that were timed together."""
    return {key: value / n if key.endswith("_ms") else value for key, value in row.items()}
