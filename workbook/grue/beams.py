"""Answers to a task's prompts, as its ``Decode`` says: greedy, beams with a length penalty, or samples.

Greedy and beams are transformers' own search, batched and cached; samples are ``rlnlp.rollout.sample``.
"""

from __future__ import annotations

import dataclasses

import torch

from rlnlp.models import prompt_inputs, score_tokens
from rlnlp.rollout import sample, sampling_from, truncation
from rlnlp.types import Prompts, Rollout, Sampling, generator, take
from workbook.grue.example import Decode


@torch.no_grad()
def search(policy, prompts: Prompts, sampling: Sampling, beams: int = 1, length_penalty: float = 1.0) -> Rollout:
    """The response that maximises (sum of log-probabilities) / (its length, EOS included) ^ length_penalty among those
    that ``beams`` beams find; 1 is greedy, and the penalty is then idle.

    transformers' ``generate`` with no other setting than the horizon, the least length, beams and penalty, whatever the
    model's own generation settings are. Deterministic: ``behavior_logprobs`` are zero. Raises ``ValueError`` for a
    temperature and for beams < 1.
    """
    from transformers import GenerationConfig

    if beams < 1 or sampling.temperature != 1.0:
        raise ValueError(f"beams: expected >= 1 at temperature 1, got {beams} at {sampling.temperature}")
    settings = GenerationConfig(
        num_beams=beams,
        **({"length_penalty": length_penalty} if beams > 1 else {}),
        do_sample=False,
        max_new_tokens=sampling.max_new_tokens,
        min_new_tokens=sampling.min_new_tokens,
        eos_token_id=sampling.eos_id,
        pad_token_id=sampling.pad_id,
        decoder_start_token_id=getattr(policy.config, "decoder_start_token_id", None),
    )
    own, policy.generation_config = policy.generation_config, settings  # generate() fills gaps from the model's own
    try:
        tokens = policy.generate(**prompt_inputs(policy, prompts))
    finally:
        policy.generation_config = own
    responses = tokens[:, 1 if policy.config.is_encoder_decoder else prompts.ids.shape[1] :]
    ended = responses == sampling.eos_id
    mask = ended.long().cumsum(1) - ended.long() == 0  # real up to and including the first EOS
    zeros = torch.zeros(responses.shape, device=responses.device)
    found = responses.masked_fill(~mask, sampling.pad_id)
    rollout = Rollout(prompts, found, mask, ended.any(1), zeros, zeros, sampling)
    return dataclasses.replace(rollout, logprobs=score_tokens(policy, rollout))


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
            rollouts.append(search(policy, batch, sampling, decode.beams, decode.length_penalty))
    return rollouts
