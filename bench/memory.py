"""``python -m bench.memory``: what replay and rollouts take in memory, measured, beside what a vocabulary-sized buffer
would.

Bytes are those of the tensors that really hang on the objects; sampling times are ratios, so that they mean the same
on another machine. Writes reports/bench/memory.md (--out: elsewhere) and prints it.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from rlnlp.offpolicy.replay import Replay
from rlnlp.types import Prompts, Rollout, Sampling
from workbook.runs import algorithms

ROOT = Path(__file__).resolve().parent.parent
VOCABULARY, WIDTH, EOS, PAD = 50_257, 768, 1, 0  # GPT-2's sizes
TRANSITIONS, PROMPT = 1_500_000, 5
BATCH, DRAWS = 32, 100  # tokens per draw, draws per round
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000, 1_500_000)
EPISODES, HORIZON = 64, 48
LEARNERS = {  # what differs from defaults; the masks are there so that sets of allowed tokens are stored
    "ppo": {},
    "nlpo": {"mask_top_p": 0.9},
    "grpo": {"group": 8},
    "a2c": {},
    "reinforce": {},
    "rloo": {"group": 8},
    "dqn": {"head": "logits", "explore_rule": "top_p", "explore_value": 0.9, "max_rule": "top_p", "max_value": 0.9},
    "sac": {},
}


def prompts_of(rows: int, first: int = 0) -> Prompts:
    """``rows`` different prompts of ``PROMPT`` tokens."""
    ids = torch.stack([torch.arange(first, first + rows) // VOCABULARY**k % VOCABULARY for k in range(PROMPT)], 1)
    names = [""] * rows
    return Prompts(ids, torch.ones_like(ids, dtype=torch.bool), names, [[] for _ in names], names)


def filled(horizon: int, tokens: int, capacity: int = TRANSITIONS) -> Replay:
    """A replay after ``tokens`` tokens, added as responses of ``horizon`` tokens, no prompt twice."""
    replay, rows = Replay(capacity, Sampling(EOS, PAD, horizon)), tokens // horizon
    numbers = torch.Generator().manual_seed(0)
    for first in range(0, rows, 10_000):
        n = min(10_000, rows - first)
        responses = torch.randint(2, VOCABULARY, (n, horizon), generator=numbers)
        mask, zeros = torch.ones_like(responses, dtype=torch.bool), torch.zeros(responses.shape)
        ended = torch.zeros(n, dtype=torch.bool)
        replay.add(Rollout(prompts_of(n, first), responses, mask, ended, zeros, zeros, replay.sampling), zeros)
    return replay


def tensor_bytes(thing) -> int:
    """Bytes of every tensor in a record, nested ones included."""
    if isinstance(thing, Tensor):
        return thing.numel() * thing.element_size()
    if dataclasses.is_dataclass(thing):
        return sum(tensor_bytes(getattr(thing, f.name)) for f in dataclasses.fields(thing))
    return sum(map(tensor_bytes, thing.values())) if isinstance(thing, dict) else 0


def mb(size: float) -> str:
    return f"{size / 1e6:,.1f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def replay_table() -> str:
    """Bytes of a full replay, and what other ways to store the same transitions would take."""
    rows = []
    for horizon in (40, 1):
        replay = filled(horizon, TRANSITIONS)
        held = len(replay)
        rows.append(
            [
                f"rlnlp, responses of {horizon} token{'s' * (horizon > 1)}, every prompt of {PROMPT} tokens different",
                "measured",
                f"{held:,}",
                mb(replay.bytes),
                f"{replay.bytes / held:.1f}",
            ]
        )
    for name, each in {
        "ids of state and next state (5 + 40 tokens each, int64), action, reward, end": 2 * 45 * 8 + 8 + 4 + 1,
        "hidden states of state and next state (GPT-2's 768, fp32)": 2 * WIDTH * 4 + 13,
        f"logits of the state ({VOCABULARY:,}, fp32)": VOCABULARY * 4 + 13,
    }.items():
        rows.append([name, "computed", f"{TRANSITIONS:,}", mb(TRANSITIONS * each), f"{each:,}"])
    return table(["replay of single-token transitions", "", "held", "memory", "bytes per transition"], rows)


def sampling_table(rounds: int) -> str:
    """Time of one draw against what is held: sizes take turns in every round, ratios are taken within a round."""
    replays = [filled(40, size) for size in SIZES]
    seconds: list[list[float]] = [[] for _ in SIZES]
    for number in range(-1, rounds):
        for which, replay in enumerate(replays):
            numbers = torch.Generator().manual_seed(number + 1)
            began = time.process_time()
            for _ in range(DRAWS):
                replay.sample(BATCH, 1, 1.0, numbers)
            if number >= 0:
                seconds[which].append(time.process_time() - began)
    ratios = [statistics.median(a / b for a, b in zip(mine, seconds[0])) for mine in seconds]
    rows = [[f"{len(r):,}", f"{len(r) / len(replays[0]):.0f}", f"{ratio:.2f}"] for r, ratio in zip(replays, ratios)]
    return table(["held", "x the smallest", "CPU time of a draw, x the smallest"], rows)


def rollout_table() -> str:
    """Bytes of what a learner's ``collect`` returns, beside logits of its positions over the vocabulary."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=16,
        n_layer=1,
        n_head=2,
        n_positions=64,
        bos_token_id=EOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    rows = []
    for name, changes in LEARNERS.items():
        learner = algorithms.module(name)
        settings = learner.Config(
            episodes_per_update=EPISODES, max_new_tokens=HORIZON, min_new_tokens=HORIZON, **changes
        )
        state = learner.init(GPT2LMHeadModel(config), settings, seed=0)
        seen = learner.collect(
            state,
            prompts_of(EPISODES // changes.get("group", 1)),
            lambda rollout: (torch.zeros(len(rollout)), {}),
            settings,
        )
        positions, found = seen.rollout.mask.numel(), tensor_bytes(seen)
        allowed = tensor_bytes(seen.rollout.allowed) if seen.rollout.allowed is not None else 0
        floats = positions * VOCABULARY * 4
        rows.append(
            [
                name,
                mb(found),
                f"{(found - allowed) / positions:.0f}",
                f"{allowed / positions:,.0f}",
                mb(floats),
                f"{floats / found:,.0f}",
                mb(largest_step(learner, state, seen, settings)),
            ]
        )
    head = [
        "learner",
        "its experience",
        "bytes per token",
        "and for the tokens allowed",
        "logits of the vocabulary",
        "x",
        "logits in a gradient step",
    ]
    return table(head, rows)


def largest_step(learner, state, seen, settings) -> int:
    """Bytes of the most logits that one pass of the policy's head makes during ``update``: what a gradient step has to
    hold."""
    sizes = [0]
    hook = state.policy.get_output_embeddings().register_forward_hook(
        lambda _, __, out: sizes.append(tensor_bytes(out))
    )
    learner.update(state, seen, settings)
    hook.remove()
    return max(sizes)


def report(rounds: int) -> str:
    return "\n".join(
        [
            "# Memory of replay and rollouts\n",
            "Written by `python -m bench.memory`. Bytes of tensors, of the replay also of its index of prompts; MB "
            "= 10^6.\n",
            f"## Replay: {TRANSITIONS:,} transitions\n",
            replay_table(),
            "A response of one token brings a prompt of its own with it; longer ones share it. A prompt that comes "
            "again is not stored again.\n",
            f"## Drawing {BATCH} transitions\n",
            sampling_table(rounds),
            f"Medians of {rounds} rounds of {DRAWS} draws, ratios within a round.\n",
            f"## A rollout: {EPISODES} responses of {HORIZON} tokens, vocabulary {VOCABULARY:,}\n",
            rollout_table(),
            "Allowed tokens are one bit each; a learner that restricts nothing stores none. Nothing that is kept "
            "holds a number per token of the vocabulary. "
            "The last column passes: a gradient step has the logits of the tokens it learns from (its gradients "
            "take about as much again), and a2c, reinforce "
            "and rloo take one step on all of a rollout, where ppo takes a minibatch at a time and dqn and sac a "
            "batch of their replay.\n",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of draws (default 7)")
    parser.add_argument("--out", type=Path, default=ROOT / "reports" / "bench" / "memory.md", help="file to write")
    options = parser.parse_args()
    text = report(options.rounds)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
