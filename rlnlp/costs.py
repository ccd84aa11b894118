"""What a run costs, from its settings and the shapes of its models alone: tokens, FLOPs, forward passes, memory.

Estimates for `plan`: they leave out attention's own FLOPs, which are small at these lengths, and count the language
model's head at every position, where the package runs it at response positions only.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlnlp.config import Params
from rlnlp.settings import Settings

REVIEW_TOKENS = 300  # a human review, whose likelihood evaluation measures
BYTES = 4  # of a float32
LOGITS_AT_ONCE, COPIES = 4096, 5  # positions whose logits evaluation holds (models.CHUNK), and how many such tensors
# Floats a GPT-2 keeps for the backward pass per token, layer and unit of width: with its gelu in one kernel, and with
# the published models' gelu_new in several (measured, see tests/test_plan.py). No attention matrix is stored.
KEPT, KEPT_GELU_NEW = 16, 28


@dataclass(frozen=True)
class Shape:
    """A model as its cost depends on it. parameters: count; positions: longest input in tokens, None = no limit; kept:
    floats kept for a backward pass per token, layer and unit of width; source: how it is known."""

    parameters: int
    layers: int
    width: int
    vocabulary: int
    positions: int | None
    kept: int
    source: str


def shape_of(model, source: str) -> Shape:
    """The shape of a transformers model, which may be on the meta device: it has sizes there and no numbers."""
    c = model.config
    return Shape(
        sum(w.numel() for w in model.parameters()), c.num_hidden_layers, c.hidden_size, c.vocab_size,
        None if c.is_encoder_decoder else getattr(c, "max_position_embeddings", None),
        KEPT_GELU_NEW if getattr(c, "activation_function", "") == "gelu_new" else KEPT, source,
    )  # fmt: skip


@dataclass(frozen=True)
class Cost:
    """Of one run or of many. episodes: responses trained on; sampled, trained, evaluated: response tokens (sampled in
    training, trained on, once per epoch, sampled in evaluation); passes: forward passes, a backward one being two;
    memory: bytes at the peak, of several runs the largest."""

    episodes: float = 0
    sampled: float = 0
    trained: float = 0
    evaluated: float = 0
    flops: float = 0
    passes: float = 0
    memory: float = 0

    def __add__(self, other: Cost) -> Cost:
        mine, theirs = dataclasses.asdict(self), dataclasses.asdict(other)
        return Cost(**{k: max(v, theirs[k]) if k == "memory" else v + theirs[k] for k, v in mine.items()})

    def times(self, n: int) -> Cost:
        """n of them, one after the other."""
        return Cost(**{k: v if k == "memory" else v * n for k, v in dataclasses.asdict(self).items()})

    def hours(self, sustained: float, pass_seconds: float) -> float:
        """Hours of one device: its arithmetic at ``sustained`` FLOP/s, and what each pass of a small batch waits, seconds."""
        return (self.flops / sustained + self.passes * pass_seconds) / 3600


def forward(model: Shape | None, tokens: float) -> float:
    """FLOPs of a forward pass: 2 N per token; 0 for None (a reward that is no model)."""
    return 2.0 * model.parameters * tokens if model else 0.0


def step(model: Shape | None, tokens: float) -> float:
    """FLOPs of a forward and a backward pass: 2 N + 4 N per token."""
    return 3.0 * forward(model, tokens)


def of_run(params: Params, condition: str, policy: Shape, reward: Shape | None) -> Cost:
    """One seed of a condition: training and evaluation. Raises ConfigError as ``Params.learner_config``."""
    run, settings = params.run(condition), params.learner_config(condition)
    return training(params, settings, policy, reward) + evaluation(params, settings, run.decodings, policy, reward)


def training(params: Params, settings: Settings, policy: Shape, reward: Shape | None) -> Cost:
    """All updates of one seed. settings: a learner's Config; the fields it has say what an update consists of."""
    if not settings.updates:
        return Cost()
    size, T = settings.episodes_per_update, settings.max_new_tokens
    tokens = size * (params.task.prompt_tokens + T)
    scoring = forward(reward, size * params.reward_model.max_tokens)
    if hasattr(settings, "gamma"):
        one, rows = _policy_gradient(settings, tokens, scoring, policy), math.ceil(size / settings.minibatches)
    else:  # maximum likelihood, on references or on the best of its own samples, which the reference scores too
        n, rows = getattr(settings, "samples_per_prompt", 0), size
        flops = step(policy, tokens) + n * (2 * forward(policy, tokens) + scoring)
        one = Cost(size, n * size * T, size * T, flops=flops, passes=3 + (T + 2) * bool(n))
    return dataclasses.replace(one.times(settings.updates), memory=memory(params, settings, policy, reward, rows))


