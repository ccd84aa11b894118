"""A reward learned from pairs: one model with one output s(prompt, response), two losses.

    Bradley-Terry   - log sigmoid(s(chosen) - s(rejected))                   only differences within a pair count
    classifier      - log sigmoid(s(chosen)) - log sigmoid(-s(rejected))     is this text a good one? (the paper's P29)

Bradley-Terry compares two answers to one prompt, so that what every answer to a hard prompt shares cannot lower its
loss; the classifier has to explain it. Either makes a reward function that learners take as they take
``rewards.classifier_reward``.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from scipy import stats
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from rlnlp import pretrained
from rlnlp.rewards import join
from rlnlp.scoring import Reward
from rlnlp.types import stream
from workbook.draws import training
from workbook.draws.classifier import new_classifier, padded
from workbook.draws.tokenizer import encode
from workbook.store.files import atomic_json
from workbook.study.ratings import Preference, PreferenceError


def bradley_terry(chosen: Tensor, rejected: Tensor) -> Tensor:
    """- log sigmoid(chosen - rejected), mean over pairs: nats. chosen, rejected [B], in nats of odds.

    Its gradient by chosen is -sigmoid(rejected - chosen) / B. Limits: equal scores give log 2; adding a constant to
    both changes nothing.
    """
    return -logsigmoid(chosen - rejected).mean()


def good_or_bad(chosen: Tensor, rejected: Tensor) -> Tensor:
    """Cross-entropy of "is this one good?" with 1 for chosen and 0 for rejected, mean over both: nats. [B], [B]."""
    return -(logsigmoid(chosen).mean() + logsigmoid(-rejected).mean()) / 2


LOSSES = {"bradley-terry": bradley_terry, "classifier": good_or_bad}


@dataclass(frozen=True)
class PreferenceModel:
    """A trained scorer. centre: taken off s before the sigmoid: the mean s of the training texts for Bradley-Terry,
    whose zero means nothing; 0 for the classifier. max_tokens: longer texts lose their beginning."""

    model: nn.Module
    tokenizer: object
    kind: str
    centre: float
    max_tokens: int
    include_prompt: bool = True
    separator: str = " "


def new_model(tokenizer, settings, seed: int):
    """A small ModernBERT with random weights and one output. settings: workbook.draws.shapes.RewardModel."""
    from transformers import ModernBertForSequenceClassification

    config = copy.deepcopy(new_classifier(tokenizer, settings, seed).config)
    config.num_labels = 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(seed, "preference model"))
        return ModernBertForSequenceClassification(config)


def from_language_model(policy, seed: int):
    """A copy of a language model's body with one output on its last token: what it knows of the language is kept."""
    from transformers import AutoModelForSequenceClassification

    config = copy.deepcopy(policy.config)
    config.num_labels = 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(seed, "preference model"))
        model = AutoModelForSequenceClassification.from_config(config)
    model.base_model.load_state_dict(policy.base_model.state_dict())
    return model


def split(preferences: Sequence[Preference], held_out: float = 0.25, seed: int = 0) -> tuple[list, list]:
    """(training, held-out) preferences; all pairs of one prompt are on one side. Raises: PreferenceError for one prompt
    only."""
    prompts = sorted({p.prompt for p in preferences})
    if len(prompts) < 2 or not 0 < held_out < 1:
        raise PreferenceError(
            f"split: expected two prompts or more and a share within 0 and 1, got {len(prompts)}, {held_out}"
        )
    n = min(len(prompts) - 1, max(1, round(held_out * len(prompts))))
    out = set(Random(f"rlnlp preferences {seed}").sample(prompts, n))
    return [p for p in preferences if p.prompt not in out], [p for p in preferences if p.prompt in out]


