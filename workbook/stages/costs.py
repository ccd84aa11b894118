"""What a run costs, from its settings and the shapes of its models alone: tokens, FLOPs, forward passes, memory.

Estimates for `plan`: they leave out attention's own FLOPs, which are small at these lengths, and count the language
model's head at every position, where the package runs it at response positions only.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from rlnlp.settings import Settings
from workbook.runs.params import Params
from workbook.stages import roofline
from workbook.stages.shapes import Shape

REVIEW_TOKENS = 300  # a human review, whose likelihood evaluation measures
WORLD_PROMPT = 5  # tokens
BYTES = 4  # of a float32
TOGETHER = 512  # episodes that evaluation samples at once on a GPU, at fixed shapes
COPIES_OF_OUTPUTS = 2  # of what a stage leaves: its output, and DVC's cache of it
LARGEST = ("memory", "checkpoint")  # of several runs the largest counts, not the sum
LOGITS_AT_ONCE, COPIES = 4096, 5  # positions whose logits evaluation holds (models.CHUNK), and how many such tensors

FORMULA = """FLOPs: 2 N per token forward, 4 N more backward; N = all parameters; prompts and responses at their full
length.
An update of PPO: rollout, reference, value and reward model (and mask model) forward; in each epoch policy and value
forward and backward. Of TRPO: 12 N for each product with the Fisher matrix. Of DQN: a response forward and backward,
and through the target, for each token drawn from the replay. Of supervised learning: policy forward and backward, after
sampling where it imitates samples. In a world: no reward model, no human reviews.
A run is evaluated at its end on the test prompts and after half its updates on the validation prompts, with each of its
decodings: generation, then evaluator, policy and reference (the exact KL), reward model with and without the prompt.
Tokens are of responses: sampled in training; trained on, once per epoch; sampled in evaluation.
Memory: fp32 weights of all models, gradients and two Adam moments of what is trained, and the larger of a minibatch's
activations and evaluation's logits and key-value caches."""


@dataclass(frozen=True)
class Device:
    """sustained: FLOP/s; pass_seconds: what a forward pass of a small batch takes beside its arithmetic."""

    sustained: float
    pass_seconds: float
    why: str  # in fp32


DEVICES = {
    "cuda": Device(26.8e12, 0.010, "40 % of an H200's 67 in plain fp32"),
    "cpu": Device(60e9, 0.002, "one thread of an EPYC of 2024, measured; times `threads`"),
}


@dataclass(frozen=True)
class Cost:
    """Of one run or of many. episodes: responses trained on; sampled, trained, evaluated: response tokens (sampled in
    training, trained on, once per epoch, sampled in evaluation); passes: forward passes, a backward one being two;
    memory: bytes at the peak, of several runs the largest; decoded, stepped: bytes that decoding and the optimiser move
    on a GPU at fixed shapes in bf16; left: bytes that stay on the disk; checkpoint: of the largest run's, there while
    it goes on; steps: gradient steps of learners."""

    episodes: float = 0
    sampled: float = 0
    trained: float = 0
    evaluated: float = 0
    flops: float = 0
    passes: float = 0
    memory: float = 0
    decoded: float = 0
    stepped: float = 0
    left: float = 0
    checkpoint: float = 0
    steps: float = 0

    def __add__(self, other: Cost) -> Cost:
        mine, theirs = dataclasses.asdict(self), dataclasses.asdict(other)
        return Cost(**{k: max(v, theirs[k]) if k in LARGEST else v + theirs[k] for k, v in mine.items()})

    def times(self, n: int) -> Cost:
        """n of them, one after the other."""
        return Cost(**{k: v if k in LARGEST else v * n for k, v in dataclasses.asdict(self).items()})

    def hours(self, sustained: float, pass_seconds: float) -> float:
        """Hours of one device: its arithmetic at ``sustained`` FLOP/s, and what each pass of a small batch waits,
        seconds."""
        return (self.flops / sustained + self.passes * pass_seconds) / 3600

    def fixed_hours(self, rates: roofline.Rates) -> float:
        """``hours`` of a GPU at fixed shapes, where steps are recorded."""
        return rates.seconds(self.flops, self.decoded, self.stepped, self.steps) / 3600


def forward(model: Shape | None, tokens: float) -> float:
    """FLOPs of a forward pass: 2 N per token; 0 for None (a reward that is no model)."""
    return 2.0 * model.parameters * tokens if model else 0.0