def _policy_gradient(settings: Settings, tokens: float, scoring: float, policy: Shape) -> Cost:
    """One update of PPO and its kin. tokens: of prompts and responses; scoring: FLOPs of the reward model."""
    value = policy if settings.value == "separate" else None
    masked = int(hasattr(settings, "mask_top_p"))
    size, T, steps = settings.episodes_per_update, settings.max_new_tokens, settings.epochs * settings.minibatches
    flops = (2 + masked) * forward(policy, tokens) + forward(value, tokens) + scoring  # rollout, reference (mask model); values
    flops += settings.epochs * (step(policy, tokens) + step(value, tokens))
    passes = (1 + masked) * T + 3 + steps * 3 * (2 if value else 1)
    return Cost(size, size * T, settings.epochs * size * T, flops=flops, passes=passes)


def evaluation(params: Params, settings: Settings, extra: Sequence[str], policy: Shape, reward: Shape | None) -> Cost:
    """A run's evaluations: on the test prompts at its end, on the validation prompts after half its updates.

    extra: decodings beside plain, top_p and own. The last two are not measured at half time, own not at all where it is plain.
    """
    own = getattr(settings, "n", 1), int(hasattr(settings, "mask_top_p"))  # samples per prompt; whether a mask model reads too
    off = {"temperature": 1, "top_k": 0, "top_p": 1}
    differs = own != (1, 0) or any(getattr(settings, name, plain) != plain for name, plain in off.items())
    always = [(1, 0), *[(params.evaluation.beams if name == "beam" else 1, 0) for name in extra]]
    test, half = params.task.test_prompts, params.task.validation_prompts
    total = Cost()
    for prompts, rows, masked in [*[(test, *d) for d in [*always, (1, 0), *[own] * differs]], *[(half, *d) for d in always]]:
        tokens = prompts * (params.task.prompt_tokens + settings.max_new_tokens)
        flops = (rows * (1 + masked) + 3) * forward(policy, tokens)  # generation; then evaluator, policy and reference read
        flops += (rows + 1) * forward(reward, prompts * params.reward_model.max_tokens)  # with the prompt, and without
        batches = math.ceil(prompts * rows / params.evaluation.batch_size)
        passes = batches * (settings.max_new_tokens * (1 + masked) + 5)
        total += Cost(evaluated=prompts * rows * settings.max_new_tokens, flops=flops, passes=passes)
    reviews = params.evaluation.human_reviews
    read = min(REVIEW_TOKENS, policy.positions or REVIEW_TOKENS) * reviews
    total += Cost(flops=forward(policy, read), passes=math.ceil(reviews / 32)).times(2)
    return dataclasses.replace(total, memory=memory(params, settings, policy, reward, 0))


def memory(params: Params, settings: Settings, policy: Shape, reward: Shape | None, rows: int) -> float:
    """Bytes at the peak of a run. rows: episodes of a minibatch, 0 where nothing is trained.

    fp32 weights of policy, reference, evaluator (value, mask model, reward model); gradients and two Adam moments of what
    is trained; and the larger of a minibatch's activations and what evaluation holds: caches and logits.
    """
    length = params.task.prompt_tokens + settings.max_new_tokens
    value = policy.parameters * (getattr(settings, "value", "shared") == "separate")
    masked = int(hasattr(settings, "mask_top_p"))
    weights = (3 + masked) * policy.parameters + value + (reward.parameters if reward else 0)
    trained = (policy.parameters + value) * bool(rows)
    update = trained + (1 + bool(value)) * policy.kept * rows * length * policy.layers * policy.width
    update += 3 * rows * settings.max_new_tokens * policy.vocabulary  # logits, log-softmax, its gradient
    cache = (1 + masked) * params.evaluation.batch_size * length * 2 * policy.layers * policy.width
    return BYTES * (weights + 2 * trained + max(update, cache + COPIES * LOGITS_AT_ONCE * policy.vocabulary))


def models_of_a_draw(params: Params, policy: Shape, reward: Shape | None) -> Cost:
    """The models that are trained here rather than brought: policy, evaluator, reward models, and their variants."""
    lm, rm, made = params.language_model, params.reward_model, Cost()
    if not params.bring.model:
        one = Cost(flops=step(policy, lm.steps * lm.batch_size * lm.context), passes=3 * lm.steps)
        made += one.times(2 + bool(params.variants.dropout))
    if not params.bring.reward:
        texts = (1 + sum(params.variants.label_fractions)) * params.task.reward_reviews * rm.epochs
        made += Cost(flops=step(reward, texts * rm.max_tokens), passes=3 * texts / rm.batch_size)
    return made


def search(params: Params, algorithm: str, policy: Shape, reward: Shape | None) -> Cost:
    """The search for an algorithm's learning rate: every candidate trained (their short evaluations are left out)."""
    one = training(params, params.algorithm_config(algorithm, updates=params.tune.updates), policy, reward)
    return one.times(len(params.tune.learning_rates) * len(params.tune.kl_coefs))
