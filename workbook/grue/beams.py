"""Answers to a task's prompts, as its ``Decode`` says: greedy, beams with a length penalty, or samples.

Greedy and beams are ``rlnlp.decoding.beam_search``, batched and cached; samples are ``rlnlp.rollout.sample``.
"""

from __future__ import annotations

import dataclasses

import torch

from rlnlp.decoding import beam_search
from rlnlp.rollout import sample, sampling_from, truncation
from rlnlp.types import Prompts, Rollout, generator, take
from workbook.grue.example import Decode


def answers(policy, prompts: Prompts, decode: Decode, name: str, batch_size: int = 128) -> list[Rollout]:
    """Responses to every prompt, in order, in batches.

    name: of the stream of random numbers where it samples; a prompt's depend on it and on the prompt's place alone.
    """
    drawn, rollouts = generator("evaluation", name), []
    sampling = sampling_from(policy, decode.max_new_tokens, 1.0, decode.min_new_tokens)
    warm = dataclasses.replace(sampling, temperature=decode.temperature)
    for rows in torch.arange(len(prompts)).split(batch_size):
        batch = take(prompts, rows)
        if decode.sample:
            rollouts.append(sample(policy, batch, warm, drawn, truncation(decode.top_k)))
        else:
            rollouts.append(beam_search(policy, batch, sampling, decode.beams, decode.length_penalty))
    return rollouts
