"""Measure a policy on a fixed split with a fixed decoding that is recorded with the numbers.

In: a policy, its judges, prompts, a ``Decoding``. Out: one flat row of metrics and the texts they were computed on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlnlp import metrics
from rlnlp.decoding import Decoding, generate, kept_of
from rlnlp.models import exact_kl, score_tokens
from rlnlp.rollout import decode
from rlnlp.scoring import evaluate_reward
from rlnlp.types import Prompts, Rollout


@dataclass(frozen=True)
class Judges:
    """Who says how good a policy's responses are.

    evaluator: a language model that took no part; reward: what every policy is measured by; training_reward: what this
    one was trained on, None = the same; alone: the reward of a response without its prompt; judge, judge_2: scorers
    nobody trained on, (responses, prompt texts) -> numbers. None where there is none.
    """

    evaluator: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    reward: Callable
    training_reward: Callable | None = None
    alone: Callable | None = None
    judge: Callable | None = None
    judge_2: Callable | None = None


def evaluate(
    policy: PreTrainedModel,
    reference: PreTrainedModel,
    by: Judges,
    prompts: Prompts,
    decoding: Decoding,
    stream: str,
    batch_size: int = 64,
    mask_model: PreTrainedModel | None = None,
) -> tuple[dict[str, float], list[str], Tensor]:
    """Returns (row, responses, scores [B]).

    score / score_response: the reward on prompt + response, as published, and, by ``alone``, on the response alone
    training_score: ``training_reward``, what the policy was trained on and best of n selects by; the score where it is
    None
    judge, judge_2: scorers nobody trained on, on the response; None where there is none
    generation_log_perplexity: nats per token of the responses under ``evaluator``, a language model that took no part
    kl / kl_deployed: exact KL to the reference per token in nats, of the bare policy and of the decoding's distribution
    kl_deployed_per_response: the latter summed over each response
    kept_mass / kept_tokens: see ``kept_of``, per response token; None for beam search, which draws nothing
    distinct_1, distinct_2, msttr, entropy_2, repetition, shared_5gram, length, terminated: see ``metrics``

    Beam search samples from nothing, so it has no deployed KL (None). That of best of n is not computable token by
    token; per response it is the upper bound log n - (n - 1) / n to the distribution that was sampled from (Beirami et
    al. 2024, arXiv:2401.01879), given where that is the reference itself and None where the policy was trained or the
    samples were tempered, truncated or kept from ending.
    """
    training = by.training_reward or by.reward

    def select(rollout: Rollout) -> Tensor:
        return evaluate_reward(training, rollout.prompts, decode(rollout, by.tokenizer))[0].to(rollout.responses.device)

    rollouts = generate(policy, prompts, decoding, stream, batch_size, mask_model, select)
    responses = [text for rollout in rollouts for text in decode(rollout, by.tokenizer)]
    scores, _ = evaluate_reward(by.reward, prompts, responses)
    trained = scores if by.training_reward is None else evaluate_reward(by.training_reward, prompts, responses)[0]
    row = {
        "score": scores.mean().item(),
        "score_response": None if by.alone is None else evaluate_reward(by.alone, prompts, responses)[0].mean().item(),
        "training_score": trained.mean().item(),
        "judge": None if by.judge is None else float(np.mean(by.judge(responses, prompts.texts))),
        "judge_2": None if by.judge_2 is None else float(np.mean(by.judge_2(responses, prompts.texts))),
        **distances(policy, reference, by.evaluator, decoding, rollouts),
        **metrics.diversity(responses),
    }
    return row, responses, scores


def distances(
    policy: PreTrainedModel,
    reference: PreTrainedModel,
    evaluator: PreTrainedModel,
    decoding: Decoding,
    rollouts: list[Rollout],
) -> dict[str, float | None]:
    """What ``evaluate`` says of the tokens: their likelihood, the KL, what the decoding kept, length and ends."""
    responses = sum(map(len, rollouts))
    nll, raw, deployed, tokens, ended, mass, choices = 0.0, 0.0, 0.0, 0, 0, 0.0, 0.0
    for rollout in rollouts:
        nll -= score_tokens(evaluator, rollout).sum().item()
        kls = exact_kl(policy, reference, rollout)
        raw, deployed = raw + kls[0].sum().item(), deployed + kls[1].sum().item()
        left = kept_of(policy, rollout)
        mass, choices = mass + left[0], choices + left[1]
        tokens += int(rollout.mask.sum())
        ended += int(rollout.terminated.sum())
    n, per_token, per_response = decoding.best_of, deployed / tokens, deployed / responses
    if decoding.beams > 1 or n > 1:
        per_token, per_response = None, None
    untruncated = (
        decoding.temperature == 1 and not decoding.top_k and decoding.top_p == 1 and not decoding.min_new_tokens
    )
    if n > 1 and raw / tokens < 1e-6 and untruncated and decoding.mask_top_p is None and decoding.rule == "none":
        per_response = math.log(n) - (n - 1) / n
    return {
        "generation_log_perplexity": nll / tokens,
        "kl": raw / tokens,
        "kl_deployed": per_token,
        "kl_deployed_per_response": per_response,
        "kept_mass": None if decoding.beams > 1 else mass / tokens,
        "kept_tokens": None if decoding.beams > 1 else choices / tokens,
        "length": tokens / responses,
        "terminated": ended / responses,
    }
