"""Scorers of text learned from labels: the transformer that pays the reward, and a judge of another kind.

The judge is for evaluation only. For generated reviews it is the grammar itself (``corpus.judge``), for real ones a
linear model of word pairs, trained on other reviews; it is stored as JSON and arrays, without pickle. A second judge
(``variants``) is the same kind of model on parts of words.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from .pretrain import TrainingError, _adamw, _packed, _resume, _Training, encode, keep_memory, optimizer_step
from .runs import atomic_json, save_state
from .seeds import stream

LABELS = {0: "negative", 1: "positive"}


# the classifier ------------------------------------------------------------------------------------------------------


def new_classifier(tokenizer, settings, seed: int):
    """A small ModernBERT with random weights: rotary positions, mean of the tokens' states, so padding changes nothing.

    settings: layers, width, heads, max_tokens, dropout.
    """
    from transformers import ModernBertConfig, ModernBertForSequenceClassification

    end, drop = tokenizer.eos_token_id, settings.dropout
    config = ModernBertConfig(
        vocab_size=len(tokenizer), hidden_size=settings.width, intermediate_size=2 * settings.width,
        num_hidden_layers=settings.layers, num_attention_heads=settings.heads, classifier_pooling="mean",
        max_position_embeddings=settings.max_tokens, global_attn_every_n_layers=1, pad_token_id=tokenizer.pad_token_id,
        bos_token_id=end, eos_token_id=end, cls_token_id=end, sep_token_id=end, embedding_dropout=drop,
        mlp_dropout=drop, classifier_dropout=drop, id2label=LABELS, label2id={v: k for k, v in LABELS.items()},
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(seed, "classifier"))
        return ModernBertForSequenceClassification(config)


def train_classifier(
    texts: Sequence[str],
    labels: Sequence[int],
    tokenizer,
    settings,
    seed: int,
    checkpoint_folder: str | Path | None = None,
    progress: str = "",
    device: str = "cpu",
    save_every_s: float = 20.0,
):
    """Train a sentiment classifier from scratch; returns (model in eval mode, loss curve).

    Each epoch shows every text once, as a random stretch of at most ``max_tokens`` of its tokens: the reward reads the
    beginnings of reviews, and a model that has seen only their last lines misreads those. Batches hold texts of
    similar length and depend on the step alone. AdamW as in ``pretrain``, cross-entropy, fp32.
    settings: rlnlp.config.RewardModel; labels: 0 negative, 1 positive. Resumes as ``train_language_model``.
    Raises TrainingError for labels of one class only, and for a loss or gradient that is not finite.
    """
    from tqdm import tqdm

    if set(labels) != set(LABELS):
        raise TrainingError(f"classifier: expected labels 0 and 1, both of them, got {sorted(set(labels))}")
    keep_memory()
    ids, truth = encode(tokenizer, texts), torch.tensor(labels)
    steps_per_epoch = math.ceil(len(ids) / settings.batch_size)
    steps = steps_per_epoch * settings.epochs
    model = new_classifier(tokenizer, settings, seed).to(device).train()
    state = _Training(model, _adamw(model, settings))
    meta = _resume(state, checkpoint_folder)
    curve, summed, since = meta.get("curve", []), meta.get("summed", 0.0), meta.get("since", 0)
    every, saved, order = math.ceil(steps / 50), time.monotonic(), (-1, [], {})
    bar = tqdm(total=steps, initial=state.step, desc=progress, disable=not progress, file=sys.stderr, mininterval=5)
    random_state = torch.get_rng_state()
    while state.step < steps:
        epoch, index = divmod(state.step, steps_per_epoch)
        if order[0] != epoch:
            order = (epoch, *_epoch(ids, settings, seed, epoch))
        rows = order[1][index]
        torch.manual_seed(stream(seed, "dropout", state.step))
        inputs, mask = _padded([order[2][row] for row in rows], tokenizer.pad_token_id, device)
        logits = model(input_ids=inputs, attention_mask=mask).logits
        loss = nn.functional.cross_entropy(logits, truth[rows].to(device))
        value = optimizer_step(model, state.optimizer, loss, settings, state.step, steps)
        if not math.isfinite(value):
            raise TrainingError(f"classifier: loss or gradient is not finite at step {state.step} of {steps}")
        state.step, summed, since = state.step + 1, summed + value, since + 1
        bar.update()
        if state.step % every == 0 or state.step == steps:
            curve.append([state.step, summed / since])
            summed, since = 0.0, 0
        if checkpoint_folder and time.monotonic() - saved > save_every_s:
            save_state(checkpoint_folder, *_packed(state, curve=curve, summed=summed, since=since))
            saved = time.monotonic()
    bar.close()
    torch.set_rng_state(random_state)
    return model.eval(), [tuple(point) for point in curve]


def _epoch(ids: list[list[int]], settings, seed: int, epoch: int) -> tuple[list[list[int]], list[list[int]]]:
    """(batches of row numbers, the stretch of each text) of an epoch."""
    rng = np.random.default_rng(stream(seed, "epoch", epoch))
    most = settings.max_tokens
    begins = rng.random(len(ids))
    stretches = [x[(b := int(f * (max(0, len(x) - most) + 1))) : b + most] for x, f in zip(ids, begins)]
    shuffled, batches, pool = rng.permutation(len(ids)), [], 16 * settings.batch_size
    for begin in range(0, len(ids), pool):
        near = sorted(shuffled[begin : begin + pool].tolist(), key=lambda row: len(stretches[row]))
        batches += [near[i : i + settings.batch_size] for i in range(0, len(near), settings.batch_size)]
    return [batches[i] for i in rng.permutation(len(batches))], stretches


def _padded(rows: list[list[int]], pad: int, device: str) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([max(1, len(row)) for row in rows])
    ids = torch.full((len(rows), int(lengths.max())), pad)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row, dtype=torch.int64)
    mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
    return ids.to(device), mask.to(device)


@torch.no_grad()
def positive_probability(model, tokenizer, texts: Sequence[str], max_tokens: int, batch_size: int = 64) -> Tensor:
    """P(positive) [B] float32 of each text's last ``max_tokens`` tokens, in [0, 1]; an empty text is one pad token."""
    was_training = model.training
    model.eval()
    ids = [row[-max_tokens:] for row in encode(tokenizer, texts)]
    order, out = sorted(range(len(ids)), key=lambda i: len(ids[i])), torch.empty(len(ids))
    for begin in range(0, len(order), batch_size):
        rows = order[begin : begin + batch_size]
        inputs, mask = _padded([ids[i] for i in rows], tokenizer.pad_token_id, model.device)
        out[rows] = model(input_ids=inputs, attention_mask=mask).logits.softmax(-1)[:, 1].cpu()
    model.train(was_training)
    return out


