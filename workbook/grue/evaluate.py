"""A policy on a task's test examples: its answers, what every score and the judge say of each, and the row of a table.

Also how much the reward of its own samples differs within a prompt: where it does not, reinforcement learning has
nothing to go on (Razin et al. 2023, arXiv:2310.20703).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from rlnlp.rollout import decode as texts_of
from rlnlp.rollout import repeat, sample, sampling_from, truncation
from rlnlp.scoring import Reward, evaluate_reward
from rlnlp.types import Prompts, generator, take
from workbook.grue.beams import answers
from workbook.grue.example import Decode, Example, Task
from workbook.grue.scoring import Scoring


@dataclass(frozen=True)
class Found:
    """row: the values of a table, one split, one decoding; each: name -> a number per example; responses: the texts."""

    row: dict[str, Any]
    each: dict[str, list[float]]
    responses: list[str]


def evaluate(
    policy,
    tokenizer,
    prompts: Prompts,
    examples: Sequence[Example],
    task: Task,
    decode: Decode,
    scoring: Scoring,
    name: str,
    batch_size: int = 128,
) -> Found:
    """Answers to all prompts, scored and judged.

    name: of the stream of random numbers, where the decoding samples: two policies under one name get the same ones.
    """
    rollouts = answers(policy, prompts, decode, name, batch_size)
    responses = [text for rollout in rollouts for text in texts_of(rollout, tokenizer)]
    scores, _ = evaluate_reward(scoring.reward, prompts, responses)
    each, corpus = scoring.measure(responses, examples)
    judged = verdicts(task, responses, examples)
    lengths = torch.cat([rollout.mask.sum(1) for rollout in rollouts]).double()
    ended = torch.cat([rollout.terminated for rollout in rollouts]).double()
    row = {
        "n": len(prompts),
        "decoding": said(decode),
        "reward": scores.double().mean().item(),
        **{f"metric/{key}": value for key, value in corpus.items()},
        **{f"judge/{key}": float(np.mean(values)) for key, values in judged.items()},
        "length": lengths.mean().item(),
        "finished": ended.mean().item(),
        "cut": float(np.mean([known.get("cut", 0) for known in prompts.meta])),
    }
    numbers = {f"metric/{key}": list(values) for key, values in each.items()}
    numbers |= {f"judge/{key}": list(values) for key, values in judged.items()}
    return Found(row, {"reward": scores.tolist(), **numbers, "length": lengths.tolist()}, responses)


def verdicts(task: Task, responses: Sequence[str], examples: Sequence[Example]) -> dict[str, list[float]]:
    """What the task's judge says of responses to generated rows; {} where some row is real: nobody knows its truth."""
    return task.judge(responses, examples) if all("facts" in e.meta for e in examples) else {}


def said(decode: Decode) -> str:
    """One line for tables."""
    values = asdict(decode)
    kind = "samples" if decode.sample else f"{decode.beams} beams" if decode.beams > 1 else "greedy"
    own = {"temperature", "top_k"} if decode.sample else {"length_penalty"} if decode.beams > 1 else set()
    names = [name for name in values if name in {"max_new_tokens", "min_new_tokens"} | own]
    return ", ".join([kind, *(f"{name}={values[name]}" for name in names)])


def spread(
    policy, tokenizer, prompts: Prompts, config, reward: Reward, seed: int, count: int, each: int
) -> dict[str, float]:
    """Standard deviation of the reward over ``each`` samples of one prompt, over the first ``count`` prompts: its mean
    and its 10th percentile.

    config: temperature, top_k, top_p and the lengths of training's samples.
    """
    some = repeat(take(prompts, torch.arange(min(count, len(prompts)))), each)
    sampling = sampling_from(policy, config.max_new_tokens, config.temperature, config.min_new_tokens)
    drawn = sample(policy, some, sampling, generator(seed, "spread"), truncation(config.top_k, config.top_p))
    scores, _ = evaluate_reward(reward, some, texts_of(drawn, tokenizer))
    deviations = scores.double().view(-1, each).std(1, correction=1).numpy()
    return {"spread_mean": float(deviations.mean()), "spread_p10": float(np.quantile(deviations, 0.1))}
