"""ROUGE of responses against references, by rouge-score."""

import datasets
import evaluate
from rouge_score import rouge_scorer

KINDS = ("rouge1", "rouge2", "rougeL")


class Rouge(evaluate.Metric):
    """F1 of ROUGE-1, -2 and -L in [0, 1] (Lin 2004), no stemming: of each text its best reference, averaged."""

    def _info(self) -> evaluate.MetricInfo:
        features = {"predictions": datasets.Value("string"), "references": datasets.Sequence(datasets.Value("string"))}
        return evaluate.MetricInfo(
            description=self.__doc__,
            citation="",
            inputs_description="predictions: B strings; references: B lists of strings",
            features=datasets.Features(features),
        )

    def _compute(self, predictions: list[str], references: list[list[str]]) -> dict[str, float]:
        scorer = rouge_scorer.RougeScorer(KINDS)
        best = [scorer.score_multi(given, text) for given, text in zip(references, predictions)]
        return {kind: sum(scores[kind].fmeasure for scores in best) / len(best) for kind in KINDS}