def accuracy(model, tokenizer, texts: Sequence[str], labels: Sequence[int], max_tokens: int) -> float:
    """Share of texts whose label the classifier gives, threshold .5."""
    scores = positive_probability(model, tokenizer, texts, max_tokens)
    return float(((scores > 0.5).long() == torch.tensor(labels)).double().mean())


# the judge -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinearJudge:
    """Logistic regression on TF-IDF. Calling it gives P(positive) [B], float64 in [0, 1].

    terms: the features, in column order; idf, weights: float64 [F]; bias; kind: what a feature is, a key of FEATURES.
    """

    terms: list[str]
    idf: np.ndarray
    weights: np.ndarray
    bias: float
    kind: str = "tfidf"

    def __call__(self, responses: Sequence[str], prompts: Sequence[str] | None = None) -> np.ndarray:
        """responses: B texts; prompts are ignored (the judge reads what was written, not what it was asked)."""
        if not len(responses):
            return np.zeros(0)
        features = self._vectorizer().transform(responses)
        return 1 / (1 + np.exp(-(features @ self.weights + self.bias)))

    def _vectorizer(self):
        vectorizer = _vectorizer(self.kind, vocabulary={term: i for i, term in enumerate(self.terms)})
        vectorizer.idf_ = self.idf
        return vectorizer

    def save(self, folder: str | Path) -> None:
        """judge.json (terms) and judge.npz (numbers)."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / "judge.npz", idf=self.idf, weights=self.weights, bias=np.float64(self.bias))
        atomic_json(folder / "judge.json", {"kind": self.kind, "terms": self.terms})


FEATURES = {
    "tfidf": {"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"},  # words and word pairs
    "characters": {"ngram_range": (3, 5), "analyzer": "char_wb"},  # 3 to 5 characters of one word, its blanks included
}


def _vectorizer(kind: str, **options):
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(**FEATURES[kind], sublinear_tf=True, **options)


def train_judge(
    texts: Sequence[str], labels: Sequence[int], features: int = 50_000, strength: float = 10.0, kind: str = "tfidf"
):
    """Fit a LinearJudge. features: most frequent ones kept; strength: inverse of the L2 penalty (C); kind: of FEATURES."""
    from sklearn.linear_model import LogisticRegression

    if set(labels) != set(LABELS):
        raise TrainingError(f"judge: expected labels 0 and 1, both of them, got {sorted(set(labels))}")
    vectorizer = _vectorizer(kind, min_df=3 if len(texts) >= 1000 else 1, max_features=features)
    matrix = vectorizer.fit_transform(texts)
    fitted = LogisticRegression(C=strength, max_iter=300).fit(matrix, np.asarray(labels))
    terms = vectorizer.get_feature_names_out().tolist()
    return LinearJudge(terms, vectorizer.idf_, fitted.coef_[0], float(fitted.intercept_[0]), kind)


def save_grammar_judge(folder: str | Path) -> None:
    """Record that the judge is ``corpus.judge``, which knows the grammar that the reviews come from."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    atomic_json(Path(folder) / "judge.json", {"kind": "grammar"})


def load_judge(folder: str | Path) -> Callable[..., np.ndarray]:
    """The judge of a models folder, ``judge(responses, prompts=None) -> [B]`` in [0, 1], float64.

    Raises ValueError for a folder that holds no judge.
    """
    folder = Path(folder)
    try:
        record = json.loads((folder / "judge.json").read_text())
        if record["kind"] == "grammar":
            from .corpus import judge

            return judge
        with np.load(folder / "judge.npz", allow_pickle=False) as arrays:
            if record["kind"] not in FEATURES:
                raise KeyError(f"kind {record['kind']!r}, expected grammar or one of {list(FEATURES)}")
            return LinearJudge(
                record["terms"], arrays["idf"], arrays["weights"], float(arrays["bias"]), record["kind"]
            )
    except (OSError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"{folder}: no judge here ({error})") from error


def judge_accuracy(judge: Callable[..., np.ndarray], texts: Sequence[str], labels: Sequence[int]) -> float:
    """Share of texts with judge > .5 exactly where the label is 1; a score of exactly .5 counts half."""
    scores, truth = judge(list(texts)), np.asarray(labels)
    return float(np.where(scores == 0.5, 0.5, (scores > 0.5) == (truth == 1)).mean())