def step(model: Shape | None, tokens: float) -> float:
    """FLOPs of a forward and a backward pass: 2 N + 4 N per token."""
    return 3.0 * forward(model, tokens)


def of_run(
    params: Params,
    condition: str,
    policy: Shape,
    reward: Shape | None,
    worlds: Mapping[str, Shape] = MappingProxyType({}),
) -> Cost:
    """One seed of a condition: training and evaluation. worlds: the shapes of their models; a world has no reward model
    and no human texts. Raises ConfigError as ``Params.learner_config``."""
    run, settings = params.run(condition), params.learner_config(condition)
    if tested := run.test_prompts or params.evaluation.test_prompts:
        params = params.replace(task=params.task.replace(test_prompts=tested))
    if run.world:
        params, policy, reward = (
            params.replace(task=params.task.replace(prompt_tokens=WORLD_PROMPT)),
            worlds[run.world],
            None,
        )
    tested = evaluation(params, settings, run.decodings, policy, reward, not run.world)
    return training(params, settings, policy, reward) + tested + on_disk(settings, policy, params.keeps(condition))


def training(params: Params, settings: Settings, policy: Shape, reward: Shape | None) -> Cost:
    """All updates of one seed. settings: a learner's Config; the fields it has say what an update consists of."""
    if not settings.updates:
        return Cost()
    size, T = settings.episodes_per_update, settings.max_new_tokens
    tokens = size * (params.task.prompt_tokens + T)
    scoring = forward(reward, size * params.reward_model.max_tokens)
    if hasattr(settings, "batch_episodes"):
        one, rows = _soft_actor_critic(settings, tokens, scoring, policy), settings.batch_episodes
    elif hasattr(settings, "gradient_steps"):
        one, rows = _q_learning(settings, tokens, scoring, policy), settings.batch_size
    elif hasattr(settings, "cg_steps"):
        one, rows = _trust_region(settings, tokens, scoring, policy), math.ceil(size / settings.minibatches)
    elif hasattr(settings, "epochs"):
        one, rows = _policy_gradient(settings, tokens, scoring, policy), math.ceil(size / settings.minibatches)
    else:  # maximum likelihood, on references or on the best of its own samples, which the reference scores too
        n, rows = getattr(settings, "samples_per_prompt", 0), size
        flops = step(policy, tokens) + n * (2 * forward(policy, tokens) + scoring)
        one = Cost(size, n * size * T, size * T, flops=flops, passes=3 + (T + 2) * bool(n))
    body, networks = body_of(policy), 1 + _valued(settings)
    read = roofline.step_bytes(body, size, params.task.prompt_tokens, T, "bf16") * (1 + _masked(settings))
    moved = roofline.optimizer_bytes(body) * networks / 2
    steps, decoded = gradient_steps(settings), one.sampled / size * read
    one = dataclasses.replace(one, decoded=decoded, steps=steps, stepped=steps * moved)
    return dataclasses.replace(one.times(settings.updates), memory=memory(params, settings, policy, reward, rows))


def body_of(model: Shape) -> roofline.Shape:
    """The model as the GPU's limits see it: a GPT-2 of its size."""
    return roofline.Shape(model.layers, model.width, model.vocabulary, model.positions or 0)


def gradient_steps(settings: Settings) -> int:
    """Steps of the optimisers in an update."""
    epochs = getattr(settings, "epochs", getattr(settings, "value_epochs", 1))
    return getattr(settings, "gradient_steps", epochs * getattr(settings, "minibatches", 1))


def on_disk(settings: Settings, policy: Shape, keeps: bool) -> Cost:
    """What a seed leaves, where policies are kept: its own in the scratch, among the stage's outputs and in DVC's cache
    (where the file system cannot share blocks). While it is trained, its checkpoint: weights and two Adam moments, and
    a mask model's or target's weights."""
    trained, frozen = 1 + _valued(settings), bool(_masked(settings) or hasattr(settings, "gradient_steps"))
    state = BYTES * (3 * trained + frozen) * policy.parameters * bool(settings.updates)
    return Cost(left=_kept(policy) * keeps, checkpoint=state)


def _valued(settings: Settings) -> bool:
    """Whether a learner trains a value network, or a critic, beside the policy."""
    return (
        getattr(settings, "value", "") == "separate"
        or hasattr(settings, "value_epochs")
        or hasattr(settings, "batch_episodes")
    )


