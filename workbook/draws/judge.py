"""Judges: scorers of another kind than the reward, for evaluation only.

For generated reviews the judge is the grammar itself (``corpus.judge``), for real ones a linear model of word pairs,
trained on other reviews; it is stored as JSON and arrays, without pickle. A second judge (``variants``) is the same
kind of model on parts of words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbook.draws.classifier import LABELS
from workbook.draws.training import TrainingError
from workbook.store.files import atomic_json


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
    """Fit a LinearJudge. features: most frequent ones kept; strength: inverse of the L2 penalty; kind: of FEATURES."""
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
            from workbook.texts.corpus import judge

            return judge
        with np.load(folder / "judge.npz", allow_pickle=False) as arrays:
            if record["kind"] not in FEATURES:
                raise KeyError(f"kind {record['kind']!r}, expected grammar or one of {list(FEATURES)}")
            return LinearJudge(record["terms"], arrays["idf"], arrays["weights"], float(arrays["bias"]), record["kind"])
    except (OSError, KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"{folder}: no judge here ({error})") from error


def judge_accuracy(judge: Callable[..., np.ndarray], texts: Sequence[str], labels: Sequence[int]) -> float:
    """Share of texts with judge > .5 exactly where the label is 1; a score of exactly .5 counts half."""
    scores, truth = judge(list(texts)), np.asarray(labels)
    return float(np.where(scores == 0.5, 0.5, (scores > 0.5) == (truth == 1)).mean())
