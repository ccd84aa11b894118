"""The stage ``iteration``."""

from __future__ import annotations

from bench.gpu.scale import model_of, prompts_of, rising
from bench.gpu.stage import Clock, Stage, by_worth, was_recorded


def iteration(stage: Stage) -> None:
    """One PPO and one NLPO iteration by phase: the readable rollout and update, and beside them those of fixed shapes.

    iteration_s: static rollout, experience, the update as it is written; fixed_s: the same with the recorded update.
    """
    import torch

    from rlnlp.engine import Engine
    from rlnlp.learners import nlpo, ppo
    from rlnlp.precision import in_bf16, numerics

    name, shape = next(iter(stage.scale.shapes.items()))
    P, T, device = stage.scale.prompt, stage.scale.new, torch.device(stage.device)
    episodes, epochs, minibatches = stage.scale.paper
    cases = [
        ("PPO, paper", ppo, episodes, epochs, minibatches, {}),
        ("NLPO, paper", nlpo, episodes, epochs, minibatches, {"mask_top_p": 0.9}),
        ("PPO, large", ppo, stage.scale.large, 2, 4, {}),
    ]
    plan = [(case, precision) for precision in by_worth(stage) for case in cases]
    for (label, learner, n, epochs, minibatches, more), precision in plan:
        if not stage.time_for(10, f"{label} {precision}"):
            continue
        outer = numerics("tf32" if precision == "tf32" else "fp32", device)  # bf16 is the engine's, as in a run
        with stage.row(label, shape=name, episodes=n, precision=precision) as row, outer:
            config = learner.Config(
                episodes_per_update=n, epochs=epochs, minibatches=minibatches, max_new_tokens=T, min_new_tokens=T,
                top_k=50, learning_rate=1e-6, breaks=("ratio",), **more,
            )  # fmt: skip
            engine, policy = Engine(precision, static=True), model_of(shape, stage.device)
            if precision == "bf16":
                in_bf16(policy)
            state = learner.init(policy, config, 0)
            masked = {"mask_model": state.mask_model} if more else {}
            prompts, kept, spans = prompts_of(shape, n, P, stage.device), {}, {}
            for number in range(3):  # the first two make graphs, caches and the optimiser's state
                clock = Clock(stage.device)
                drawn = static(state, prompts, kept, masked, precision)
                clock.mark("static rollout")
                seen = ppo.experience(state, drawn, rising, config)
                clock.mark("experience")
                state.engine = engine
                learner.update(state, seen, config)
                spans = clock.mark("update at fixed shapes")
                del state.engine
                if number == 2:  # seconds each
                    learner.update(state, seen, config)
                    clock.mark("update")
                    if masked:
                        nlpo.rollout(state, prompts, config)
                    else:
                        ppo.rollout(state, prompts)
                    spans = clock.mark("readable rollout")
            row["seconds"], row["recorded"] = spans, was_recorded(engine)
            before = spans["static rollout"] + spans["experience"]
            row |= {"iteration_s": before + spans["update"], "fixed_s": before + spans["update at fixed shapes"]}
            row["tokens"] = n * T


def static(state, prompts, kept: dict, masked: dict, precision: str):
    """The rollout of fixed shapes, under the rule of the case."""
    from rlnlp.static_rollout import Truncation, sample_static
    from rlnlp.types import generator

    rule = {"mask_rule": Truncation(0, 0.9)} if masked else {}
    numbers = generator(0, "rollout", state.update)
    given = {"sampler": Truncation(50), "precision": precision, "kept": kept, **masked, **rule}
    return sample_static(state.policy, prompts, state.sampling, numbers, **given)