def train(
    preferences: Sequence[Preference],
    tokenizer,
    settings,
    seed: int,
    kind: str = "bradley-terry",
    model=None,
    separator: str | None = None,
) -> PreferenceModel:
    """Learn s from pairs; every epoch shows each pair once, ``settings.batch_size`` pairs a step. AdamW as in
    ``pretrain``.

    settings: workbook.draws.shapes.RewardModel (epochs, batch_size, learning_rate, max_tokens, include_prompt, and the
    shape where no model is given); model: any sequence classifier with one output, trained further in place; separator:
    between prompt
    and response (None: as ``rewards.classifier_reward``). The same seed gives the same weights.
    Raises: PreferenceError for an unknown kind, no pairs, a model with several outputs; TrainingError for a loss that
    is not finite.
    """
    if kind not in LOSSES:
        raise PreferenceError(f"kind: expected one of {', '.join(LOSSES)}; got {kind!r}")
    if not preferences:
        raise PreferenceError("a reward model needs pairs to learn from, got none")
    model = new_model(tokenizer, settings, seed) if model is None else model
    if model.config.num_labels != 1:
        raise PreferenceError(f"a scorer has one output, this model has {model.config.num_labels}")
    model.config.pad_token_id = tokenizer.pad_token_id
    if separator is None:
        bare, spaced = encode(tokenizer, ["a", " a"])
        separator = " " if bare == spaced else ""
    out = PreferenceModel(model, tokenizer, kind, 0.0, settings.max_tokens, settings.include_prompt, separator)
    prompts = [p.prompt for p in preferences]
    chosen, rejected = (_ids(out, prompts, [getattr(p, side) for p in preferences]) for side in ("chosen", "rejected"))
    optimizer, per_epoch = training.adamw(model, settings), math.ceil(len(prompts) / settings.batch_size)
    steps, random_state = per_epoch * settings.epochs, torch.get_rng_state()
    model.train()
    for step in range(steps):
        epoch, place = divmod(step, per_epoch)
        order = Random(stream(seed, "pairs", epoch)).sample(range(len(prompts)), len(prompts))
        rows = order[place * settings.batch_size : (place + 1) * settings.batch_size]
        torch.manual_seed(stream(seed, "dropout", step))
        s = _forward(out, [chosen[i] for i in rows] + [rejected[i] for i in rows])
        loss = training.optimizer_step(model, optimizer, LOSSES[kind](*s.chunk(2)), settings, step, steps)
        if not math.isfinite(loss):
            raise training.TrainingError(f"preference model: loss or gradient is not finite at step {step} of {steps}")
    torch.set_rng_state(random_state)
    model.eval()
    centre = 0.0 if kind == "classifier" else float(_scores(out, chosen + rejected).mean())
    return PreferenceModel(model, tokenizer, kind, centre, settings.max_tokens, settings.include_prompt, separator)


def scores(learned: PreferenceModel, prompts: Sequence[str], responses: Sequence[str]) -> Tensor:
    """s [B] float32, nats of odds: of two responses to one prompt, sigmoid(s - s') is how likely the first is
    preferred."""
    return _scores(learned, _ids(learned, prompts, responses))


def reward(learned: PreferenceModel) -> Reward:
    """A reward function: sigmoid(s - centre) [B] in (0, 1), no gradient.

    Bradley-Terry: the probability of being preferred to a middling training text; classifier: of being a good one.
    """

    def preferred(prompts, responses, references=None, meta=None) -> Tensor:
        return torch.sigmoid(scores(learned, prompts, responses) - learned.centre)

    preferred.__name__ = f"preference_reward({learned.kind})"
    return preferred


def combined(task: Reward, preference: Reward) -> Reward:
    """task + preference, with both as parts: P29's reward, METEOR + P(good) / (1 + missing concepts), for texts that
    owe the reader no concepts."""

    def both(prompts, responses, references=None, meta=None):
        parts = {}
        for name, fn in (("task", task), ("preference", preference)):
            found = fn(prompts, responses, references, meta)
            parts[name] = torch.as_tensor(found[0] if isinstance(found, tuple) else found, dtype=torch.float32)
        return parts["task"] + parts["preference"], parts

    both.__name__ = "task + preference"
    return both


