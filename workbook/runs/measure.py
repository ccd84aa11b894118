"""Measure a policy on a fixed split with a fixed decoding that is recorded with the numbers.

In: a policy, its judges, prompts, a ``Decoding``. Out: one flat row of metrics and the texts they were computed on.
Then a run's: the decodings that it is measured with, and a learner's policy on a split of its draw with each of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlnlp import metrics
from rlnlp.decoding import Decoding, generate, human_log_perplexity, kept_of
from rlnlp.models import exact_kl, hidden_states, score_tokens
from rlnlp.rollout import decode
from rlnlp.scoring import evaluate_reward
from rlnlp.settings import Settings
from rlnlp.types import Prompts, Rollout
from workbook.runs import algorithms, means
from workbook.runs.conditions import Measuring, Trained
from workbook.runs.draw import Draw
from workbook.texts import data


@dataclass(frozen=True)
class Judges:
    """Who says how good a policy's responses are.

    evaluator: a language model that took no part, None = the reference, where that is the same; reward: what every
    policy is measured by; training_reward: what this one was trained on, None = the same; alone: the reward of a
    response without its prompt; judge, judge_2: scorers nobody trained on, (responses, prompt texts) -> numbers. None
    where there is none. metrics: of the task.
    """

    evaluator: PreTrainedModel | None
    tokenizer: PreTrainedTokenizerBase
    reward: Callable
    training_reward: Callable | None = None
    alone: Callable | None = None
    judge: Callable | None = None
    judge_2: Callable | None = None
    metrics: tuple[Callable, ...] = ()


def evaluate(
    policy: PreTrainedModel,
    reference: PreTrainedModel,
    by: Judges,
    prompts: Prompts,
    decoding: Decoding,
    stream: str,
    batch_size: int = 64,
    mask_model: PreTrainedModel | None = None,
    diversity_words: int = metrics.BUDGET,
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
        **metrics.diversity(responses, diversity_words),
        **{name: value for measure in by.metrics for name, value in measure(responses, prompts).items()},
    }
    return row, responses, scores


@torch.no_grad()
def distances(
    policy: PreTrainedModel,
    reference: PreTrainedModel,
    evaluator: PreTrainedModel | None,
    decoding: Decoding,
    rollouts: list[Rollout],
) -> dict[str, float | None]:
    """What ``evaluate`` says of the tokens: their likelihood, the KL, what the decoding kept, length and ends; one pass
    of each model."""
    responses = sum(map(len, rollouts))
    nll, raw, deployed, tokens, ended, mass, choices = 0.0, 0.0, 0.0, 0, 0, 0.0, 0.0
    for rollout in rollouts:
        freely = replace(rollout, sampling=replace(rollout.sampling, min_new_tokens=0))  # who reads may expect an end
        mine, theirs = (hidden_states(model, rollout)[rollout.mask] for model in (policy, reference))
        reader = (reference, freely, theirs) if evaluator is None else (evaluator, freely)
        nll -= score_tokens(*reader).sum().item()
        kls = exact_kl(policy, reference, rollout, (mine, theirs))
        raw, deployed = raw + kls[0].sum().item(), deployed + kls[1].sum().item()
        left = kept_of(policy, rollout, mine)
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


def decodings(algorithm: str, config: Settings, settings: Measuring, extra: tuple[str, ...] = ()) -> list[Decoding]:
    """Plain, those of every run, the one the algorithm trained with, and those of ``extra``."""
    common = {"max_new_tokens": config.max_new_tokens, "min_new_tokens": getattr(config, "min_new_tokens", 0)}
    own = {**common, **algorithms.decoding(algorithm, config)}
    named = {
        "top_p": {"top_p": settings.top_p},
        "greedy": {"top_k": 1},
        "beam": {"beams": settings.beams},
        "top_k": {"top_k": settings.top_k},
        "temperature": {"temperature": settings.temperature},
    }
    first, second = settings.everywhere, (name for name in extra if name not in settings.everywhere)
    everywhere, others = ([Decoding(name, **named[name], **common) for name in names] for names in (first, second))
    return [Decoding("plain", **common), *everywhere, Decoding("own", **own), *others]


def evaluate_decoding(params: Trained, draw: Draw, state, seed: int, split: str, decoding: Decoding):
    """``evaluate`` of a learner's policy on a split: (row, responses, scores)."""
    training = None if draw.training_reward is draw.reward else draw.training_reward
    by = Judges(
        draw.evaluator, draw.tokenizer, draw.reward, training, draw.alone, draw.judge, draw.judge_2, draw.metrics
    )
    size, words = params.evaluation.batch_size, params.evaluation.diversity_words
    if draw.policy.device.type == "cuda":
        size = means.batch_size(state.policy, draw.prompts(split), decoding.max_new_tokens, size)
    stream, prompts, mask = f"{seed}/{split}", draw.prompts(split), getattr(state, "mask_model", None)
    return evaluate(state.policy, state.reference, by, prompts, decoding, stream, size, mask, words)


def evaluate_state(params: Trained, draw: Draw, state, seed: int, split: str, chosen: list[Decoding]):
    """Rows of metrics on a split for each decoding, and the first responses of the plain one.

    A policy that is not finite any more (it ended so, ``breaks: [finite]``) has rows without numbers.
    """
    settings, rows, samples = params.evaluation, [], []
    prompts, done = draw.prompts(split), {}
    if not all(torch.isfinite(weights).all() for weights in state.policy.parameters()):
        about = {"split": split, "prompts": len(prompts), "score": None}
        return [{**about, "decoding": d.name, "decoding_record": d.record()} for d in chosen], []
    texts = data.load_texts(draw.data, "human_reviews") if draw.data else []
    human = human_log_perplexity(state.policy, draw.tokenizer, texts) if texts else None
    for decoding in chosen:
        record = decoding.record()
        if record not in done:
            done[record] = evaluate_decoding(params, draw, state, seed, split, decoding)
        row, responses, scores = done[record]
        rows.append(
            {
                "split": split,
                "decoding": decoding.name,
                "decoding_record": record,
                "prompts": len(prompts),
                **row,
                "human_log_perplexity": human,
            }
        )
        if decoding.name == "plain":
            samples = [
                {"example_id": i, "prompt": p, "response": r, "score": s}
                for i, p, r, s in zip(prompts.example_ids, prompts.texts, responses, scores.tolist())
            ][: settings.samples]
    return rows, samples