def _masked(settings: Settings) -> int:
    """1 if another model than the policy says which tokens it may choose, else 0."""
    return int(
        hasattr(settings, "mask_top_p")
        or getattr(settings, "mask_delay", 0) > 0
        or getattr(settings, "explore_rule", "none") != "none"
    )


def _policy_gradient(settings: Settings, tokens: float, scoring: float, policy: Shape) -> Cost:
    """One update of PPO and its kin. tokens: of prompts and responses; scoring: FLOPs of the reward model."""
    value, masked = policy if _valued(settings) else None, _masked(settings)
    size, T, steps = settings.episodes_per_update, settings.max_new_tokens, settings.epochs * settings.minibatches
    flops = (
        (2 + masked) * forward(policy, tokens) + forward(value, tokens) + scoring
    )  # rollout, reference (mask model); values
    flops += settings.epochs * (step(policy, tokens) + step(value, tokens))
    passes = (1 + masked) * T + 3 + steps * 3 * (2 if value else 1)
    return Cost(size, size * T, settings.epochs * size * T, flops=flops, passes=passes)


def _trust_region(settings: Settings, tokens: float, scoring: float, policy: Shape) -> Cost:
    """One update of TRPO, whose first tried step is taken. A Fisher product is a backward pass through a forward and a
    backward one: 12 N per token."""
    size, T, parts = settings.episodes_per_update, settings.max_new_tokens, settings.minibatches
    fisher = tokens * min(settings.fisher_episodes, size) / size
    flops = 3 * forward(policy, tokens) + scoring + step(policy, tokens)  # rollout, reference, values; the gradient
    flops += step(policy, fisher) + settings.cg_steps * 6 * forward(policy, fisher)
    flops += 2 * forward(policy, tokens) + settings.value_epochs * step(
        policy, tokens
    )  # the KL of the tried step; the value network
    passes = T + 3 + 3 * parts + 3 + 6 * settings.cg_steps + 2 * parts + 3 * settings.value_epochs * parts
    return Cost(size, size * T, size * T, flops=flops, passes=passes)


def _soft_actor_critic(settings: Settings, tokens: float, scoring: float, policy: Shape) -> Cost:
    """One update of SAC: whole episodes are read by actor and critic (backward too), the reference and the target."""
    size, T, steps = settings.episodes_per_update, settings.max_new_tokens, settings.gradient_steps
    drawn = settings.batch_episodes * tokens / size
    flops = 5 * forward(policy, tokens) + scoring  # rollout, reference; then actor, reference and critic for the values
    flops += steps * 2 * (step(policy, drawn) + forward(policy, drawn))
    return Cost(size, size * T, steps * settings.batch_episodes * T, flops=flops, passes=T + 5 + steps * 8)


def _q_learning(settings: Settings, tokens: float, scoring: float, policy: Shape) -> Cost:
    """One update of DQN: an episode is read for every token drawn, by the policy (backward too), the target and,
    where the max is restricted, the reference."""
    size, T, steps, masked = (
        settings.episodes_per_update,
        settings.max_new_tokens,
        settings.gradient_steps,
        _masked(settings),
    )
    drawn = settings.batch_size * tokens / size
    frozen, ruled = settings.trunk == "frozen", settings.max_rule != "none"
    flops = (3 + masked) * forward(policy, tokens) + scoring  # rollout, (its mask), reference, values
    flops += steps * (forward(policy, drawn) if frozen else step(policy, drawn) + forward(policy, drawn))
    flops += steps * ruled * forward(policy, drawn)
    passes = (1 + masked) * T + 3 + steps * ((1 if frozen else 4) + ruled)
    return Cost(size, size * T, steps * settings.batch_size, flops=flops, passes=passes)


