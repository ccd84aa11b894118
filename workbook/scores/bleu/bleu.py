"""Corpus BLEU of responses against references, by sacrebleu."""

import datasets
import evaluate
import sacrebleu


class Bleu(evaluate.Metric):
    """BLEU in [0, 100] (Papineni et al. 2002; sacrebleu's tokens "13a" and smoothing). References: a list each."""

    def _info(self) -> evaluate.MetricInfo:
        features = {"predictions": datasets.Value("string"), "references": datasets.Sequence(datasets.Value("string"))}
        return evaluate.MetricInfo(
            description=self.__doc__,
            citation="",
            inputs_description="predictions: B strings; references: B lists of strings, equally many each",
            features=datasets.Features(features),
        )

    def _compute(self, predictions: list[str], references: list[list[str]]) -> dict[str, float]:
        if len(many := {len(row) for row in references}) > 1 or 0 in many:
            raise ValueError(
                f"bleu: expected equally many references of each response, at least one, found {sorted(many)}"
            )
        return {"bleu": sacrebleu.corpus_bleu(predictions, [list(column) for column in zip(*references)]).score}
