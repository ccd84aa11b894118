"""A linear judge: logistic regression on counts of words or of their parts, stored as JSON and arrays, no pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbook.draws.classifier import LABELS
from workbook.draws.training import TrainingError
from workbook.store.files import atomic_json


@dataclass(frozen=True)
class LinearJudge:
    """Logistic regression on TF-IDF. Calling it gives P(positive) [B], float64 in [0, 1].

    kind: a file of ``draws.named``; features: what is counted, options of scikit-learn's ``TfidfVectorizer``; terms:
    the features, in column order; idf, weights: float64 [F]; bias.
    """

    kind: str
    features: Mapping[str, Any]
    terms: list[str]
    idf: np.ndarray
    weights: np.ndarray
    bias: float

    def __call__(self, responses: Sequence[str], prompts: Sequence[str] | None = None) -> np.ndarray:
        """responses: B texts; prompts are ignored (the judge reads what was written, not what it was asked)."""
        if not len(responses):
            return np.zeros(0)
        features = self._vectorizer().transform(responses)
        return 1 / (1 + np.exp(-(features @ self.weights + self.bias)))

    def _vectorizer(self):
        vectorizer = _vectorizer(self.features, vocabulary={term: i for i, term in enumerate(self.terms)})
        vectorizer.idf_ = self.idf
        return vectorizer

    def save(self, folder: str | Path) -> None:
        """judge.json (terms) and judge.npz (numbers)."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / "judge.npz", idf=self.idf, weights=self.weights, bias=np.float64(self.bias))
        atomic_json(folder / "judge.json", {"kind": self.kind, "terms": self.terms})


def read(folder: str | Path, features: Mapping[str, Any]) -> LinearJudge:
    """The judge that ``save`` wrote."""
    record = json.loads((Path(folder) / "judge.json").read_text())
    with np.load(Path(folder) / "judge.npz", allow_pickle=False) as arrays:
        return LinearJudge(
            record["kind"], features, record["terms"], arrays["idf"], arrays["weights"], float(arrays["bias"])
        )


def _vectorizer(features: Mapping[str, Any], **options):
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(**features, sublinear_tf=True, **options)


def train(
    texts: Sequence[str],
    labels: Sequence[int],
    kind: str,
    features: Mapping[str, Any],
    most: int = 50_000,
    strength: float = 10.0,
) -> LinearJudge:
    """Fit a LinearJudge. most: how many features are kept, the frequent ones; strength: inverse of the L2 penalty."""
    from sklearn.linear_model import LogisticRegression

    if set(labels) != set(LABELS):
        raise TrainingError(f"judge: expected labels 0 and 1, both of them, got {sorted(set(labels))}")
    vectorizer = _vectorizer(features, min_df=3 if len(texts) >= 1000 else 1, max_features=most)
    matrix = vectorizer.fit_transform(texts)
    fitted = LogisticRegression(C=strength, max_iter=300).fit(matrix, np.asarray(labels))
    terms = vectorizer.get_feature_names_out().tolist()
    return LinearJudge(kind, features, terms, vectorizer.idf_, fitted.coef_[0], float(fitted.intercept_[0]))