def evaluation(
    params: Params, settings: Settings, extra: Sequence[str], policy: Shape, reward: Shape | None, human: bool = True
) -> Cost:
    """A run's evaluations: on the test prompts at its end, on the validation prompts after half its updates.

    extra: decodings beside plain, own and those of every run (which are measured at half time only beside others). Own
    is plain unless it differs. human: whether the likelihood of human reviews is measured too.
    """
    greedy = getattr(settings, "max_rule", None)  # DQN's own: greedy, in what its max may choose
    own = (
        getattr(settings, "n", 1),
        int(greedy != "none") if greedy else _masked(settings),
    )  # samples per prompt; mask models
    off = {"temperature": 1, "top_k": 0, "top_p": 1, "mask_rule": "none"}
    differs = greedy or own != (1, 0) or any(getattr(settings, name, plain) != plain for name, plain in off.items())

    def read(names: Sequence[str]) -> list[tuple[int, int]]:
        return [(params.evaluation.beams if name == "beam" else 1, 0) for name in names]

    everywhere = read(params.evaluation.everywhere)
    others = read([name for name in extra if name not in params.evaluation.everywhere])
    chosen = [(1, 0), *others, *[own] * bool(differs)]
    half = [*chosen, *everywhere * bool(extra)]  # as experiment.updates_of does
    total = Cost()
    for prompts, rows, masked in [
        *[(params.task.test_prompts, *d) for d in [*chosen, *everywhere]],
        *[(params.task.validation_prompts, *d) for d in half],
    ]:
        tokens = prompts * (params.task.prompt_tokens + settings.max_new_tokens)
        flops = (rows * (1 + masked) + 3) * forward(
            policy, tokens
        )  # generation; then evaluator, policy and reference read
        flops += (rows + 1) * forward(reward, prompts * params.reward_model.max_tokens)  # with the prompt, and without
        batches = math.ceil(prompts * rows / params.evaluation.batch_size)
        passes = batches * (settings.max_new_tokens * (1 + masked) + 5)
        episodes, T = prompts * rows * (1 + masked), settings.max_new_tokens
        read = roofline.step_bytes(body_of(policy), TOGETHER, params.task.prompt_tokens, T, "bf16")
        read *= T * episodes / TOGETHER
        total += Cost(evaluated=prompts * rows * T, flops=flops, passes=passes, decoded=read)
    reviews = params.evaluation.human_reviews * human
    tokens = min(REVIEW_TOKENS, policy.positions or REVIEW_TOKENS) * reviews
    total += Cost(flops=forward(policy, tokens), passes=math.ceil(reviews / 32)).times(2)
    return dataclasses.replace(total, memory=memory(params, settings, policy, reward, 0))


def memory(params: Params, settings: Settings, policy: Shape, reward: Shape | None, rows: int) -> float:
    """Bytes at the peak of a run. rows: episodes of a minibatch, 0 where nothing is trained.

    fp32 weights of policy, reference, evaluator (value, mask model, target, reward model); gradients and two Adam
    moments of what
    is trained; and the larger of a minibatch's activations and what evaluation holds: caches and logits.
    """
    length = params.task.prompt_tokens + settings.max_new_tokens
    value, target = policy.parameters * _valued(settings), hasattr(settings, "gradient_steps")
    masked = int(_masked(settings) and not target)  # DQN's is the reference
    weights = (3 + masked + target) * policy.parameters + value + (reward.parameters if reward else 0)
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
        one += Cost(stepped=lm.steps * roofline.optimizer_bytes(body_of(policy)) / 2, left=_kept(policy))
        made += one.times(2 + bool(params.variants.dropout))
    if not params.bring.reward:
        texts = (1 + sum(params.variants.label_fractions)) * params.task.reward_reviews * rm.epochs
        made += Cost(flops=step(reward, texts * rm.max_tokens), passes=3 * texts / rm.batch_size)
        made += Cost(left=_kept(reward) * (1 + len(params.variants.label_fractions)))
    return made


def _kept(model: Shape) -> float:
    """Bytes of a model that a stage made: in the scratch, and its output's copies."""
    return BYTES * model.parameters * (1 + COPIES_OF_OUTPUTS)


def search(params: Params, algorithm: str, policy: Shape, reward: Shape | None) -> Cost:
    """The search for an algorithm's learning rate: every candidate trained (their short evaluations are left out)."""
    grid = params.tune.search(algorithm)
    one = training(params, params.algorithm_config(algorithm, updates=grid.updates), policy, reward)
    return one.times(len(grid.learning_rates) * len(grid.kl_coefs))


def worlds_of_a_draw(params: Params, worlds: Mapping[str, Shape]) -> Cost:
    """The worlds' models."""
    rows = params.language_model.batch_size
    each = [(shape, params.worlds[name].steps) for name, shape in worlds.items()]
    return sum(
        (
            Cost(flops=step(shape, steps * rows * shape.positions), passes=3 * steps, left=_kept(shape))
            for shape, steps in each
        ),
        Cost(),
    )
