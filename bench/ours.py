"""A worker that does one rlnlp PPO iteration each time the driver asks for one.

``python -m bench.ours '{"shape": "tiny", "prompt": "padded", "value": "separate", "epochs": 5, "core": 0}'``; with
``"profile": N`` it runs N iterations by itself and prints where their time goes.
"""

from __future__ import annotations

from bench import work


def setup(shape: str, value: str, epochs: int, prompt: str, meter: work.Meter):
    """Returns a function that does one iteration, and facts about the networks."""
    import torch

    from rlnlp.learners import ppo
    from rlnlp.rollout import decode
    from rlnlp.types import Prompts

    tokenizer, policy = work.tokenizer(shape), work.build(shape)
    eos = policy.config.eos_token_id
    config = ppo.Config(
        episodes_per_update=work.EPISODES,
        epochs=epochs,
        minibatches=work.MINIBATCHES,
        max_new_tokens=work.NEW_TOKENS,
        min_new_tokens=work.NEW_TOKENS,
        gamma=work.GAMMA,
        lam=work.LAM,
        clip=work.CLIP,
        value_clip=work.VALUE_CLIP,
        kl_coef=work.KL_COEF,
        learning_rate=work.LEARNING_RATE,
        value=value,
    )
    state = ppo.init(policy, config, seed=1)

    length = work.PADDING + 1
    mask = torch.zeros(work.EPISODES, length, dtype=torch.bool)
    mask[:, 0 if prompt == "full" else work.PADDING :] = True
    prompts = Prompts(
        ids=torch.where(mask, eos, 0),
        mask=mask,
        texts=[""] * work.EPISODES,
        references=[[]] * work.EPISODES,
        example_ids=[f"prompt {i}" for i in range(work.EPISODES)],
    )

    def score(rollout):
        work.inspect_episodes(meter, rollout.responses[rollout.mask].view(len(rollout), -1), eos)
        return torch.tensor(work.increasing(decode(rollout, tokenizer))), {}

    def iterate() -> None:
        experience = ppo.collect(state, prompts, score, config)
        meter.mark("update")
        ppo.update(state, experience, config)

    work.count_optimizer_steps(meter)
    work.count_passes(meter, "policy", policy.base_model)
    networks = [policy, state.reference]
    if value == "separate":
        work.count_passes(meter, "value", state.value.trunk.base_model)
        networks.append(state.value)
    return iterate, work.describe(networks, policy)


def profile(iterate, meter: work.Meter, iterations: int) -> None:
    """Print, for ``iterations`` iterations: rlnlp's functions by cumulative time, then torch operations by own time."""
    import cProfile
    import pstats

    import torch

    for _ in range(2):
        meter.start()
        iterate()
    calls = cProfile.Profile()
    for _ in range(iterations):
        calls.runcall(iterate)
    print("\n== rlnlp's functions, the backward pass, the optimizer, the reward: cumulative seconds ==")
    pstats.Stats(calls).sort_stats("cumulative").print_stats(
        r"rlnlp|run_backward|step|clip_grad|bench.work|batch_decode|generate|gpt2", 45
    )
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as operations:
        for _ in range(iterations):
            iterate()
    print("\n== torch operations: own CPU time ==")
    print(operations.key_averages().table(sort_by="self_cpu_time_total", row_limit=25, max_name_column_width=48))


def main() -> None:
    job = work.asked("bench.ours", __doc__)
    work.pin(job["core"])
    meter = work.Meter()
    meter.start()
    if "profile" in job:
        iterate, _ = setup(job["shape"], job["value"], job["epochs"], job["prompt"], meter)
        return profile(iterate, meter, job["profile"])
    channel = work.Channel()
    iterate, facts = setup(job["shape"], job["value"], job["epochs"], job["prompt"], meter)
    channel.reply(facts)
    while True:
        channel.wait()
        meter.start()
        iterate()
        channel.reply(meter.stop())


if __name__ == "__main__":
    main()
