"""The stage ``exact``."""

from __future__ import annotations

from bench.gpu.scale import RULES, model_of, prompts_of, rising, rules_of
from bench.gpu.stage import Stage, was_recorded
from workbook.stages.roofline import Shape


def exact(stage: Stage) -> None:
    """A replayed graph is its eager twin, both are the readable path; what sampling and scoring differ by; how far
    recorded gradient steps end from those that are written."""
    import torch

    from rlnlp import models, rollout
    from rlnlp.precision import numerics
    from rlnlp.static_rollout import StaticSampler, sample_static

    name, shape = next(iter(stage.scale.shapes.items()))
    P, T, B, device = stage.scale.prompt, stage.scale.new, min(stage.scale.batches), torch.device(stage.device)
    policy, older = model_of(shape, stage.device, 0), model_of(shape, stage.device, 1)
    prompts = prompts_of(shape, B, P, stage.device)
    fields = ("responses", "mask", "terminated", "behavior_logprobs", "logprobs")
    for rule in RULES:
        with stage.row("paths", rule=rule, shape=name, B=B) as row:
            given, sampling = rules_of(rule, older), rollout.sampling_from(policy, T)
            numbers = torch.rand(B, T, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
            graph, eager = (StaticSampler(policy, prompts, sampling, **given, graph=one) for one in (True, False))
            for _ in range(2):  # the second batch is replayed from its first step on
                replayed, written = graph(prompts, numbers), eager(prompts, numbers)
            row["graph_is_eager"] = all(torch.equal(getattr(replayed, f), getattr(written, f)) for f in fields)
            readable = rollout.sample(policy, prompts, sampling, torch.Generator().manual_seed(1), **given)
            same = readable.responses.shape == written.responses.shape
            rows = (readable.responses == written.responses).all(1) if same else torch.zeros(B, dtype=torch.bool)
            row["rows_equal"] = rows.float().mean().item()
            if rows.any():
                off = (readable.logprobs - written.logprobs)[rows.to(written.mask.device)].abs()
                row["logprobs_off"] = off.max().item()
    for precision in stage.precisions:
        with stage.row("mismatch", precision=precision, shape=name, B=B) as row, torch.no_grad():
            sampling = rollout.sampling_from(policy, T, min_new_tokens=T)
            drawn = sample_static(policy, prompts, sampling, torch.Generator().manual_seed(2), precision=precision)
            with numerics(precision, device):
                scored = models.score_tokens(policy, drawn)
                halves = [models.score_tokens(policy, rollout.take(drawn, r)) for r in torch.arange(B).chunk(2)]
            off, again = (scored - drawn.logprobs).abs(), (torch.cat(halves) - scored).abs()
            row["sampled_mean"], row["sampled_max"] = off.mean().item(), off.max().item()
            row["first_ratio_off"] = (
                again.exp().sub(1).max().item()
            )  # old log-probabilities recomputed, then a minibatch
    for precision in dict.fromkeys((stage.precisions[0], stage.precisions[-1])):
        with stage.row("update", precision=precision, shape=name, B=stage.scale.batches[0]) as row:
            compared(row, shape, prompts_of(shape, stage.scale.batches[0], P, stage.device), T, precision)


def compared(row: dict, shape: Shape, prompts, T: int, precision: str) -> None:
    """An update by recorded steps, by their eager twin and as it is written: how far the weights end apart. Minibatches
    have two sizes, so that two graphs share weights and optimiser."""
    import torch

    from rlnlp import engine as engines
    from rlnlp import static_update
    from rlnlp.learners import ppo

    def twin(*given, graph: bool = False):
        return static_update.StaticSteps(*given, graph=graph)

    device, ends = prompts.ids.device, []
    settings = {"max_new_tokens": T, "min_new_tokens": T, "epochs": 6, "minibatches": 3, "top_k": 50}
    config = ppo.Config(episodes_per_update=len(prompts), learning_rate=1e-5, breaks=("ratio",), **settings)
    for steps in (None, twin, static_update.StaticSteps):
        engine, policy = engines.Engine(precision, static=True), model_of(shape, str(device), 0)
        engine.install(policy)
        state = ppo.init(policy, config, 0)
        before = weights_of(state.policy)
        seen = ppo.collect(state, prompts, rising, config)
        if steps is not None:
            state.engine, engines.StaticSteps = engine, steps
        row["first_ratio_error"] = ppo.update(state, seen, config)["policy/first_ratio_error"]
        ends.append(weights_of(state.policy))
    row["moved"], row["weights_off"] = ((one - ends[0]).abs().max().item() for one in (before, ends[2]))
    row["recorded"], row["graph_is_eager"] = was_recorded(engine), torch.equal(ends[1], ends[2])


def weights_of(policy):
    """All weights as one vector."""
    import torch

    return torch.cat([weight.detach().flatten() for weight in policy.parameters()])