@dataclass(frozen=True)
class Quality:
    """Of a scorer on pairs it has not seen. accuracy: share of pairs ordered as preferred (ties half), with its 95 %
    Wilson interval; auc: area under the ROC curve of single texts, chosen against rejected, as the paper reports; n:
    pairs."""

    n: int
    accuracy: float
    low: float
    high: float
    auc: float


def evaluate(learned: PreferenceModel, preferences: Sequence[Preference]) -> Quality:
    """Accuracy and AUC on held-out preferences. Raises: PreferenceError for none."""
    prompts = [p.prompt for p in preferences]
    return quality(
        *(scores(learned, prompts, [getattr(p, side) for p in preferences]) for side in ("chosen", "rejected"))
    )


def longer(preferences: Sequence[Preference]) -> Quality:
    """The scorer to beat: how often the longer response, in words, is the preferred one."""
    return quality(
        *(torch.tensor([float(len(getattr(p, side).split())) for p in preferences]) for side in ("chosen", "rejected"))
    )


def quality(chosen: Tensor, rejected: Tensor) -> Quality:
    """``Quality`` of scores [n] of the preferred and of the other responses. Raises: PreferenceError for n = 0."""
    from sklearn.metrics import roc_auc_score

    n = len(chosen)
    if not n:
        raise PreferenceError("no pairs to be tested on")
    right = float((chosen > rejected).double().sum() + (chosen == rejected).double().sum() / 2)
    interval = stats.binomtest(round(right), n).proportion_ci(method="wilson")
    auc = roc_auc_score([1] * n + [0] * n, torch.cat([chosen, rejected]).numpy())
    return Quality(n, right / n, float(interval.low), float(interval.high), float(auc))


def save(learned: PreferenceModel, folder: str | Path) -> None:
    """Model, tokenizer and ``preference.json``; loads without a network and without pickle."""
    card = f"Scores responses; learned from pairs by {learned.kind} loss."
    training.save(folder, learned.model, learned.tokenizer, card)
    kept = {name: getattr(learned, name) for name in ("kind", "centre", "max_tokens", "include_prompt", "separator")}
    atomic_json(Path(folder) / "preference.json", kept)


def load(folder: str | Path) -> PreferenceModel:
    """What ``save`` wrote. Raises: PreferenceError for a folder that holds no such model."""
    from transformers import AutoModelForSequenceClassification

    try:
        kept = json.loads((Path(folder) / "preference.json").read_text(encoding="utf-8"))
        model = pretrained.read_model(AutoModelForSequenceClassification, folder)
        return PreferenceModel(model, pretrained.read_tokenizer(folder), **kept)
    except (OSError, ValueError, TypeError) as error:
        raise PreferenceError(f"{folder}: no preference model here ({error})") from error


def _ids(learned: PreferenceModel, prompts: Sequence[str], responses: Sequence[str]) -> list[list[int]]:
    if len(prompts) != len(responses):
        raise PreferenceError(
            f"expected one response per prompt, got {len(prompts)} prompts and {len(responses)} responses"
        )
    if learned.include_prompt:
        responses = [join(p, r, learned.separator) for p, r in zip(prompts, responses)]
    return [ids[-learned.max_tokens :] for ids in encode(learned.tokenizer, responses)]


def _forward(learned: PreferenceModel, ids: list[list[int]]) -> Tensor:
    """s [B]; an empty text is one end-of-text token."""
    rows = [row or [learned.tokenizer.eos_token_id] for row in ids]
    inputs, mask = padded(rows, learned.tokenizer.pad_token_id, learned.model.device)
    return learned.model(input_ids=inputs, attention_mask=mask).logits.squeeze(-1).float()


@torch.no_grad()
def _scores(learned: PreferenceModel, ids: list[list[int]], batch_size: int = 64) -> Tensor:
    learned.model.eval()
    out, order = torch.zeros(len(ids)), sorted(range(len(ids)), key=lambda i: len(ids[i]))
    for begin in range(0, len(order), batch_size):
        rows = order[begin : begin + batch_size]
        out[rows] = _forward(learned, [ids[i] for i in rows]).cpu()
    return out
